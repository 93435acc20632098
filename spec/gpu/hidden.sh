#!/bin/bash
# GPT-2 (124M, batches of 16, bf16) with the libraries that are there, with the driver and the pack
# or cache alone (NVRTC hidden), and without cuBLASLt and cuDNN, too: tokens a second and loss. How
# far apart rounding alone brings the losses is measured: the first again, which may choose other
# ways to do its products, and three times with a learning rate that is 2e-7 or 1e-5 of it away, all
# at once, since their times say nothing. ~60 s.
. spec/gpu/lib.sh
train() { # NAME RATE [VARIABLE=VALUE ...]
  local name=$1 rate=$2
  shift 2
  env "$@" timeout "$(left 90)" "$flare" examples/gpt2.lua --batch 16 --steps 60 --seed 1 --lr "$rate" \
    >"$out/$name.log" 2>&1
}
rate() { sed -nE 's/^step (40|50|60): .*, ([0-9]+) tokens.s$/\2/p' "$out/$1.log" | sort -n | tail -n 1; }
train all 3e-4
train own 3e-4 FLARE_CUDA_HIDE=libcublasLt,libcudnn # leaves its kernels in the cache, too
train no_compiler 3e-4 FLARE_CUDA_HIDE=libnvrtc
train driver_alone 3e-4 FLARE_CUDA_HIDE=libnvrtc,libcublasLt,libcudnn
train again 3e-4 &
train above 3.0000005e-4 &
train higher 3.00003e-4 &
train below 2.9999995e-4 &
wait
grep -hE 'flare|error' "$out"/*.log
check "tokens a second without NVRTC" "$(ratio "$(rate no_compiler)" "$(rate all)")" '>=' 0.97
check "without cuBLASLt and cuDNN" "$(ratio "$(rate own)" "$(rate all)")" '>=' 0.65
check "with the driver alone" "$(ratio "$(rate driver_alone)" "$(rate all)")" '>=' 0.65
lua5.4 spec/gpu/curves.lua "$out" all again,above,higher,below no_compiler own driver_alone ||
  failed=$((failed + 1))
finish
