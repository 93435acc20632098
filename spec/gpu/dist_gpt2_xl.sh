# GPT-2 1.5B, batches of 8 x 1024 on each GPU, bf16: flare data parallel and with ZeRO 1 and 3 on all
# GPUs, PyTorch's DistributedDataParallel, and both on one GPU, in one run. 2 or 4 H200s. PASS: each of
# flare's has 95 % of so many times its figure on one GPU, scales no less than PyTorch does, and has
# 1.1 times its throughput; but for recompute, which goes forward twice. A word with .bf16 behind it is
# one whose gradients travel in bf16. Limit: 50 s, and 13 s for each word.
# low: blocks' parameters and gradients travel in bf16, in stages 1 (low1) and 3.
# dist_gpt2_xl.sh [parallel] [zero1] [low1] [zero3] [low] [keep] [lowkeep] [recompute]
words=${*:-parallel parallel.bf16 zero1 zero1.bf16 low1 zero3 zero3.bf16 keep low lowkeep recompute}
all=$(nvidia-smi -L | grep -c '^GPU')
w=$(mktemp -d)
bad=0
export NCCL_NVLS_ENABLE=0 PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True
rate() { sed -n 's/^step [0-9]*: .* \([0-9]*\) tokens.s.*/\1/p' "$1" | sort -n | tail -n 1; }
show() { # name, file
  printf '%-38s %10s tokens/s  %s\n' "$1" "$(rate "$2")" "$(grep peak "$2")"
  [ -n "$(rate "$2")" ] && grep -q peak "$2" || { echo "FAIL $1"; tail -n 8 "$w/err"; bad=1; }
}
ours() { # name, GPUs, options
  timeout -k 2 30 flare launch -n "$2" --timeout 30 --logs "$w/logs" examples/gpt2.lua --layers 48 \
    --width 1600 --heads 25 --batch 8 --steps 13 --every 6 $3 >"$w/$1" 2>"$w/err"
  show "flare, $2 GPUs $3" "$w/$1"
}
theirs() { # GPUs, steps
  local r pids=""
  for ((r = 0; r < $1; r++)); do
    RANK=$r LOCAL_RANK=$r WORLD_SIZE=$1 MASTER_ADDR=127.0.0.1 MASTER_PORT=$((29700 + $1)) \
      timeout -k 2 45 python3 bench/peers/gpt2.py eager 8 "$2" xl >"$w/torch.$r" 2>"$w/err" &
    pids="$pids $!"
  done
  for r in $pids; do wait "$r"; done
  mv "$w/torch.0" "$w/peer.$1"
  show "PyTorch, $1 GPUs" "$w/peer.$1"
}
ours one 1
for word in $words; do
  low=
  case $word in *.*) low="--compress ${word#*.}" ;; esac
  case $word in
    parallel*) ours "$word" "$all" "$low" ;;
    low1) ours low1 "$all" "--zero 1 --gather bf16 --compress bf16" ;;
    low) ours low "$all" "--zero 3 --gather bf16 --compress bf16" ;;
    lowkeep) ours lowkeep "$all" "--zero 3 --regather 0 --gather bf16 --compress bf16" ;;
    keep*) ours "$word" "$all" "--zero 3 --regather 0 $low" ;;
    recompute*) ours "$word" "$all" "--zero 3 --recompute 1 $low" ;;
    zero[123]*) way=${word#zero}; ours "$word" "$all" "--zero ${way%%.*} $low" ;;
    *) echo "FAIL no such word: $word"; bad=1 ;;
  esac
done
theirs 1 21
theirs "$all" 21
for word in $words; do
  echo "$word $(rate "$w/$word") $(rate "$w/one") $(rate "$w/peer.$all") $(rate "$w/peer.1")"
done >"$w/table"
awk -v n="$all" '
  function asked(got, least) {
    if (got < least) bad = 1
    return sprintf("%6.3f (>= %.3f)%s", got, least, got >= least ? "" : " SHORT")
  }
  NF != 5 { bad = 1; print $1 ": not measured"; next }
  /^recompute/ { print $1 ": over " n " times one " $2 / $3 / n ", over PyTorch " $2 / $4; next }
  {
    ours = $2 / $3 / n; theirs = $4 / $5 / n
    print $1 ": over " n " times one" asked(ours, 0.95) ", beside what PyTorch scales" asked(ours, theirs) \
      ", over PyTorch" asked($2 / $4, 1.1)
  }
  END { exit bad }' "$w/table" || bad=1
rm -rf "$w"
[ $bad = 0 ] && echo PASS || { echo FAIL; exit 1; }
