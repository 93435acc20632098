#!/bin/sh
# Units of the last place over every float32 there is, of every row of a special function,
# on the instruction sets of this machine: the table of bench/results/ulp.md. limit: 600 min
set -eu
build/spec/ulp all >build/long/ulp.txt || {
  cat build/long/ulp.txt
  exit 1
}
cat build/long/ulp.txt
echo "figure: $(grep -c '^| [a-z]' build/long/ulp.txt) rows over all floats"
