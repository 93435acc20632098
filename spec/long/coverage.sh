#!/bin/sh
# What share of the lines of runtime/, lua/ and kernels/cpu the tests run: at least
# 90 %. limit: 40 min
set -eu
mkdir -p build/long
status=0
./bootstrap coverage --yes >build/long/coverage.out 2>&1 || status=$?
tail -n 60 build/long/coverage.out
sed -n '/^Coverage:/,$p' build/long/coverage.out | sed '1d; s/^ */figure: /'
exit $status
