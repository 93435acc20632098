#!/bin/bash
# GPT-2 (124M, bf16) at batches of 16 and 64 windows beside PyTorch eager, one after the other:
# tokens a second (the best of the last runs of ten steps), and the most memory of the GPU in use by
# the driver's count, looked at ten times a second.
. spec/gpu/lib.sh
gpu=${CUDA_VISIBLE_DEVICES:-0}
run() { # NAME COMMAND...
  local name=$1 watch
  shift
  nvidia-smi -i "${gpu%%,*}" --query-gpu=memory.used --format=csv,noheader,nounits -lms 100 \
    >"$out/$name.memory" &
  watch=$!
  timeout -k 2 "$(left 90)" "$@" >"$out/$name.log" 2>&1
  kill $watch
  wait $watch 2>/dev/null
}
rate() { sed -nE 's/^step [2-9][0-9]: .* ([0-9]+) tokens.s.*/\1/p' "$out/$1.log" | sort -n | tail -n 1; }
memory() { sort -n "$out/$1.memory" | tail -n 1; }
before=$(nvidia-smi -i "${gpu%%,*}" --query-gpu=memory.used --format=csv,noheader,nounits)
echo "before: $before MiB in use"
for batch in 16 64; do
  run flare$batch "$flare" examples/gpt2.lua --batch $batch --steps 41
  run torch$batch "$python" bench/peers/gpt2.py eager $batch 41
  for side in flare torch; do
    echo "$side, batches of $batch: $(rate $side$batch) tokens/s, $(memory $side$batch) MiB in use," \
      "$(grep -h peak "$out/$side$batch.log")"
  done
  check "tokens a second beside PyTorch, batches of $batch" \
    "$(ratio "$(rate flare$batch)" "$(rate torch$batch)")" '>=' 1.1
  check "memory beside PyTorch, batches of $batch" \
    "$(ratio "$(memory flare$batch)" "$(memory torch$batch)")" '<=' 1.05
done
finish
