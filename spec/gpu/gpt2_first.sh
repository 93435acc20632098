#!/bin/bash
# The first step of examples/gpt2.lua (124M parameters, batches of 16): with nothing compiled, with
# the disk cache that this left, with the pack (build*/flare.pack, where there is one).
. spec/gpu/lib.sh
unset FLARE_CACHE
first() { # NAME [VARIABLE=VALUE ...]: prints the seconds of the first step
  local name=$1
  shift
  env "$@" "$flare" examples/gpt2.lua --batch 16 --steps 11 --every 10 >"$out/$name.log" 2>&1
  sed -nE 's/^step 1: .*, ([0-9.]+) s$/\1/p' "$out/$name.log"
}
cache=$(mktemp -d)
# libraries and the example's files are read once before, and thrown away
first before FLARE_CACHE="$cache/before" >/dev/null
for turn in 1 2; do
  rm -rf "$cache/cold"
  cold[turn]=$(first cold$turn FLARE_PACK=none FLARE_CACHE="$cache/cold")
  warm[turn]=$(first warm$turn FLARE_PACK=none FLARE_CACHE="$cache/cold")
done
least() { printf '%s\n' "$@" | sort -n | head -n 1; }
echo "nothing compiled: ${cold[*]} s; from the disk cache: ${warm[*]} s; $(ls "$cache/cold" | wc -l) kernels there"
check "first step with nothing compiled, s" "$(least "${cold[@]}")" '<=' 3
check "first step from the disk cache, s" "$(least "${warm[@]}")" '<=' 0.5
pack=$(ls build*/flare.pack 2>/dev/null | head -n 1)
if [ -n "$pack" ]; then
  for turn in 1 2 3; do packed[turn]=$(first pack$turn FLARE_PACK="$PWD/$pack" FLARE_CACHE=off); done
  echo "with the pack: ${packed[*]} s"
  check "first step with the pack, s" "$(least "${packed[@]}")" '<=' 1
else
  echo "no pack: not measured with it"
fi
grep -h '^step' "$out/warm1.log"
echo "kernels of the first step that core.def lacks:"
FLARE_CACHE=$cache/cold FLARE_PACK=none "$flare" -e 'arg = {[0] = "x", "--steps", "1"}
  dofile "examples/gpt2.lua"
  print(require "flare.core".backend_query("cuda", "loaded"))' | sed -n 's/^0x/CORE(0x/p' |
  while read -r key name; do
    grep -qF "$key" kernels/cuda/driver/core.def || echo "  $name"
  done
rm -rf "$cache"
finish
