#!/bin/bash
# Units of the last place that every special function is off, over all f16 and bf16 inputs and 2^22
# of f32's, against the CPU's rows in f64: the table of bench/results/ulp.md. Needs one GPU; 60 s.
# ULP_DEVICE and ULP_SAMPLE take another device and fewer inputs: `cpu` shows that the script counts
# right.
. "$(dirname "$0")/lib.sh"
timeout "$(left 90)" "$flare" spec/gpu/ulp.lua "${ULP_DEVICE:-cuda}" "${ULP_SAMPLE:-4194304}" |
  tee "$out/ulp.md"
check "units of the last place: the script ends with" "${PIPESTATUS[0]}" == 0
[ -z "$keep" ] || cp "$out/ulp.md" "$keep/ulp.md"
finish
