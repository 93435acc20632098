#!/bin/bash
# nn.LSTM beside PyTorch's (cuDNN) in the same run: in f32 and bf16 no slower. In f16 cuDNN has
# kernels of its own, for some sizes; these rows are shown. One GPU, nothing else on it.
. spec/gpu/lib.sh
"$flare" spec/gpu/lstm.lua >"$out/flare.txt"
"$python" spec/gpu/lstm.py >"$out/peer.txt"
while IFS=$'\t' read -r name us; do
  peer=$(awk -F'\t' -v name="$name" '$1 == name {print $2}' "$out/peer.txt")
  case $name in
    *f16*) [[ $name == *bf16* ]] || { echo "$name: $us us, PyTorch $peer"; continue; } ;;
  esac
  check "$name, us (PyTorch $peer): PyTorch's over ours" "$(ratio "$peer" "$us")" '>=' 1
done <"$out/flare.txt"
check "sizes" "$(wc -l <"$out/flare.txt")" '==' 30
finish
