#!/bin/bash
# The message when a GPU's memory is full, beside the driver's figures (spec/gpu/oom.lua). It takes
# the whole GPU: nothing else may run there.
. spec/gpu/lib.sh
mkdir -p "$out/include/flare"
cp runtime/*.h runtime/*.def "$out/include/flare"
${CC:-cc} -std=gnu11 -O1 -shared -fPIC -I "$out/include" -o "$out/driver_memory.so" \
  spec/gpu/driver_memory.c -ldl || exit 1
"$flare" spec/gpu/oom.lua "$out/driver_memory.so" || failed=1
finish
