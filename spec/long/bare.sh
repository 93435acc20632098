#!/bin/sh
# A build without the libraries that flare can do without, with kernels for no
# instruction set in particular: all specs; those that need such a library are
# skipped, by name. limit: 30 min
set -eu
cmake --preset bare -D FLARE_ISAS=plain >/dev/null
cmake --build --preset bare >build-bare/build.log || {
  cat build-bare/build.log
  exit 1
}
status=0
lua5.4 spec/run.lua --build build-bare --limit 1200 --without cuda_kernels_spec \
  >build-bare/run.log || status=$?
cat build-bare/run.log
echo "figure: $(tail -n 1 build-bare/run.log)"
exit $status
