# GPT-2 124M on 1, 2, 4 ... GPUs, batches of 32 x 1024 on each, bf16: tokens a second of flare and of
# PyTorch's DistributedDataParallel in the same run, and how they scale. H200s. PASS: on all GPUs
# 95 % of so many times flare's own figure on one, no less than PyTorch scales, and (eager) 1.1 times
# its throughput. Limit: 95 s; with compile, which compiles for one and for all, 150 s (PEER_LIMIT is
# that of each of PyTorch's). dist_gpt2.sh [eager|compile] [GPUs, as in "1 2 4"]
# COMPRESS=bf16 adds rows for gradients that travel in bf16, before and after those that do not; of two
# GPUs a run takes 15 s.
mode=${1:-eager}
limit=${PEER_LIMIT:-$([ "$mode" = eager ] && echo 60 || echo 110)}
all=$(nvidia-smi -L | grep -c '^GPU')
counts=$(echo ${2:-$(for n in 1 2 4 8; do [ $n -le "$all" ] && echo $n; done | { [ "$mode" = eager ] && cat || sed -n '1p;$p'; })})
w=$(mktemp -d)
bad=0
export NCCL_NVLS_ENABLE=0 PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True
median() { # of tokens/s
  sed -n 's/^step [0-9]*: .* \([0-9]*\) tokens.s.*/\1/p' "$1" | sort -n | awk '{ a[NR] = $1 } END { print a[int((NR + 1) / 2)] }'
}
ours() { # GPUs, a name behind theirs, options
  timeout -k 2 40 flare launch -n "$1" --timeout 30 --logs "$w/logs" examples/gpt2.lua --batch 32 \
    --steps 41 $3 >"$w/flare.$1$2" 2>"$w/err" || { echo "FAIL flare on $1$2: $?"; tail -n 20 "$w/err"; bad=1; }
}
theirs() {
  local r pids=""
  for ((r = 0; r < $1; r++)); do
    RANK=$r LOCAL_RANK=$r WORLD_SIZE=$1 MASTER_ADDR=127.0.0.1 MASTER_PORT=$((29600 + $1)) \
      timeout -k 2 "$limit" python3 bench/peers/gpt2.py "$mode" 32 41 >"$w/torch.$1.$r" 2>"$w/err.$r" &
    pids="$pids $!"
  done
  for r in $pids; do wait $r || bad=1; done
  mv "$w/torch.$1.0" "$w/torch.$1"
  [ -n "$(median "$w/torch.$1")" ] || { echo "FAIL PyTorch on $1"; tail -n 5 "$w/err.0"; bad=1; }
}
first=${counts%% *} last=${counts##* }
for n in $counts; do
  [ -n "$COMPRESS" ] && [ "$n" -gt 1 ] && ours "$n" .low1 "--compress $COMPRESS"
  ours "$n"
  [ -n "$COMPRESS" ] && [ "$n" -gt 1 ] && ours "$n" .low2 "--compress $COMPRESS"
  theirs "$n"
done
printf '%-6s %12s %12s %8s %14s %14s   (PyTorch: %s)\n' GPUs flare PyTorch ratio 'flare scales' 'it scales' "$mode"
for n in $counts; do
  echo "$n $(median "$w/flare.$n") $(median "$w/torch.$n") $(median "$w/flare.$first") $(median "$w/torch.$first")"
done >"$w/table"
awk -v first="$first" -v last="$last" -v mode="$mode" '
  function asked(what, got, least) {
    printf("%-44s %8.3f (>= %.3f)%s\n", what, got, least, got >= least ? "" : " SHORT")
    if (got < least) short = 1
  }
  NF == 5 {
    ours = $2 / $4 / $1 * first; theirs = $3 / $5 / $1 * first; ratio = $2 / $3; n = $1
    printf "%-6d %12d %12d %8.2f %13.1f%% %13.1f%%\n", $1, $2, $3, ratio, 100 * ours, 100 * theirs
  }
  END {
    if (n != last || last == first) { print "not measured on all GPUs: SHORT"; exit 1 }
    asked("flare on " n " over " n " times one", ours, 0.95)
    asked("the same, beside what PyTorch scales", ours, theirs)
    if (mode == "eager") asked("flare over PyTorch", ratio, 1.1)
    exit short
  }' "$w/table" || bad=1
for n in $counts; do
  [ -e "$w/flare.$n.low1" ] && for k in 1 2; do
    echo "$n $COMPRESS $(median "$w/flare.$n.low$k") $(median "$w/flare.$n") $(median "$w/flare.$first")"
  done
done | awk -v first="$first" 'NF == 5 {
  printf "%d GPUs, gradients in %s: %d tokens/s, %.3f of whole ones, scales %.1f%%\n", $1, $2, $3, $3 / $4, 100 * $3 / $5 / $1 * first
}'
for f in "$w"/flare.*; do grep -h 'loss\|peak' "$f" | sed "s/^/${f##*/}: /" | sed -n '1p;$p'; done
grep -h 'loss\|peak' "$w/torch.$last" | sed 's/^/PyTorch: /' | sed -n '1p;$p'
rm -rf "$w"
[ $bad = 0 ] && echo PASS || { echo FAIL; exit 1; }
