#!/bin/bash
# One set of `flare bench gpu` beside PyTorch eager: the table, PASS if every aim is reached (where
# a set has none, if every row is at least as fast as PyTorch). The set is an argument, or the rest
# of the name that this is run by: speed_targets.sh and so on are links. Needs one GPU, and PyTorch
# as python3; each set takes less than 90 s.
name=$(basename "$0" .sh)
set=${1:-${name#speed_}}
# the least of two where the GPU's clock under load is most of what differs
case $set in targets | products | rows) rounds=2 ;; *) rounds=1 ;; esac
table=$("${FLARE_PROGRAM:-build/flare}" bench gpu --rounds $rounds "$set")
status=$?
printf '%s\n' "$table"
if [ $status != 0 ]; then echo FAIL; exit 1; fi
case $table in *aims\ are\ reached*) miss=' ! |' ;; *) miss='\*\*' ;; esac
if grep -q -- "$miss" <<<"$table"; then echo "FAIL: $(grep -c -- "$miss" <<<"$table") rows"; exit 1; fi
echo PASS
