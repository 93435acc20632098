#!/bin/bash
# Every row under compute-sanitizer's synccheck: spec/gpu/sanitize.sh. Needs 16 cores.
exec bash spec/gpu/sanitize.sh synccheck
