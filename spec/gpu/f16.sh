#!/bin/bash
# examples/char_gpt.lua (its small setting, 2000 steps) with products in f32, bf16 and, with loss
# scaling, f16, on the same five seeds: all at once, so the times say nothing.
# FLARE_DATA: a folder with tinyshakespeare.txt.
. spec/gpu/lib.sh
text=${FLARE_DATA:?a folder with tinyshakespeare.txt}/tinyshakespeare.txt
steps=${STEPS:-2000}
folder=$(mktemp -d)
for seed in 1 2 3 4 5; do
  for type in none bf16 f16; do
    "$flare" examples/char_gpt.lua --data "$text" --steps "$steps" --seed $seed --autocast $type \
      --device "${DEVICE:-cuda}" --quiet --out "$folder/$type$seed" >"$out/$type$seed.log" 2>&1 &
  done
done
wait
rm -rf "$folder"
figures() { # TYPE: the mean of the seeds and its standard error
  sed -n 's/^val_loss //p' "$out/$1"?.log |
    awk '{n++; s += $1; q += $1 * $1} END {m = s / n; if (n > 1) printf "%.4f %.4f %d", m, sqrt((q / n - m * m) / (n - 1)), n}'
}
for type in none bf16 f16; do
  echo "$type: $(sed -n 's/^val_loss //p' "$out/$type"?.log | tr '\n' ' ') mean, error, seeds: $(figures $type)"
done
read -r low low_error n <<<"$(figures bf16)"
read -r half half_error m <<<"$(figures f16)"
check "runs that ended" $((${n:-0} + ${m:-0})) '==' 10
check "f16's mean beside bf16's $low, two standard errors apart" "$half" '<=' \
  "$(awk -v a="$low" -v x="$low_error" -v y="$half_error" 'BEGIN {print a + 2 * sqrt(x * x + y * y)}')"
finish
