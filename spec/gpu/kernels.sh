#!/bin/bash
# Kernels in strings: from the string to the end of the first launch, with the compiler loaded and
# nothing cached, from the disk cache in another process, and again in the same one. "busy": while
# threads compile the core list beside it, as in the first minute of a machine without a pack.
. spec/gpu/lib.sh
cache=$(mktemp -d)
export FLARE_PACK=none
for turn in 1 2 3; do
  # without a cache nothing is compiled ahead beside it
  FLARE_CACHE=off "$flare" spec/gpu/kernels.lua >"$out/new$turn.txt"
  rm -rf "$cache/k"
  FLARE_CACHE=$cache/k "$flare" spec/gpu/kernels.lua >"$out/busy$turn.txt"
  FLARE_CACHE=$cache/k "$flare" spec/gpu/kernels.lua >"$out/cached$turn.txt"
done
rm -rf "$cache"
head -n 4 "$out"/new1.txt "$out"/busy1.txt "$out"/cached1.txt
least() { # GLOB KIND FIELD
  cat $1 | awk -F'\t' -v kind="$2" -v k="$3" '$1 == kind {print $k}' | sort -n | head -n 1
}
for kind in raw elementwise reduce traced; do
  check "$kind: string to the end of the first launch, ms" "$(least "$out/new?.txt" $kind 2)" '<=' 50
  check "$kind: the same string again in the process, ms" "$(least "$out/new?.txt" $kind 3)" '<=' 1
  check "$kind: from the disk cache, ms" "$(least "$out/cached?.txt" $kind 2)" '<=' 1
done
finish
