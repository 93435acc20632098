#!/bin/sh
# Ten million calls of operators with random arguments, of the library's other
# functions and methods, and spoiled files of every kind, under the address and
# undefined-behaviour sanitizers, from seeds that no run had before. limit: 60 min
#   FUZZ_PROGRAM  flare with the sanitizers; left out: it is built
#   FUZZ_JOBS     processes side by side; FUZZ_CALLS: how many calls in all
#   FUZZ_SECONDS  after which no more seeds are begun; the counts are printed at the end
#                 before that as well
set -eu
program=${FUZZ_PROGRAM:-build-asan/flare} jobs=${FUZZ_JOBS:-$(nproc)}
calls=${FUZZ_CALLS:-10000000} seconds=${FUZZ_SECONDS:-3000}
if [ -z "${FUZZ_PROGRAM:-}" ]; then
  cmake --preset asan >/dev/null
  cmake --build build-asan --target flare --parallel "$(nproc)" >build-asan/build.log || {
    cat build-asan/build.log
    exit 1
  }
fi
# what is freed stays away for the next 64 MB, not 256: half the page faults
export ASAN_OPTIONS=detect_stack_use_after_return=1:strict_string_checks=1:hard_rss_limit_mb=4096
ASAN_OPTIONS=$ASAN_OPTIONS:quarantine_size_mb=64
export UBSAN_OPTIONS=print_stacktrace=1

room=$(mktemp -d)
begun=$(date +%s)
first=$((begun * 100000)) # no run has seeds of another one
end=$((begun + seconds)) share=$(((calls + jobs - 1) / jobs))

# Two cores for a process, and so two threads: of as many as there are cores most would wait, in
# every process.
allowed=$(taskset -cp $$ | sed 's/.*: //' | tr , '\n' |
  awk -F - '{for (i = $1; i <= ($2 == "" ? $1 : $2); i++) print i}')
pair() { # $1: a worker's number
  echo "$allowed" | awk -v k="$1" -v jobs="$jobs" '{core[NR - 1] = $1}
    END {first = int(k * NR / jobs); print core[first % NR] "," core[(first + 1) % NR]}'
}

run() {
  timeout --foreground -k 5 120 taskset -c "$cores" "$program" spec/support/fuzz_run.lua "$@"
}

# $1: operators, library or files, $2: how many, $3: a seed, $4: whose log. A seed that broke something
# is run again aloud, so that the log says what was running. The search for leaks may lose a thread
# that ends meanwhile: that is no finding if it gets through the second time.
try() {
  run "$1" "$2" "$3" quiet >"$room/log.$4" 2>&1 && return
  status=$? again=0
  run "$1" "$2" "$3" >"$room/aloud.$4" 2>&1 || again=$?
  if [ "$again" = 0 ] && grep -qa 'LeakSanitizer has encountered a fatal error' "$room/log.$4"; then
    return
  fi
  {
    echo "finding: $1 $2 of seed $3: status $status"
    grep -an 'Sanitizer\|runtime error' "$room/log.$4" "$room/aloud.$4" | head -n 4
    tail -n 60 "$room/aloud.$4"
  } >>"$room/findings"
  return 1
}

worker() { # $1: its number
  seed=$((first + $1)) cores=$(pair "$1") done=0 library=0 files=0
  while [ "$(date +%s)" -lt "$end" ] && [ "$done" -lt "$share" ]; do
    if try operators 25000 "$seed" "$1"; then done=$((done + 25000)); fi
    if try library 5000 "$seed" "$1"; then library=$((library + 5000)); fi
    if try files 500 "$seed" "$1"; then files=$((files + 500)); fi
    seed=$((seed + jobs))
    echo "$done $library $files" >"$room/done.$1"
  done
}

summary() {
  cat "$room/findings"
  found=$(grep -ac '^finding:' "$room/findings") || true
  echo "figure: $(cat /dev/null "$room"/done.* | awk '{c += $1; l += $2; f += $3}
    END {print c+0 " calls of operators, " l+0 " of the library, " f+0 " spoiled files"}')," \
    "seeds from $first, in $(($(date +%s) - begun)) s: $found findings"
}
trap 'summary; exit 1' TERM

touch "$room/findings"
k=0
while [ "$k" -lt "$jobs" ]; do
  worker "$k" &
  k=$((k + 1))
done
wait
summary
rm -rf "$room"
[ "$found" = 0 ]
