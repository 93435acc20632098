"""The work of bench/gemm.lua in PyTorch: the same rows, GFLOP/s.

    taskset -c 0 python gemm.py 1        python gemm.py 2
"""

import sys
import time

import torch

torch.set_num_threads(int(sys.argv[1]) if len(sys.argv) > 1 else 1)
torch.set_grad_enabled(False)


def best(f, flop):
    calls = max(1, int(2e-4 / (flop / 1e11 + 1e-7)))
    fastest, total = float("inf"), 0.0
    f()
    for _ in range(200):
        start = time.perf_counter()
        for _ in range(calls):
            f()
        took = time.perf_counter() - start
        fastest, total = min(fastest, took / calls), total + took
        if total > 0.3:
            break
    return fastest


def row(name, flop, f):
    print(f"{name:<28} {flop / best(f, flop) / 1e9:8.1f}", flush=True)


for n in [16, 32, 48, 64, 96, 128, 192, 256, 384, 512, 1024, 2048]:
    a, b = torch.randn(n, n), torch.randn(n, n)
    flop = 2.0 * n**3
    row(f"nn {n}", flop, lambda: torch.mm(a, b))
    row(f"nt {n}", flop, lambda: torch.mm(a, b.t()))
    row(f"tn {n}", flop, lambda: torch.mm(a.t(), b))

for tokens, outputs, inputs in [(768, 128, 128), (768, 384, 128), (768, 512, 128),
                                (768, 128, 512), (768, 65, 128), (128, 256, 784)]:
    x, w = torch.randn(tokens, inputs), torch.randn(outputs, inputs)
    dy = torch.randn(tokens, outputs)
    flop = 2.0 * tokens * outputs * inputs
    name = f"{tokens}x{outputs}x{inputs}"
    row(f"forward {name}", flop, lambda: torch.mm(x, w.t()))
    row(f"dx {name}", flop, lambda: torch.mm(dy, w))
    row(f"dw {name}", flop, lambda: torch.mm(dy.t(), x))
