"""The peer of bench/gpu/products.lua in PyTorch; convolutions also with channels innermost."""
import torch, torch.nn.functional as F
from gpu_measure import normal, show

torch.backends.cudnn.benchmark, torch.backends.cudnn.allow_tf32 = True, False
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

for dtype, batch, start, side, to, kernel, stride in (
        ("bf16", 256, 128, 28, 128, 3, 1), ("bf16", 256, 64, 56, 64, 3, 1),
        ("bf16", 256, 256, 14, 256, 3, 1), ("bf16", 256, 512, 7, 512, 3, 1),
        ("bf16", 256, 128, 56, 128, 3, 2), ("bf16", 256, 256, 56, 64, 1, 1),
        ("bf16", 256, 64, 56, 256, 1, 1), ("bf16", 256, 3, 224, 64, 7, 2),
        ("f32", 64, 128, 28, 128, 3, 1)):
    name = f"conv {dtype} b{batch} {start} to {to} {side}^2 k{kernel} s{stride}"
    for form, note in ((torch.contiguous_format, ""), (torch.channels_last, " [NHWC]")):
        x = normal(dtype, batch, start, side, side).to(memory_format=form)
        w = normal(dtype, to, start, kernel, kernel).to(memory_format=form)
        pad = kernel // 2
        conv = lambda: F.conv2d(x, w, stride=stride, padding=pad)
        dy = torch.randn_like(conv())
        def grad(*which):
            return torch.ops.aten.convolution_backward(dy, x, w, None, [stride] * 2, [pad] * 2,
                                                       [1, 1], False, [0, 0], 1, which)
        show(name + note, conv)
        show(name + " dx" + note, lambda: grad(True, False, False))
        show(name + " dw" + note, lambda: grad(False, True, False))
