"""Encoding by Hugging Face's tokenizers on one thread, for bench/text.lua: prints seconds.
python text.py FILE.json TEXT REPEATS"""
import os
import sys
import time

os.environ["TOKENIZERS_PARALLELISM"] = "false"
os.environ["RAYON_NUM_THREADS"] = "1"
from tokenizers import Tokenizer  # noqa: E402: after the environment

tokenizer = Tokenizer.from_file(sys.argv[1])
with open(sys.argv[2], encoding="utf-8", newline="") as f:
    lines = f.read().split("\n")
for fast in (False, True):
    encode = tokenizer.encode_batch_fast if fast else tokenizer.encode_batch
    best = 1e9
    for _ in range(int(sys.argv[3])):
        start = time.process_time()
        n = sum(len(e.ids) for e in encode(lines))
        best = min(best, time.process_time() - start)
    print("fast" if fast else "full", best, n)
