# Some functions of bench/compile.lua in PyTorch, eager and by torch.compile, on a GPU:
# microseconds a call, the best of five times thirty.
import time

import torch


def measure(f, *a):
    for _ in range(20):
        f(*a)
    torch.cuda.synchronize()
    best = float("inf")
    for _ in range(5):
        start = time.perf_counter()
        for _ in range(30):
            f(*a)
        torch.cuda.synchronize()
        best = min(best, (time.perf_counter() - start) / 30)
    return best * 1e6


def gelu(x, y):
    return x * 0.5 * (1 + ((x + x * x * x * 0.044715) * 0.7978845608).tanh())


def swiglu(x, y):
    return x * x.sigmoid() * y


def layer_norm(x, y):
    d = x - x.mean(-1, keepdim=True)
    return d / ((d * d).mean(-1, keepdim=True) + 1e-5).sqrt()


def adam(x, y):
    m, v = x * 0.9 + y * 0.1, x * x * 0.99 + y * y * 0.01
    return x - m / (v.sqrt() + 1e-8) * 0.001


for shape in (64, 128), (1024, 1024), (8192, 4096):
    x, y = torch.randn(shape, device="cuda"), torch.randn(shape, device="cuda")
    for f in gelu, swiglu, layer_norm, adam:
        c = torch.compile(f)
        print(f"{f.__name__:10s} {shape} eager {measure(f, x, y):9.2f} us  compiled {measure(c, x, y):9.2f} us")
