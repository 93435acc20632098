#!/bin/bash
# Every row under compute-sanitizer's memcheck: spec/gpu/sanitize.sh. Needs 16 cores.
exec bash spec/gpu/sanitize.sh memcheck
