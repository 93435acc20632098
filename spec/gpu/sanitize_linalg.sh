#!/bin/bash
# What surrounds cuSOLVER, cuBLAS and cuFFT under compute-sanitizer: the kernels of linalg.cu and
# fft.cu, whose arguments all are structures called ..._args, while the libraries' own are not looked
# at: bash spec/gpu/sanitize_linalg.sh [memcheck|racecheck|synccheck]. Needs 16 cores: a process each,
# since loading the libraries takes most of the time. (Not initcheck: what the libraries write would
# have no owner.)
export KERNELS=_args HIDE=libcublasLt,libcudnn PARTS=${PARTS:-16}
exec bash spec/gpu/sanitize.sh "${1:-memcheck}" linalg fft
