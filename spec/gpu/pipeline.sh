#!/bin/bash
# A double-buffered pipeline from pinned memory to the GPU, in Lua (bench/pipeline.lua), beside the
# longer of its two stages; and two runtimes and PyTorch in one process on one GPU, sharing memory
# by DLPack (spec/support/dlpack.py; LIBFLARE: the library, build*/libflare.so).
. spec/gpu/lib.sh
for mib in 16 64 256; do
  "$flare" bench/pipeline.lua --device cuda --mib $mib --batches $((mib > 64 ? 20 : 40)) \
    >"$out/pipeline$mib.txt"
  cat "$out/pipeline$mib.txt"
  check "pipeline of $mib MiB, % of max(copy, compute)" \
    "$(sed -nE 's/^pipeline +[0-9.]+ ms +([0-9.]+) .*/\1/p' "$out/pipeline$mib.txt")" '>=' 90
done
library=${LIBFLARE:-$(ls build*/libflare.so 2>/dev/null | head -n 1)}
if [ -n "$library" ]; then
  expect "two runtimes and PyTorch on one GPU" "$python" spec/support/dlpack.py \
    "$(realpath "$library")" cuda
  cat "$out/last.log"
else
  echo "no libflare.so: two runtimes were not tried"
fi
# two runtimes by flare alone: Lua states on threads have one each
expect "two runtimes of one program on one GPU" "$flare" spec/gpu/runtimes.lua
cat "$out/last.log"
finish
