"""The peer of spec/gpu/ncu.lua in PyTorch."""
import sys, torch, torch.nn.functional as F
sys.path.insert(0, "bench/peers")
from gpu_measure import leaf, normal

torch.backends.cudnn.benchmark, last = True, torch.channels_last

def work(name, f):
    for _ in range(6): f()
    torch.cuda.synchronize(); torch.cuda.profiler.start()
    torch.arange(64, device="cuda"); f()
    torch.cuda.synchronize(); torch.cuda.profiler.stop(); print(name, flush=True)

with torch.no_grad():
    for n in (4096, 8192):
        a, b = normal("bf16", n, n), normal("bf16", n, n)
        work(f"product {n}", lambda: a @ b)
    x, w, b = (normal("bf16", *s) for s in ((16384, 4096), (16384, 4096), (16384,)))
    work("linear gelu", lambda: F.gelu(F.linear(x, w, b)))
    x = normal("bf16", 256, 128, 28, 28).to(memory_format=last)
    w = normal("bf16", 128, 128, 3, 3).to(memory_format=last)
    def grad(*which):
        return torch.ops.aten.convolution_backward(x, x, w, None, [1, 1], [1, 1], [1, 1], False, [0, 0], 1, which)
    work("conv", lambda: F.conv2d(x, w, padding=1))
    work("conv dx", lambda: grad(True, False, False))
    work("conv dw", lambda: grad(False, True, False))
    z, dy = normal("bf16", 16384, 4096), normal("bf16", 16384, 4096)
    work("exp", lambda: z.exp())
    work("relu(x * y + z)", lambda: F.relu(z * dy + z))
x, w, b = leaf("bf16", 16384, 4096), leaf("bf16", 4096), leaf("bf16", 4096)
y = F.layer_norm(x, (4096,), w, b)
work("layer_norm backward", lambda: torch.autograd.grad(y, (x, w, b), dy, retain_graph=True))
x, a = normal("f32", 4096, 4096), normal("f32", 8192, 4096)
work("rfft2", lambda: torch.fft.rfft2(x))
work("cat", lambda: torch.cat((a, a), 1))
