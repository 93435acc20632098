#!/bin/bash
# Every row under compute-sanitizer's initcheck: spec/gpu/sanitize.sh. Needs all cores.
exec bash spec/gpu/sanitize.sh initcheck
