"""The peer of spec/gpu/overhead.lua in PyTorch eager: the same lines."""
import time

import torch
import torch.nn as nn
import torch.nn.functional as F

dev = "cuda"
torch.manual_seed(1)


def host(name, n, f):
    times = []
    for r in range(-1, 41):
        start = time.perf_counter()
        f(n)
        t = (time.perf_counter() - start) / n * 1e6
        torch.cuda.synchronize()
        if r > 0:
            times.append(t)
    times.sort()
    print(f"{name}\t{times[0]:.4g}\t{times[len(times) // 2]:.4g}", flush=True)


x, y = torch.rand(16, 16, device=dev), torch.rand(16, 16, device=dev)
w = torch.rand(16, 16, device=dev, requires_grad=True)
v = torch.rand(16, 16, device=dev, requires_grad=True)


def add(n):
    for _ in range(n):
        x + y


def four(n):
    for _ in range(n):
        (w * v + y).relu().sum().backward()
        w.grad = v.grad = None


host("add", 2000, add)
host("four", 200, four)

images, digits = torch.rand(128, 784, device=dev), torch.randint(0, 10, (128,), device=dev)
for name, fused in (("mlp", None), ("mlp_fused", True)):
    mlp = nn.Sequential(nn.Linear(784, 256), nn.ReLU(), nn.Linear(256, 128), nn.ReLU(),
                        nn.Linear(128, 10)).to(dev)
    adam = torch.optim.Adam(mlp.parameters(), 1e-3, fused=fused)

    def steps(n):
        for _ in range(n):
            loss = F.cross_entropy(mlp(images), digits)
            adam.zero_grad(set_to_none=True)
            loss.backward()
            adam.step()
        torch.cuda.synchronize()

    steps(200)
    best = 0.0
    for _ in range(5):
        start = time.perf_counter()
        steps(500)
        best = max(best, 500 / (time.perf_counter() - start))
    print(f"{name}\t{best:.4g}", flush=True)
