#!/bin/bash
# Every row under compute-sanitizer's synccheck: spec/gpu/sanitize.sh. Needs all cores.
exec bash spec/gpu/sanitize.sh synccheck
