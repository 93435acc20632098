#!/bin/sh
# Ten minutes of libFuzzer for each parser of files, from spec/corpus, with the address and
# undefined-behaviour sanitizers. limit: 120 min
#   PARSERS_PROGRAM  the target; left out: it is built. PARSERS_SECONDS: for each
#   PARSERS_JOBS     parsers side by side; PARSERS_KEEP: where what was new is left
set -eu
program=${PARSERS_PROGRAM:-build-fuzz/fuzz_parsers} seconds=${PARSERS_SECONDS:-600}
jobs=${PARSERS_JOBS:-1} keep=${PARSERS_KEEP:-$(mktemp -d)}
if [ -z "${PARSERS_PROGRAM:-}" ]; then
  cmake --preset fuzz >/dev/null
  nice -n 19 cmake --build build-fuzz --target fuzz_parsers >build-fuzz/build.log || {
    cat build-fuzz/build.log
    exit 1
  }
fi
mkdir -p "$keep"
export program seconds keep
one='name=$1
mkdir -p "$keep/$name"
FUZZ_PARSER=$name nice -n 19 "$program" -max_total_time="$seconds" -timeout=120 -rss_limit_mb=3000 \
  -max_len=8192 -print_final_stats=1 -artifact_prefix="$keep/$name-" "$keep/$name" \
  "spec/corpus/$name" >"$keep/$name.log" 2>&1 && found=0 || found=1
[ "$found" = 0 ] || { grep -a "finding:\|ERROR\|runtime error" "$keep/$name.log"; tail -n 40 "$keep/$name.log"; }
echo "figure: $name: $(sed -n "s/.*executed_units: *//p" "$keep/$name.log") inputs, $found findings"'
for name in npy npz safetensors idx onnx onnx_tensor checkpoint text json; do
  echo "$name"
done | xargs -P "$jobs" -I@ sh -c "$one" one @ | tee "$keep/all.log"
! grep -q '[1-9] findings' "$keep/all.log"
