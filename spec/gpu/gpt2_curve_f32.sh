#!/bin/bash
# GPT-2's loss over 60 steps of batches of 8 from the same weights and data in f32, where rounding
# is small: flare and PyTorch, beside PyTorch with another attention of its own (products and
# softmax), which rounds otherwise in every layer as flare does, and with the windows of each batch
# in reverse order, where only sums over a batch do. All at once, so the times say nothing.
. spec/gpu/lib.sh
steps=${STEPS:-60}
data=$(mktemp -d)
"$python" bench/peers/gpt2.py make 8 "$steps" "$data"
"$flare" examples/gpt2.lua --batch 8 --steps "$steps" --autocast none --weights \
  "$data/weights.safetensors" --data "$data/tokens.safetensors" >"$out/flare.log" 2>&1 &
"$python" bench/peers/gpt2.py eager 8 "$steps" "$data" f32 >"$out/torch.log" 2>&1 &
"$python" bench/peers/gpt2.py eager 8 "$steps" "$data" f32 reversed >"$out/reversed.log" 2>&1 &
"$python" bench/peers/gpt2.py eager 8 "$steps" "$data" f32 math >"$out/math.log" 2>&1 &
wait
rm -rf "$data"
lua5.4 spec/gpu/curves.lua "$out" torch math,reversed flare || failed=1
finish
