#!/bin/bash
# Operators from outside on the GPU: from source, from a cubin, from a shared library with an init
# hook and a launch of its own, registered from Lua (spec/op_native_spec.lua); and from C, where
# that program is there (build*/spec/backend_op). BUSTED: the program that runs specs.
. spec/gpu/lib.sh
build=${FLARE_BUILD:-build}
if [ ! -f "$build/spec/op_module.so" ]; then
  mkdir -p "$build/spec" "$out/include/flare"
  cp runtime/*.h runtime/*.def "$out/include/flare"
  ${CC:-cc} -std=gnu11 -O1 -shared -fPIC -I "$out/include" -o "$build/spec/op_module.so" \
    spec/c/op_module.c -ldl || exit 1
fi
[ -x "$build/flare" ] || ln -sf "$(realpath "$flare")" "$build/flare"
export FLARE_SPEC_DEVICES=cuda:0 FLARE_BUILD=$build
busted=${BUSTED:-$(command -v busted)}
"$flare" "$busted" -o TAP spec/op_native_spec.lua >"$out/native.log" 2>&1
grep -E '^not ok' "$out/native.log"
grep -A12 -E '^not ok' "$out/native.log" | head -n 60
check "checks of operators from outside" "$(grep -c '^ok' "$out/native.log")" '>=' 25
check "of which failed" "$(grep -c '^not ok' "$out/native.log")" '==' 0
program=$(ls build*/spec/backend_op build*/backend_op 2>/dev/null | head -n 1)
[ -z "$program" ] || expect "registered from C" "$program" cuda
finish
