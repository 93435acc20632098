#!/bin/sh
# Ten minutes of a processor for each parser of files, from spec/corpus, with the address and
# undefined-behaviour sanitizers. Arguments are the parsers to run, all without. limit: 300 min
#   PARSERS_PROGRAM  the target; left out: it is built
#   PARSERS_SECONDS  of a processor, for each process
#   PARSERS_EACH     processes for a parser, one after the other or, as many as PARSERS_JOBS
#                    in all, side by side
#   PARSERS_KEEP     a folder for what was found, the logs, and in new/ the fewest small inputs
#                    that reach what spec/corpus does not
set -eu
program=${PARSERS_PROGRAM:-build-fuzz/fuzz_parsers} seconds=${PARSERS_SECONDS:-600}
each=${PARSERS_EACH:-1} jobs=${PARSERS_JOBS:-1} keep=${PARSERS_KEEP:-$(mktemp -d)}
if [ -z "${PARSERS_PROGRAM:-}" ]; then
  cmake --preset fuzz >/dev/null
  nice -n 19 cmake --build build-fuzz --target fuzz_parsers >build-fuzz/build.log || {
    cat build-fuzz/build.log
    exit 1
  }
fi
all='npy npz safetensors pt mapped_pt gguf t7 idx png jpeg wav onnx onnx_tensor checkpoint text json'
parsers=${*:-$all}
for name in $parsers; do mkdir -p "$keep/$name" "$keep/new/$name"; done
export program seconds keep

# libFuzzer looks for leaks where a run allocates more than it frees, which with a garbage collector
# is after every run: the target looks for them itself, after collections.
# $1: parser, $2: which of its processes. Its log ends with the time it took of a processor.
run='log=$keep/$1.$2.log
FUZZ_PARSER=$1 FUZZ_SECONDS=$seconds nice -n 19 "$program" -detect_leaks=0 -timeout=120 -rss_limit_mb=3000 \
  -max_len=8192 -reload=1 -print_final_stats=1 -artifact_prefix="$keep/$1-" "$keep/$1" \
  "spec/corpus/$1" >"$log" 2>&1 || {
  echo "finding: $1: status $?" >>"$log"
  grep -a "^finding:\|ERROR\|runtime error" "$log"
  tail -n 40 "$log"
}
times >"$log.times" # in a pipe it would be of another shell
tail -n 1 "$log.times" | tr -d s |
  awk -F "[m ]" "{print \"processor:\", (\$1 + \$3) * 60 + \$2 + \$4}" >>"$log"
rm "$log.times"'
for name in $parsers; do
  for k in $(seq "$each"); do echo "$name $k"; done
done | xargs -P "$jobs" -L 1 sh -c "$run" run

# $1: parser. What all its processes reached beyond the corpus, with few inputs.
merge='new=$keep/new/$1
cp "spec/corpus/$1"/* "$new"
FUZZ_PARSER=$1 "$program" -merge=1 -rss_limit_mb=3000 "$new" "$keep/$1" >"$keep/$1.merge.log" 2>&1 ||
  echo "finding: $1: merging: status $?" | tee -a "$keep/$1.1.log"
for old in "spec/corpus/$1"/*; do rm "$new/${old##*/}"; done'
for name in $parsers; do echo "$name"; done | xargs -P "$jobs" -L 1 sh -c "$merge" merge

found=0
for name in $parsers; do
  cat "$keep/$name".[0-9]*.log | awk -v name="$name" '
    /stat::number_of_executed_units/ {units += $2}
    /^processor:/ {time += $2}
    /^finding: .*status/ {found++}
    /INITED/ {for (i = 1; i < NF; i++) if ($i == "cov:") before = $(i + 1)}
    / cov: / {for (i = 1; i < NF; i++) {if ($i == "cov:" && $(i + 1) > cov) cov = $(i + 1)
                                        if ($i == "ft:" && $(i + 1) > ft) ft = $(i + 1)}}
    END {
      printf "%s: %d inputs in %.1f minutes of a processor, ", name, units, time / 60
      printf "blocks %d (at first %d), features %d, %d findings\n", cov, before, ft, found
    }' >"$keep/figure"
  echo "figure: $(cat "$keep/figure"), $(ls "$keep/new/$name" | wc -l) new inputs"
  if ! grep -q ' 0 findings' "$keep/figure" || grep -q ': 0 inputs' "$keep/figure"; then
    found=1
  fi
done
[ "$found" = 0 ]
