"""The peer of bench/gpu/targets.lua in PyTorch."""
import torch, torch.nn.functional as F
from gpu_measure import backward, graded, leaf, normal, show

x, w, b = leaf("bf16", 16384, 4096), leaf("bf16", 4096), leaf("bf16", 4096)
y, z = normal("bf16", 16384, 4096), normal("bf16", 16384, 4096)
show("copy", lambda: x.clone())
show("relu(x * y + z)", lambda: F.relu(x * y + z))
show("softmax", lambda: x.softmax(-1))
show("layer_norm", lambda: F.layer_norm(x, (4096,), w, b))
show("rms_norm", lambda: F.rms_norm(x, (4096,), w))
backward("softmax backward", x.softmax(-1), (x,))
backward("layer_norm backward", F.layer_norm(x, (4096,), w, b), (x, w, b))
backward("rms_norm backward", F.rms_norm(x, (4096,), w), (x, w))
show("transpose", lambda: y.t().contiguous())

x, at = leaf("bf16", 8192, 50304), torch.randint(0, 50304, (8192,), device="cuda")
def both(): F.cross_entropy(x, at).backward(); x.grad = None
graded("cross_entropy and backward", both)

parameters = [leaf("f32", 878, 1000) for _ in range(148)]
for p in parameters: p.grad = torch.randn_like(p)
adam = torch.optim.AdamW(parameters, lr=1e-4, fused=True)
show("AdamW 130M", lambda: adam.step())
del x, parameters, adam

torch.backends.cudnn.benchmark, last = True, torch.channels_last
x = normal("bf16", 256, 128, 28, 28).to(memory_format=last)
w = normal("bf16", 128, 128, 3, 3).to(memory_format=last)
show("conv 3x3 channels last", lambda: F.conv2d(x, w, padding=1))
show("conv 3x3 channels last, both gradients", lambda: torch.ops.aten.convolution_backward(
    x, x, w, None, [1, 1], [1, 1], [1, 1], False, [0, 0], 1, (True, True, False)))

for n in (256, 512, 1024, 2048, 4096, 8192):
    a, b = normal("bf16", n, n), normal("bf16", n, n)
    show(f"product {n}", lambda: a @ b)

x, w, b = (normal("bf16", *s) for s in ((16384, 4096), (16384, 4096), (16384,)))
show("linear gelu", lambda: F.gelu(F.linear(x, w, b)))
show("linear gelu_tanh", lambda: F.gelu(F.linear(x, w, b), approximate="tanh"))
