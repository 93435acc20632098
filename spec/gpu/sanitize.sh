#!/bin/bash
# Every row on its samples, forward and backward, on cuda under one tool of compute-sanitizer, with
# memory of exact sizes: bash spec/gpu/sanitize.sh memcheck|racecheck|initcheck|synccheck [options
# of spec/support/every_row.lua].
# Needs 16 cores, and the pack (build*/flare.pack) or a full disk cache. NVIDIA's own libraries
# are hidden: their kernels are not what is looked at, and take the tools minutes. HIDE names others;
# KERNELS looks only at kernels with that in their names.
tool=${1:-memcheck}
shift
rows="$*"
. spec/gpu/lib.sh
name=$tool${rows:+-$(echo "$rows" | cksum | cut -d' ' -f1)}
out=$out-$name
mkdir -p "$out"
rm -f "$out"/*.log
parts=${PARTS:-48}
export FLARE_MEMORY=direct FLARE_CUDA_HIDE=${HIDE:-libcublasLt,libcudnn,libcusolver,libcufft}
filter=
if [ -n "$KERNELS" ]; then # libraries try calls that fail; older versions have another filter
  filter="--report-api-errors no --kernel-name kernel_substring=$KERNELS"
  compute-sanitizer --help 2>&1 | grep -q -- --kernel-name ||
    filter="--report-api-errors no --filter kernel_substring=$KERNELS"
fi
pack=$(ls build*/flare.pack 2>/dev/null | head -n 1)
[ -z "$pack" ] || export FLARE_PACK=$PWD/$pack
limit=${LIMIT:-90}
cores=$(nproc)

part() { # the rows of one part
  local log=$out/$1.log
  timeout -k 2 "$(left "$limit")" compute-sanitizer --tool "$tool" $filter --print-limit 8 "$flare" \
    spec/support/every_row.lua --device cuda --dtypes f32,bf16 --verbose --part "$1/$parts" $rows \
    >"$log" 2>&1
  echo "status $?" >>"$log"
}
found() { # FILE...: how much the tool found
  cat "$@" | sed -nE 's/.*(ERROR SUMMARY|RACECHECK SUMMARY): ([0-9]+) .*/\2/p' |
    awk '{n += $1} END {print n + 0}'
}
if [ -n "$KERNELS" ]; then
  timeout -k 2 60 compute-sanitizer --tool "$tool" $filter "$flare" spec/gpu/planted.lua "$tool" \
    >"$out/planted.txt" 2>&1
  check "what $tool found in a kernel with a mistake" "$(found "$out/planted.txt")" '>=' 1
  [ $failed = 0 ] || tail -n 12 "$out/planted.txt"
fi
export -f part left
export out tool filter flare parts limit started rows
seq "$parts" | xargs -P $((cores > 16 ? 16 : cores)) -I@ bash -c 'part @'

[ -z "$keep" ] || cat "$out"/*.log | gzip >"$keep/$name-parts.log.gz"
through=0 calls=0 rows=0
for k in $(seq "$parts"); do
  log=$out/$k.log
  line=$(grep -aE '^[0-9]+ pieces of rows, ' "$log" | tail -n 1)
  if [ -n "$line" ]; then
    through=$((through + 1))
    rows=$((rows + $(echo "$line" | cut -d' ' -f1)))
    calls=$((calls + $(echo "$line" | cut -d' ' -f5)))
  else
    echo "part $k did not get through: $(grep -a '^row ' "$log" | tail -n 1), $(tail -n 1 "$log")"
  fi
done
cat "$out"/*.log | grep -aE '^failed: ' | sort | uniq -c | sort -rn | cut -c1-300 | head -n 12
cat "$out"/*.log | grep -aE '^=+ (Error|Invalid|Uninitialized|Race|Barrier|Warning|Program hit)' |
  sed 's/[0-9]* bytes from//; s/ at 0x[0-9a-f]*//g' | sort | uniq -c | sort -rn | cut -c1-200 | head -n 30
grep -aE -A8 '^=+ (Invalid|Uninitialized|Error: Race|Error: Potential|Barrier|Program hit)' "$out"/*.log |
  sed 's/^[^=]*=/=/' | head -n 80
echo "$tool: $rows pieces of rows, $calls calls, $through of $parts parts, $(($(date +%s) - started)) s"
check "parts that got through" $through '==' "$parts"
check "calls that failed" "$(cat "$out"/*.log | grep -acE '^failed: ')" '==' 0
check "what $tool found" "$(found "$out"/*.log)" '==' 0
finish
