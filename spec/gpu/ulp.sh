#!/bin/bash
# Units of the last place that every special function is off, over all f16 and bf16 inputs and 2^22
# of f32's, against the CPU's rows in f64: the table of bench/results/ulp.md. Needs one GPU; 60 s,
# most of which compiles kernels, so rows are shared out among some processes. ULP_DEVICE and
# ULP_SAMPLE take another device and fewer inputs: `cpu` shows that the script counts right.
. "$(dirname "$0")/lib.sh"
parts=${PARTS:-8}
for k in $(seq "$parts"); do
  timeout "$(left 90)" "$flare" spec/gpu/ulp.lua "${ULP_DEVICE:-cuda}" "${ULP_SAMPLE:-4194304}" \
    "$k/$parts" >"$out/$k.txt" 2>&1 &
  jobs[k]=$!
  tables[k]=$out/$k.table
done
through=0
for k in $(seq "$parts"); do
  wait "${jobs[k]}" && through=$((through + 1))
  grep '^|' "$out/$k.txt" >"${tables[k]}"
done
# in turns, as the rows were dealt; all have the same head
{
  head -n 2 "$out/1.txt"
  paste -d '\n' "${tables[@]}" | awk 'NF && !seen[$0]++'
} | tee "$out/ulp.md"
grep -hvE '^(\||sample|$|PASS)' "$out"/[0-9]*.txt
check "units of the last place: parts that pass" "$through" '==' "$parts"
[ -z "$keep" ] || cp "$out/ulp.md" "$keep/ulp.md"
finish
