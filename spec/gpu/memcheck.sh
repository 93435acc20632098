#!/bin/bash
# Every row under compute-sanitizer's memcheck: spec/gpu/sanitize.sh. Needs all cores.
exec bash spec/gpu/sanitize.sh memcheck
