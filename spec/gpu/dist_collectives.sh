# Collectives of GPUs under flare launch, one rank a GPU (2, 4 or 8
# H200s; their number may be given): every collective, dtype, algorithm, handle, subgroup and mesh
# against references; data parallel and ZeRO 1 to 3 against one process; a killed rank named.
# Limit: 95 s. Needs flare on the path.
n=${1:-$(nvidia-smi -L | grep -c '^GPU')}
here=spec/gpu/dist
w=$(mktemp -d)
bad=0
good() { # what, seconds, command
  local what=$1 limit=$2 start=$(date +%s)
  shift 2
  if timeout -k 2 "$limit" "$@" >"$w/out" 2>&1; then
    grep -v '^right' "$w/out"
    echo "PASS $what: $(tail -n 1 "$w/out") ($(($(date +%s) - start)) s)"
  else
    echo "FAIL $what: status $? ($(($(date +%s) - start)) s)"
    tail -n 60 "$w/out"
    bad=$((bad + 1))
  fi
}
launch() { flare launch -n "$n" --timeout 20 --logs "$w/logs" "$@"; }
export -f launch
export n w

FLARE_PEERS=0 good "collectives, $n ranks, NCCL alone" 30 bash -c "launch $here/collectives.lua"
good "collectives, $n ranks" 50 bash -c "launch $here/collectives.lua"
good "training, $n ranks" 25 bash -c "launch $here/training.lua"

# kills at a call of its own, with the engine's choice and with each algorithm
for way in nccl auto "nccl two groups"; do
  start=$(date +%s%N)
  timeout -k 2 20 bash -c "launch $here/endless.lua '1 700' $way" >"$w/out" 2>&1
  status=$?
  ms=$((($(date +%s%N) - start) / 1000000))
  verdict=$(grep -m 1 -o 'rank 1 (pid [0-9]*) died: signal 9.*' "$w/out")
  told=$(grep -l 'rank 1 (pid [0-9]*) died: signal 9' "$w"/logs/rank-*.log 2>/dev/null | wc -l)
  if [ $status = 137 ] && [ -n "$verdict" ] && [ "$told" -ge $((n - 1)) ]; then
    echo "PASS kill ($way): $ms ms in all: $verdict"
  else
    echo "FAIL kill ($way): status $status, $ms ms, told on $told ranks"
    tail -n 30 "$w/out"
    bad=$((bad + 1))
  fi
done
# out of step, found before it hangs
if FLARE_DIST_CHECK=1 timeout -k 2 20 bash -c "launch $here/astray.lua" >"$w/out" 2>&1; then
  echo "FAIL rank 1 is out of step, and there is no message"
  bad=$((bad + 1))
else
  grep -m 1 -o 'rank 1 called broadcast #2 .*' "$w/out" | sed 's/^/PASS out of step: /' | grep . ||
    { echo "FAIL out of step:"; tail -n 20 "$w/out"; bad=$((bad + 1)); }
fi
pgrep -f endless.lua && { echo "FAIL ranks are left"; bad=$((bad + 1)); }
rm -rf "$w"
[ $bad = 0 ] && echo PASS || { echo "FAIL ($bad)"; exit 1; }
