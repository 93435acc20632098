#!/bin/bash
# Every row under compute-sanitizer's racecheck, but for those that launch so much that they have a
# script of their own (racecheck_more.sh): spec/gpu/sanitize.sh. Needs 16 cores.
exec bash spec/gpu/sanitize.sh racecheck --without \
  grid_sample,grid_sample_backward,interpolate,resample,resample_backward
