#!/bin/bash
# The kernels of rows that are near PyTorch's times, or above them: Nsight Compute's
# counters of flare's and of PyTorch's, for bench/results/profiles. Needs ncu, and a C compiler; 60 s.
. spec/gpu/lib.sh
library=$out/profiler.so
if command -v "${CC:-cc}" >/dev/null; then
  "${CC:-cc}" -shared -fPIC -o "$library" spec/gpu/ncu_range.c -ldl || exit 1
else
  nvcc -x c -shared -Xcompiler -fPIC -o "$library" spec/gpu/ncu_range.c -ldl || exit 1
fi
stall=smsp__average_warps_issue_stalled
metrics=gpu__time_duration.sum,dram__bytes_read.sum,dram__bytes_write.sum
for part in dram__throughput.avg.pct_of_peak_sustained_elapsed \
  sm__throughput.avg.pct_of_peak_sustained_elapsed \
  smsp__issue_active.avg.pct_of_peak_sustained_active \
  sm__warps_active.avg.pct_of_peak_sustained_active launch__registers_per_thread; do
  metrics=$metrics,$part
done
for reason in long_scoreboard short_scoreboard barrier math_pipe_throttle lg_throttle mio_throttle \
  wait not_selected; do
  metrics=$metrics,${stall}_${reason}_per_issue_active.ratio
done
look() { # NAME COMMAND...
  local name=$1
  shift
  timeout -k 2 "$(left 90)" ncu --clock-control none --profile-from-start off --csv --page raw \
    --metrics "$metrics" --log-file "$out/$name.csv" "$@" >"$out/$name.txt" 2>"$out/$name.err"
  check "$name: what the profiler ends with" $? '==' 0
  [ -s "$out/$name.err" ] && tail -n 5 "$out/$name.err"
  check "$name: works" "$(wc -l <"$out/$name.txt")" '==' 11
  "$flare" spec/gpu/ncu.lua table "$out/$name.csv" "$out/$name.txt"
  [ -z "$keep" ] || cp "$out/$name.csv" "$keep/"
}
look flare "$flare" spec/gpu/ncu.lua "$PWD/$library"
look torch "$python" spec/gpu/ncu.py
finish
