# GPT-2 1.5B, batches of 8 x 1024 on each GPU, bf16: flare on one GPU, on all data parallel and with
# ZeRO 1 and 3, and PyTorch's DistributedDataParallel on all, in one run. 2 or 4 H200s. Limit: 95 s.
all=$(nvidia-smi -L | grep -c '^GPU')
w=$(mktemp -d)
bad=0
export NCCL_NVLS_ENABLE=0 PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True
rate() { sed -n 's/^step [0-9]*: .* \([0-9]*\) tokens.s.*/\1/p' "$1" | sort -n | tail -n 1; }
show() { # name, file, tokens/s on one GPU
  printf '%-28s %10s tokens/s  %s\n' "$1" "$(rate "$2")" "$(grep peak "$2")"
  [ -n "$(rate "$2")" ] || { echo "FAIL $1"; tail -n 8 "$w/err"; bad=1; }
}
ours() { # name, GPUs, options
  timeout -k 2 30 flare launch -n "$2" --timeout 30 --logs "$w/logs" examples/gpt2.lua --layers 48 \
    --width 1600 --heads 25 --batch 8 --steps 13 --every 6 $3 >"$w/$1" 2>"$w/err"
  show "flare, $2 GPUs $3" "$w/$1"
}
ours one 1
ours parallel "$all"
ours zero1 "$all" "--zero 1"
ours zero3 "$all" "--zero 3"
pids=""
for ((r = 0; r < all; r++)); do
  RANK=$r LOCAL_RANK=$r WORLD_SIZE=$all MASTER_ADDR=127.0.0.1 MASTER_PORT=29700 \
    timeout -k 2 45 python3 bench/peers/gpt2.py eager 8 21 xl >"$w/torch.$r" 2>"$w/err" &
  pids="$pids $!"
done
for r in $pids; do wait "$r"; done
show "PyTorch DDP, $all GPUs" "$w/torch.0"
one=$(rate "$w/one")
for k in parallel zero1 zero3; do
  echo "$k scales: $(awk -v a="$(rate "$w/$k")" -v b="$one" -v n="$all" 'BEGIN { printf "%.1f%%", 100 * a / b / n }')"
done
rm -rf "$w"
[ $bad = 0 ] && echo PASS || { echo FAIL; exit 1; }
