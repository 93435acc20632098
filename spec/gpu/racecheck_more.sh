#!/bin/bash
# The rows that racecheck.sh leaves out, a sample at a time: spec/gpu/sanitize.sh. Needs 16 cores.
exec bash spec/gpu/sanitize.sh racecheck --rows \
  grid_sample,grid_sample_backward,interpolate,resample,resample_backward
