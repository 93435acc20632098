#!/bin/sh
# Operators with arguments that nobody meant, and spoiled files of every kind, under
# the address and undefined-behaviour sanitizers: ten minutes of seeds that no run
# had before, and what was running when something broke. limit: 30 min
set -eu
cmake --preset asan >/dev/null
cmake --build build-asan --target flare --parallel "$(nproc)" >build-asan/build.log || {
  cat build-asan/build.log
  exit 1
}
export ASAN_OPTIONS=detect_stack_use_after_return=1:strict_string_checks=1
export UBSAN_OPTIONS=print_stacktrace=1

calls=0 files=0 seed=$(date +%s)
end=$((seed + 600))
while [ "$(date +%s)" -lt "$end" ]; do
  seed=$((seed + 1))
  for what in 'operators 20000' 'files 2000'; do
    # shellcheck disable=SC2086 # two words
    timeout -k 5 300 build-asan/flare spec/support/fuzz_run.lua $what "$seed" >build-asan/fuzz.log 2>&1 || {
      status=$?
      tail -n 60 build-asan/fuzz.log
      echo "figure: $what of seed $seed: status $status, see $(pwd)/build-asan/fuzz.log"
      exit 1
    }
  done
  calls=$((calls + 20000)) files=$((files + 2000))
done
echo "figure: $calls calls of operators, $files spoiled files: results or errors, nothing else"
