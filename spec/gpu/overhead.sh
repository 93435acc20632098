#!/bin/bash
# What the host pays: one operator beside a bare launch, four with their gradients, in turns; an
# MLP's steps, a million temporaries; PyTorch eager in the same run.
. spec/gpu/lib.sh
cc=${CC:-cc}
command -v "$cc" >/dev/null || cc="nvcc -x c"
$cc -O2 -o "$out/floor" spec/gpu/floor.c -ldl || exit 1

figure() { # FILE NAME FIELD
  awk -F'\t' -v name="$2" -v k="$3" '$1 == name {print $k}' "$out/$1"
}
"$flare" spec/gpu/overhead.lua >"$out/flare.txt"
"$python" spec/gpu/overhead.py >"$out/peer.txt"
# a host's speed differs by a tenth from second to second: the least of three turns of both
for turn in 1 2 3; do
  "$out/floor"
  "$flare" spec/gpu/overhead.lua cuda 0
done >"$out/turns.txt"
cat "$out/turns.txt"
sed 's/^/flare\t/' "$out/flare.txt"
sed 's/^/PyTorch\t/' "$out/peer.txt"

least() { figure turns.txt "$1" 3 | sort -n | head -n 1; }
floor=$(least floor)
add=$(least add)
check "add, us on the host (a bare launch: $floor; PyTorch: $(figure peer.txt add 3))" "$add" '<=' \
  "$(awk -v f="$floor" 'BEGIN {print f + 0.7}')"
check "four operators and backward, us (PyTorch: $(figure peer.txt four 3))" \
  "$(least four)" '<=' 60
check "MLP, steps a second (PyTorch: $(figure peer.txt mlp 2), fused $(figure peer.txt mlp_fused 2))" \
  "$(figure flare.txt mlp 2)" '>=' "$(awk -v p="$(figure peer.txt mlp 2)" 'BEGIN {print 4 * p}')"
check "its driver allocations in steady state" "$(figure flare.txt mlp_segments 2)" '==' 0
for gib in 0 8; do
  what="10^6 temporaries of 1 MiB beside $gib GiB"
  echo "$what: $(figure flare.txt temporaries_$gib 2) us each, $(figure flare.txt temporaries_$gib 3) MiB reserved"
  check "  (reserved - 64 MB) over what lives" "$(figure flare.txt temporaries_$gib 4)" '<=' 1.15
  check "  their speed beside <close>" "$(figure flare.txt temporaries_$gib 5)" '>=' 0.9
  check "  driver allocations after the first 1000" "$(figure flare.txt temporaries_$gib 6)" '==' 0
done
finish
