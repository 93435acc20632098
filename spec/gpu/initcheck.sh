#!/bin/bash
# Every row under compute-sanitizer's initcheck: spec/gpu/sanitize.sh. Needs 16 cores.
exec bash spec/gpu/sanitize.sh initcheck
