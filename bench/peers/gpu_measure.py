"""What the gpu_*.py peers share: the same clock as bench/gpu/measure.lua."""
import sys, time, torch

if not torch.cuda.is_available():
    sys.exit(f"usage: python3 {sys.argv[0]}, on a machine with a CUDA device")

DTYPES = dict(bf16=torch.bfloat16, f16=torch.float16, f32=torch.float32, f64=torch.float64)
normal = lambda dtype, *shape: torch.randn(*shape, device="cuda").to(DTYPES[dtype])
leaf = lambda dtype, *shape: normal(dtype, *shape).requires_grad_()

def once(f):
    start = time.perf_counter(); f(); torch.cuda.synchronize()
    return time.perf_counter() - start

def seconds(f):
    once(f)
    if once(f) >= .2: return sorted(once(f) for _ in range(3))[1]
    for _ in range(5): f()
    torch.cuda.synchronize(); start = time.perf_counter(); f(); torch.cuda.synchronize()
    count = max(3, min(200, int(.05 / (time.perf_counter() - start)))); all = []
    for _ in range(5):
        start = time.perf_counter()
        for _ in range(count): f()
        torch.cuda.synchronize(); all.append((time.perf_counter() - start) / count)
    return sorted(all)[2]

def graded(names, f):
    took = seconds(f)
    for name in [names] if isinstance(names, str) else names:
        print(f"{name}\t{took:.4g}", flush=True)

def show(name, f):
    with torch.no_grad(): graded(name, f)

def backward(name, y, leaves):
    dy = torch.randn_like(y)
    graded(name, lambda: torch.autograd.grad(y, leaves, dy, retain_graph=True))
