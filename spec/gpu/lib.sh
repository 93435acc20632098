# For the scripts of this folder, each of which shows one thing on a GPU within 95 seconds, run from
# the repository's root: `bash spec/gpu/NAME.sh`. It prints figures and ends with PASS or FAIL.
# FLARE_PROGRAM: the program (build/flare); PYTHON: one with PyTorch for CUDA (python3); OUT: a
# folder for logs worth keeping.
flare=${FLARE_PROGRAM:-build/flare}
python=${PYTHON:-python3}
out=build/gpu/$(basename "$0" .sh)
keep=${OUT:+$OUT/logs}
export FLARE_PROGRAM=$flare
mkdir -p "$out" ${keep:+"$keep"}
failed=0
started=$(date +%s)
case $0 in *lib.sh) echo "this is not to be run by itself"; exit 2;; esac

left() { # seconds: what is left of so many since the start, at least 1
  local n=$(($1 - $(date +%s) + started))
  echo $((n < 1 ? 1 : n))
}

# check WHAT VALUE OP LIMIT: a line of a figure, with what it has to be
check() {
  if awk -v a="$2" -v b="$4" "BEGIN {exit !(a != \"\" && a + 0 $3 b + 0)}"; then
    printf '%-56s %s (%s %s)\n' "$1" "${2:-nothing}" "$3" "$4"
  else
    printf '%-56s %s (%s %s) FAILED\n' "$1" "${2:-nothing}" "$3" "$4"
    failed=$((failed + 1))
  fi
}

# expect WHAT COMMAND...: the command has to end with 0
expect() {
  local what=$1
  shift
  if "$@" >"$out/last.log" 2>&1; then
    printf '%-56s yes\n' "$what"
  else
    printf '%-56s FAILED\n' "$what"
    tail -n 5 "$out/last.log" | cut -c1-400
    failed=$((failed + 1))
  fi
}

ratio() { awk -v a="$1" -v b="$2" 'BEGIN {if (a == "" || b + 0 == 0) print ""; else printf "%.3f", a / b}'; }

finish() {
  if [ $failed = 0 ]; then
    echo PASS
  else
    echo "FAIL: $failed"
    exit 1
  fi
}
