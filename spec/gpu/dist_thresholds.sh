# Whether what a collective on all GPUs of this host takes by itself is the fastest way: all_reduce by
# every algorithm between 32 KiB and 32 MiB, the others beside NCCL around the sizes at which they go
# over to it. 4 or 8 H200s with nothing beside. PASS: `auto` takes at most 1.1 times the fastest way's
# time at each size. Limit: 60 s. dist_thresholds.sh [RANKS]
n=${1:-$(nvidia-smi -L | grep -c '^GPU')}
w=$(mktemp -d)
bad=0
export NCCL_NVLS_ENABLE=0
sizes=$(for k in 15 16 17 18 19 20 21 22 23 24 25; do echo -n "$((1 << k)),"; done)
for way in nccl one_shot two_shot auto; do
  [ $way = nccl ] && export FLARE_PEERS=0 || unset FLARE_PEERS
  timeout -k 2 25 flare launch -n "$n" --timeout 20 --logs "$w/logs" spec/gpu/dist/times.lua $way "" \
    "$sizes" >>"$w/times" 2>"$w/err" || { echo "FAIL times of $way: status $?"; tail -n 20 "$w/err"; bad=1; }
done
grep 'not here' "$w/times" && bad=1
for name in all_reduce all_gather reduce_scatter broadcast; do
  awk -v n="$n" -v name=$name '
    $2 == name { t[$3, $4] = $5; sizes[$4] = 1; ways[$3] = 1 }
    END {
      k = split("nccl one_shot two_shot auto", way, " ")
      printf "%d GPUs, us, %-15s", n, name
      for (i = 1; i <= k; i++) if (way[i] in ways) printf " %10s", way[i]
      printf "  fastest     auto / fastest\n"
      for (b = 2 ^ 15; b <= 2 ^ 25; b *= 2) if (b in sizes) {
        best = ""
        printf "%11d B%14s", b, ""
        for (i = 1; i <= k; i++) if (way[i] in ways) {
          printf " %10s", (way[i], b) in t ? t[way[i], b] : "-"
          if (i < k && (way[i], b) in t && (best == "" || t[way[i], b] < t[best, b])) best = way[i]
        }
        ratio = ("auto", b) in t ? t["auto", b] / t[best, b] : 99
        slow = ratio > 1.1
        printf "  %-10s %.2f%s\n", best, ratio, slow ? " SHORT" : ""
        if (slow) short = 1
        any = 1
      }
      exit short || !any
    }' "$w/times" || bad=1
done
rm -rf "$w"
[ $bad = 0 ] && echo PASS || { echo FAIL; exit 1; }
