#!/bin/bash
# examples/char_gpt.lua in nanoGPT's GPU setting (6 layers, 6 heads, 384 wide, block 256, batch 64,
# dropout 0.2): milliseconds a step beside PyTorch eager and compiled with the same recipe, in turns.
# FLARE_DATA: a folder with tinyshakespeare.txt.
. spec/gpu/lib.sh
text=${FLARE_DATA:?a folder with tinyshakespeare.txt}/tinyshakespeare.txt
ours() {
  "$flare" bench/char_gpt_time.lua "$text" 501 --device cuda --layers 6 --heads 6 --width 384 \
    --block 256 --batch 64 --dropout 0.2 2>&1 | tee "$out/flare.log" | sed -n 's/^step_ms //p'
}
peer() { # cuda|compiled
  "$python" bench/peers/char_gpt.py "$text" 8 301 1 "$1" 2>&1 | tee "$out/$1.log" | sed -n 's/^step_ms //p'
}
a=$(ours) b=$(peer cuda) c=$(ours) d=$(peer cuda) e=$(peer compiled)
echo "ms a step: flare $a and $c, PyTorch eager $b and $d, compiled $e"
least() { printf '%s\n' "$@" | sort -n | head -n 1; }
check "ms a step beside eager's $(least "$b" "$d")" "$(least "$a" "$c")" '<=' "$(least "$b" "$d")"
echo "beside compiled: $(ratio "${e:-0}" "$(least "$a" "$c")")"
finish
