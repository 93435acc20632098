# Times of collectives on all GPUs of this host, by algorithm and size, beside PyTorch's NCCL in the
# same run: us per call back to back, and the bus bandwidth of all_reduce. Bytes are those of the
# largest tensor. 2, 4 or 8 H200s. Limit: 95 s.
# dist_times.sh [RANKS] [auto,nccl,...]
n=${1:-$(nvidia-smi -L | grep -c '^GPU')}
ways=${2:-nccl,auto,one_shot,two_shot,ring}
w=$(mktemp -d)
bad=0
export NCCL_NVLS_ENABLE=0
ours() {
  [ "$1" = nccl ] && export FLARE_PEERS=0 || unset FLARE_PEERS
  timeout -k 2 40 flare launch -n "$n" --timeout 20 --logs "$w/logs" spec/gpu/dist/times.lua "$1" \
    >>"$w/ours" 2>"$w/err" || { echo "FAIL times of $1: status $?"; tail -n 20 "$w/err"; bad=1; }
}
timeout -k 2 40 python3 bench/peers/dist_times.py "$n" >"$w/torch" 2>"$w/err" ||
  { echo "FAIL PyTorch"; tail -n 5 "$w/err"; bad=1; }
for way in ${ways//,/ }; do ours "$way"; done
grep 'not here' "$w/ours"
table() { # collective, columns
  cat "$w/torch" "$w/ours" | awk -v n="$n" -v name="$1" -v ways="torch,$2" '
    $2 == name { t[$3, $4] = $5; sizes[$4] = 1 }
    END {
      k = split(ways, way, ",")
      printf "%d GPUs, us, %-15s", n, name
      for (i = 1; i <= k; i++) printf " %10s", way[i]
      printf "  torch / auto%s\n", name == "all_reduce" ? "   GB/s of the bus: torch, auto" : ""
      for (b = 8; b <= 2 ^ 30; b *= 2) if (b in sizes) {
        printf "%11d B%14s", b, ""
        for (i = 1; i <= k; i++) printf " %10s", (way[i], b) in t ? t[way[i], b] : "-"
        if (t["torch", b] && t["auto", b]) {
          printf "  %12.2f", t["torch", b] / t["auto", b]
          bus = 2 * (n - 1) / n * b / 1e3
          if (name == "all_reduce")
            printf "   %.1f %.1f", bus / t["torch", b], bus / t["auto", b]
        }
        printf "\n"
      }
    }'
}
table all_reduce "$ways"
for name in all_gather reduce_scatter broadcast; do table $name nccl,auto; done
rm -rf "$w"
[ $bad = 0 ] && echo PASS || { echo FAIL; exit 1; }
