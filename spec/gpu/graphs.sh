#!/bin/bash
# Plans of compiled functions as CUDA graphs: the specs, and two programs of short kernels, a step of
# an MLP with Adam and GPT-2 124M decoding one text, at once, compiled without and with graphs, and
# as graphs of flare.cuda.graph, beside PyTorch eager and torch.compile(mode="reduce-overhead").
. spec/gpu/lib.sh
expect "the specs of plans' graphs hold" \
  timeout "$(left 30)" lua5.4 spec/run.lua --jobs 2 compile_graph cuda_graph_compile
timeout "$(left 50)" "$flare" bench/models.lua mlp gpt2_decode --warm 30 \
  --mode eager,launches,compile,graph >"$out/flare.json" 2>"$out/flare.log"
timeout "$(left 93)" "$python" bench/peers/models.py mlp gpt2_decode --warm 30 \
  --mode eager,graphs >"$out/peers.json" 2>"$out/peers.log"
"$flare" bench/models_table.lua "$out/flare.json" "$out/peers.json"
field() { # MODEL MODE KEY: of flare's line
  grep "\"mode\":\"$2\",\"model\":\"$1\"" "$out/flare.json" | sed -n "s/.*\"$3\":\([0-9.e+-]*\).*/\1/p"
}
check "MLP, compiled: steps a second" "$(field mlp compile rate)" '>=' 14000
check "MLP, compiled: windows that a graph ran" "$(field mlp compile replayed)" '>' 1900
check "decoding, compiled: tokens a second" "$(field gpt2_decode compile rate)" '>=' 4000
check "decoding, compiled: windows that a graph ran" "$(field gpt2_decode compile replayed)" '>' 400
for model in mlp gpt2_decode; do
  check "$model: graphs to launches" \
    "$(ratio "$(field $model compile rate)" "$(field $model launches rate)")" '>' 1
done
finish
