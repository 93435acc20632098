#!/bin/bash
# GPT-2's loss over 200 steps of batches of 16 from the same weights and data: flare and PyTorch in
# bf16 autocast, beside what rounding alone does: PyTorch with the windows of each batch in reverse
# order, which is the same mathematics, and with another attention of its own; and flare without
# cuBLASLt and cuDNN. All at once, so the times say nothing.
. spec/gpu/lib.sh
steps=${STEPS:-200}
data=$(mktemp -d)
"$python" bench/peers/gpt2.py make 16 "$steps" "$data"
ours() { # NAME [VARIABLE=VALUE ...]
  local name=$1
  shift
  env "$@" "$flare" examples/gpt2.lua --batch 16 --steps "$steps" --weights "$data/weights.safetensors" \
    --data "$data/tokens.safetensors" >"$out/$name.log" 2>&1
}
ours flare &
"$python" bench/peers/gpt2.py eager 16 "$steps" "$data" >"$out/torch.log" 2>&1 &
"$python" bench/peers/gpt2.py eager 16 "$steps" "$data" reversed >"$out/reversed.log" 2>&1 &
"$python" bench/peers/gpt2.py eager 16 "$steps" "$data" math >"$out/math.log" 2>&1 &
ours own FLARE_CUDA_HIDE=libcublasLt,libcudnn &
wait
rm -rf "$data"
lua5.4 spec/gpu/curves.lua "$out" torch math,reversed flare own || failed=1
finish
