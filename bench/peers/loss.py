# bench/loss.lua in PyTorch, at once and by torch.compile: milliseconds of a step, and the most
# memory beside inputs and gradients. `python bench/peers/loss.py [--device cuda] [--rows 16384]`.
import argparse
import time

import torch

parser = argparse.ArgumentParser()
cuda = torch.cuda.is_available()
parser.add_argument("--device", default="cuda" if cuda else "cpu")
parser.add_argument("--dtype", default=None)
parser.add_argument("--rows", type=int, default=16384)
parser.add_argument("--inputs", type=int, default=768)
parser.add_argument("--classes", type=int, default=50304)
parser.add_argument("--times", type=int, default=20)
o = parser.parse_args()
cuda = o.device.startswith("cuda")
types = {"bf16": torch.bfloat16, "f16": torch.float16, "f32": torch.float32}
dtype = types[o.dtype or ("bf16" if cuda else "f32")]
if not cuda:
    torch.set_num_threads(2)
torch.manual_seed(1)
made = dict(device=o.device, dtype=dtype)
x = torch.randn(o.rows, o.inputs, **made).requires_grad_()
w = (torch.randn(o.classes, o.inputs, **made) * 0.02).detach().requires_grad_()
target = torch.arange(1, o.rows + 1, device=o.device) * 7919 % o.classes
gradients = sum(t.numel() * t.element_size() for t in (x, w))


def loss_of(a, b, t):
    return torch.nn.functional.cross_entropy(torch.nn.functional.linear(a, b), t)


def sync():
    if cuda:
        torch.cuda.synchronize()


def measure(name, f):
    def step():
        x.grad = w.grad = None
        loss = f(x, w, target)
        loss.backward()
        return loss

    for _ in range(10 if cuda else 2):
        step()
    x.grad = w.grad = None
    peak = float("nan")
    if cuda:
        torch.cuda.reset_peak_memory_stats()
        before = torch.cuda.memory_allocated()
    step()
    sync()
    if cuda:
        peak = (torch.cuda.max_memory_allocated() - before - gradients) / 2**20
    times = []
    for _ in range(7 if cuda else 3):
        n = o.times if cuda else 1
        start = time.perf_counter()
        for _ in range(n):
            loss = step()
        sync()
        times.append((time.perf_counter() - start) / n)
    seconds = sorted(times)[len(times) // 2]
    flops = 6 * o.rows * o.inputs * o.classes
    print(f"{name:22s} {seconds * 1e3:10.3f} ms {flops / seconds * 1e-12:8.1f} TFLOP/s {peak:10.1f} MiB"
          f"   loss {loss.item():.5f}", flush=True)


print(f"{o.rows} x {o.inputs} x {o.classes} {dtype} on {o.device}, PyTorch {torch.__version__}")
measure("PyTorch", loss_of)
measure("PyTorch compiled", torch.compile(loss_of))
