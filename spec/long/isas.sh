#!/bin/sh
# One build with the kernels of all instruction sets: the specs that compute, and
# the C programs, with each set that this machine runs but its own, which
# ./bootstrap test has. With qemu-user, what the program does on older CPUs, and
# what one built for this machine says there. limit: 90 min
set -eu
cmake --preset release -B build-isas -D FLARE_ISAS='v2;v3;v4;plain' >/dev/null
cmake --build build-isas --parallel "$(nproc)" >build-isas/build.log || {
  cat build-isas/build.log
  exit 1
}

own=$(build/flare doctor | sed -n 's/^kernels  \([a-z0-9]*\).*/\1/p')
failed=0
for isa in v2 v3 v4 plain; do
  [ "$isa" != "$own" ] || continue
  if ! said=$(FLARE_ISA=$isa build-isas/flare doctor 2>&1); then
    case $said in
      *"and this CPU is "* | *"and this flare has kernels for plain"*)
        echo "figure: $isa: not run: $said"
        continue ;;
    esac
    echo "$said"
    exit 1
  fi
  FLARE_ISA=$isa lua5.4 spec/run.lua --build build-isas --limit 1200 ops/ nn/ autograd compile \
    derivatives expr linalg optim quantize statistics tape third_order threads vmap models \
    ctest >"build-isas/$isa.log" || failed=1
  cat "build-isas/$isa.log"
  echo "figure: $isa: $(tail -n 1 "build-isas/$isa.log")"
done

if command -v qemu-x86_64 >/dev/null; then
  for pair in Haswell:v3 Nehalem:v2 core2duo:plain; do
    cpu=${pair%:*} isa=${pair#*:}
    said=$(qemu-x86_64 -cpu "$cpu" build-isas/flare -e 'local flare = require "flare"
      print(flare.ones(64, 64):matmul(flare.ones(64, 64)):exp():log():sum():item())
      io.write(flare.core.backend_query("cpu", "doctor"))' 2>build-isas/qemu.log) ||
      cat build-isas/qemu.log
    case $said in
      262144.0*"kernels  $isa ("*) ;;
      *) failed=1 ;;
    esac
    echo "figure: $cpu, emulated, all built:" $said
    said=$(qemu-x86_64 -cpu "$cpu" build/flare -e 'print "runs"' 2>&1 | grep -v TCG) || failed=1
    case $said in
      runs | "flare: this CPU is "*"and this flare has kernels for v"*) ;;
      *) failed=1 ;;
    esac
    echo "figure: $cpu, emulated, built for this machine: $said"
  done
else
  echo 'figure: no older CPU: qemu-user is not installed'
fi
exit $failed
