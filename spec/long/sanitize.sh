#!/bin/sh
# All tests with the address and undefined-behaviour sanitizers, kernels of both
# x86-64-v3 and -v4; with the thread sanitizer the thread pool, the simulated
# device, the loader, threads, and kernels that cut their work. limit: 90 min
set -eu

build() { # $1: preset, $2: instruction sets
  cmake --preset "$1" -DFLARE_ISAS="$2" >/dev/null
  cmake --build "build-$1" --parallel "$(nproc)" >"build-$1/build.log" || {
    cat "build-$1/build.log"
    exit 1
  }
}

run() { # $1: sanitizer, $2: a word for the figure, the rest: which tests
  sanitizer=$1 what=$2 status=0
  shift 2
  lua5.4 spec/run.lua --build "build-$sanitizer" --limit 1800 "$@" >"build-$sanitizer/run.log" ||
    status=$?
  cat "build-$sanitizer/run.log"
  echo "figure: $sanitizer, $what: $(tail -n 1 "build-$sanitizer/run.log")"
  [ "$status" = 0 ]
}

export ASAN_OPTIONS=detect_stack_use_after_return=1:strict_string_checks=1
export UBSAN_OPTIONS=print_stacktrace=1
export TSAN_OPTIONS=halt_on_error=1:second_deadlock_stack=1
build asan v3
# but for those that measure memory, sources or what is installed, or that kill
run asan 'all that can be' --without memory --without kill --without install \
  --without layering --without size --without luacheck
if grep -q avx512bw /proc/cpuinfo; then
  build asan v4
  run asan 'operators on AVX-512' ops/ ctest
fi
build tsan v3
run tsan 'C programs, loader, threads, large tensors' ctest loader thread_spec ops/large ops/lines
