#!/bin/bash
# Five schedules of GPT-2 (124M): times from the simulator and peaks from flare.fits, made before the
# run, beside what the GPU takes. PREDICTED: a file of predictions that another machine made by
# `flare spec/gpu/simulated.lua predict`, which takes a minute or two of many cores.
. spec/gpu/lib.sh
predicted=${PREDICTED:-$out/predicted}
[ -n "$PREDICTED" ] || "$flare" spec/gpu/simulated.lua predict >"$predicted" || exit 1
echo "predictions:"
cat "$predicted"
if "$flare" spec/gpu/simulated.lua measure "$predicted" 2>&1; then echo PASS; else echo FAIL; exit 1; fi
