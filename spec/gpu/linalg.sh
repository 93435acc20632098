#!/bin/bash
# Linear algebra and Fourier transforms by cuSOLVER, cuBLAS and cuFFT: their specs on cuda:0. Needs
# one GPU and these libraries; 60 s. Their times beside PyTorch are speed_linalg.sh's.
. "$(dirname "$0")/lib.sh"
expect "cuSOLVER and cuFFT are found" bash -c "! $flare doctor | grep -E '^(cublas|cusolver|cufft) .*no:'"
"$flare" doctor | grep -E '^(cublas|cusolver|cufft)'
FLARE_SPEC_DEVICES=cuda:0 timeout "$(left 80)" lua5.4 spec/run.lua --jobs 2 ops/linalg ops/fft \
  >"$out/specs.log" 2>&1
check "the specs end with" "$?" == 0
grep -E "FAIL|^not|passed|off by|cuda:0" "$out/specs.log" | cut -c1-240 | head -60
[ -z "$keep" ] || cp "$out/specs.log" "$keep/linalg_specs.log"
finish
