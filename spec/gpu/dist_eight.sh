# Collectives of eight ranks on the GPUs that there are, one or more, which the ranks share: all that
# the kernels over peer memory do, in groups of 8, 3, 5, 6 and 7 ranks, against references; then a
# killed rank named. It shows what is right, not how fast: where ranks share a GPU, those that wait
# have it as long as those that work. No MPS. Limit: 60 s. Needs flare on the path.
here=spec/gpu/dist
w=$(mktemp -d)
bad=0
export FLARE_PEERS=only
launch() { flare launch -n 8 --timeout 30 --logs "$w/logs" "$@"; }
export -f launch
export w

start=$(date +%s)
timeout -k 2 45 bash -c "launch $here/eight.lua" >"$w/out" 2>&1
status=$?
if [ $status = 0 ] && grep -q '^right: ' "$w/out"; then
  cat "$w/out"
  echo "PASS collectives, 8 ranks ($(($(date +%s) - start)) s)"
else
  echo "FAIL collectives, 8 ranks: status $status ($(($(date +%s) - start)) s)"
  tail -n 60 "$w/out"
  bad=1
fi

timeout -k 2 13 bash -c "launch $here/endless.lua '1 60'" >"$w/out" 2>&1
status=$?
verdict=$(grep -m 1 -o 'rank 1 (pid [0-9]*) died: signal 9.*' "$w/out")
told=$(grep -l 'rank 1 (pid [0-9]*) died: signal 9' "$w"/logs/rank-*.log 2>/dev/null | wc -l)
if [ $status = 137 ] && [ -n "$verdict" ] && [ "$told" -ge 7 ]; then
  echo "PASS kill: $verdict"
else
  echo "FAIL kill: status $status, told on $told ranks"
  tail -n 30 "$w/out"
  bad=1
fi
pgrep -f endless.lua && { echo "FAIL ranks are left"; bad=1; }
rm -rf "$w"
[ $bad = 0 ] && echo PASS || { echo FAIL; exit 1; }
