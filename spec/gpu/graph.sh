#!/bin/bash
# CUDA graphs: the specs, every row captured and compared with the call, and times of short programs
# at once, compiled, and as graphs.
. spec/gpu/lib.sh
expect "the specs of graphs hold" timeout "$(left 40)" lua5.4 spec/run.lua --jobs 2 cuda_graph
timeout "$(left 70)" "$flare" spec/support/graph_rows.lua cuda values >"$out/rows.txt" 2>&1
tail -n 30 "$out/rows.txt" | cut -c1-300
check "rows that fail" "$(sed -n 's/.* \([0-9]*\) failed$/\1/p' "$out/rows.txt")" '==' 0
check "samples captured" "$(sed -n 's/^\([0-9]*\) captured.*/\1/p' "$out/rows.txt")" '>' 700
timeout "$(left 95)" "$flare" bench/graph.lua | tee "$out/times.txt"
mlp() { awk -F'|' -v k="$1" '/MLP/ {print $k + 0}' "$out/times.txt"; }
check "MLP of 7 launches: graph to at once" "$(ratio "$(mlp 6)" "$(mlp 4)")" '<' 0.8
finish
