"""The peer of bench/gpu/products.lua in PyTorch."""
import torch, torch.nn.functional as F
from gpu_measure import normal, show

for dtype, n in (("bf16", 256), ("bf16", 512), ("bf16", 1024), ("bf16", 2048), ("bf16", 4096),
                 ("bf16", 8192), ("f16", 4096), ("f32", 1024), ("f32", 4096), ("f64", 2048)):
    a, b = normal(dtype, n, n), normal(dtype, n, n)
    show(f"product nn {dtype} {n}", lambda: a @ b)
    if n == 4096:
        show(f"product nt {dtype} {n}", lambda: a @ b.t())
        show(f"product tn {dtype} {n}", lambda: a.t() @ b)

for rows, k, n in ((16384, 768, 2304), (16384, 768, 3072), (16384, 3072, 768),
                   (16384, 768, 50304), (16384, 768, 50257), (65536, 768, 768)):
    x, w, b, dy = (normal("bf16", *s) for s in ((rows, k), (n, k), (n,), (rows, n)))
    name = f"linear {rows}x{k}x{n}"
    show(name, lambda: F.linear(x, w, b))
    if n == 3072:
        show(name + " gelu", lambda: F.gelu(F.linear(x, w, b)))
        show(name + " gelu_tanh", lambda: F.gelu(F.linear(x, w, b), approximate="tanh"))
    show(name + " dx", lambda: dy @ w)
    show(name + " dw", lambda: dy.t() @ x)

q = normal("bf16", 192, 1024, 64)
show("batch 192x1024x64x1024", lambda: q @ q.transpose(1, 2))
