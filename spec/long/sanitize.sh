#!/bin/sh
# All tests with the address and undefined-behaviour sanitizers; the thread pool,
# the simulated device and the loader with the thread sanitizer. limit: 90 min
set -eu

build() {
  cmake --preset "$1" >/dev/null
  cmake --build "build-$1" --parallel "$(nproc)" >/dev/null
}

# $1: sanitizer, the rest: which tests
run() {
  sanitizer=$1
  shift
  status=0
  lua5.4 spec/run.lua --build "build-$sanitizer" --limit 1800 "$@" || status=$?
  echo "figure: $sanitizer: $(grep -c '^success' build-"$sanitizer"/spec-results/*.tests |
    awk -F: '{n += $2} END {print n}') specs passed, status $status"
  [ "$status" = 0 ]
}

export ASAN_OPTIONS=detect_stack_use_after_return=1:strict_string_checks=1
export UBSAN_OPTIONS=print_stacktrace=1
export TSAN_OPTIONS=halt_on_error=1:second_deadlock_stack=1
build asan
# but for those that measure memory, sources or what is installed, or that kill
run asan --without memory --without kill --without install --without layering \
  --without size --without luacheck
build tsan
run tsan ctest loader sim
