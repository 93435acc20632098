#!/bin/bash
# GPT-2 (124M, batches of 16, bf16) with the libraries that are there, with the driver and the pack
# or cache alone (NVRTC hidden), and without cuBLASLt and cuDNN, too: tokens a second and loss.
. spec/gpu/lib.sh
train() { # NAME [VARIABLE=VALUE ...]
  local name=$1
  shift
  env "$@" "$flare" examples/gpt2.lua --batch 16 --steps 60 --seed 1 >"$out/$name.log" 2>&1
  grep -E '^step (10|30|60)|flare|error' "$out/$name.log" | sed "s/^/$name: /"
}
rate() { sed -nE 's/^step (40|50|60): .*, ([0-9]+) tokens.s$/\2/p' "$out/$1.log" | sort -n | tail -n 1; }
loss() { sed -nE 's/^step 60: loss ([0-9.]+),.*/\1/p' "$out/$1.log"; }
train all
train own FLARE_CUDA_HIDE=libcublasLt,libcudnn # leaves its kernels in the cache, too
train no_compiler FLARE_CUDA_HIDE=libnvrtc
train driver_alone FLARE_CUDA_HIDE=libnvrtc,libcublasLt,libcudnn
check "tokens a second without NVRTC" "$(ratio "$(rate no_compiler)" "$(rate all)")" '>=' 0.97
check "without cuBLASLt and cuDNN" "$(ratio "$(rate own)" "$(rate all)")" '>=' 0.65
check "with the driver alone" "$(ratio "$(rate driver_alone)" "$(rate all)")" '>=' 0.65
apart() { awk -v a="$(loss "$1")" -v b="$(loss "$2")" 'BEGIN {if (a == "" || b == "") print ""; else {d = a - b; print d < 0 ? -d : d}}'; }
check "loss at step 60 without NVRTC, apart" "$(apart no_compiler all)" '<=' 0.03
check "loss at step 60 without cuBLASLt and cuDNN, apart" "$(apart own all)" '<=' 0.03
finish
