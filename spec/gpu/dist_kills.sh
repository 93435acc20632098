# Random kills of a rank on GPUs, at any moment of its life: every survivor ends within 5 seconds with
# the same verdict, and no process is left. 2, 4 or 8 H200s. Limit: 95 s.  dist_kills.sh [KILLS] [SEED]
n=$(nvidia-smi -L | grep -c '^GPU')
timeout -k 2 92 flare spec/long/dist_kills.lua "${1:-20}" "${2:-7}" "$n" cuda && echo PASS ||
  { echo FAIL; exit 1; }
