"""The peer of bench/gpu/index.lua in PyTorch."""
import torch, torch.nn.functional as F
from gpu_measure import leaf, normal, show

on = dict(device="cuda")
for dtype in ("f32", "bf16"):
    parameters = [leaf(dtype, 878, 1000) for _ in range(148)]
    for p in parameters: p.grad = torch.randn_like(p)
    adam = torch.optim.AdamW(parameters, lr=1e-4, fused=True)
    gradients = [p.grad for p in parameters]
    show(f"AdamW 130M {dtype}", lambda: adam.step())
    show(f"global_norm 130M {dtype}", lambda: torch.nn.utils.get_total_norm(gradients))
del parameters, gradients, adam

w, dy = normal("bf16", 50304, 768), normal("bf16", 65536, 768)
at, few = torch.randint(0, 50304, (65536,), **on), torch.randint(0, 50, (65536,), **on)
grad = torch.ops.aten.embedding_dense_backward
show("embedding bf16", lambda: F.embedding(at, w))
show("embedding backward bf16", lambda: grad(dy, at, 50304, -1, False))
show("embedding backward bf16, 50 rows", lambda: grad(dy, few, 50304, -1, False))

x, at = normal("f32", 4096, 8192), torch.randint(0, 8192, (4096, 8192), **on)
mask, short = x > 0, normal("f32", 65536, 128)
show("gather", lambda: torch.gather(x, 1, at))
show("scatter_add", lambda: torch.scatter_add(x, 1, at, x))
show("masked_select", lambda: torch.masked_select(x, mask))
show("nonzero", lambda: mask.nonzero())
show("flip", lambda: x.flip(1))
show("roll", lambda: x.roll(5, 1))
show("pad", lambda: F.pad(x, (1, 1)))
show("tril", lambda: x.tril())
show("cat", lambda: torch.cat((x, x), 1))
show("sort rows 4096x8192", lambda: x.sort())
show("sort rows 65536x128", lambda: short.sort())
show("topk 50 of 4096x8192", lambda: x.topk(50))

x, n, weights = normal("bf16", 16384, 4096), 1 << 26, torch.rand(256, 50257, **on)
show("dropout bf16", lambda: F.dropout(x, .2, True))
show("randn 64M", lambda: torch.randn(n, **on))
show("rand 64M", lambda: torch.rand(n, **on))
show("randperm 1M", lambda: torch.randperm(1000000, **on))
show("arange 64M", lambda: torch.arange(n, dtype=torch.float32, **on))
show("multinomial 256x50257", lambda: torch.multinomial(weights, 1))

x = normal("f32", 100000000)
show("sort 100M", lambda: x.sort())
show("topk 50 of 100M", lambda: x.topk(50))

x = normal("f32", 64, 64, 112, 112)
show("max_pool 3x3/2", lambda: F.max_pool2d(x, 3, 2, 1, return_indices=True))
show("avg_pool 3x3/2", lambda: F.avg_pool2d(x, 3, 2, 1))
small = normal("f32", 32, 64, 128, 128)
for name, mode in ("nearest", "nearest"), ("linear", "bilinear"), ("cubic", "bicubic"):
    show(f"interpolate 2x, {name}", lambda: F.interpolate(small, (256, 256), mode=mode))
show("adaptive_avg_pool 1", lambda: F.adaptive_avg_pool2d(x, 1))
gates, zero = normal("f32", 4096, 4096), torch.zeros(4096, 4096, **on)
cell = normal("f32", 4096, 1024)
show("lstm_cell 4096x1024", lambda: torch.ops.aten._thnn_fused_lstm_cell(gates, zero, cell))
