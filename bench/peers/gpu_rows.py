"""The peer of bench/gpu/rows.lua in PyTorch."""
import torch, torch.nn.functional as F
from gpu_measure import backward, graded, leaf, normal, show

x, w, b = leaf("bf16", 16384, 4096), leaf("bf16", 4096), leaf("bf16", 4096)
show("copy bf16", lambda: x.clone())
show("transpose bf16", lambda: x.t().contiguous())
show("add bf16", lambda: x + x)
for name, f in (("gelu", F.gelu), ("silu", F.silu), ("tanh", torch.tanh), ("exp", torch.exp)):
    show(f"{name} bf16", lambda: f(x))
    backward(f"{name} backward bf16", f(x), (x,))
show("gelu tanh bf16", lambda: F.gelu(x, approximate="tanh"))
show("softmax bf16", lambda: x.softmax(-1))
show("log_softmax bf16", lambda: x.log_softmax(-1))
show("layer_norm bf16", lambda: F.layer_norm(x, (4096,), w, b))
show("rms_norm bf16", lambda: F.rms_norm(x, (4096,), w))
backward("softmax backward bf16", x.softmax(-1), (x,))
backward("layer_norm backward bf16", F.layer_norm(x, (4096,), w, b), (x, w, b))
backward("rms_norm backward bf16", F.rms_norm(x, (4096,), w), (x, w))
show("sum bf16", lambda: x.sum())
show("sum of rows bf16", lambda: x.sum(1))
show("sum of columns bf16", lambda: x.sum(0))
show("var of rows bf16", lambda: x.var(1))
show("argmax of rows bf16", lambda: x.argmax(1))
show("cumsum of rows bf16", lambda: x.cumsum(1))
show("cumsum of columns bf16", lambda: x.cumsum(0))

x = normal("f32", 8192, 4096)
show("sum f32", lambda: x.sum())
show("sum of columns f32", lambda: x.sum(0))
show("softmax f32", lambda: x.softmax(-1))
show("softmax of columns f32", lambda: x.softmax(0))

x, w, b = leaf("bf16", 256, 256, 28, 28), leaf("bf16", 256), leaf("bf16", 256)
batch_norm = lambda: F.batch_norm(x, None, None, w, b, True)
show("sum of channels NCHW bf16", lambda: x.sum((0, 2, 3)))
show("batch_norm NCHW bf16", batch_norm)
backward("batch_norm backward NCHW bf16", batch_norm(), (x, w, b))
show("group_norm 32 NCHW bf16", lambda: F.group_norm(x, 32, w, b))

for classes in (50304, 50257):
    x, targets = leaf("bf16", 8192, classes), torch.randint(0, classes, (8192,), device="cuda")
    def both(): F.cross_entropy(x, targets).backward(); x.grad = None
    show(f"cross_entropy bf16 {classes}", lambda: F.cross_entropy(x, targets))
    graded(f"cross_entropy bf16 {classes} and backward", both)
    show(f"softmax bf16 {classes}", lambda: x.softmax(-1))
