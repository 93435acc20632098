"""The peer of spec/gpu/lstm.lua: torch.nn.LSTM (cuDNN), without TF32."""
import time

import torch

torch.backends.cudnn.allow_tf32 = False
torch.backends.cuda.matmul.allow_tf32 = False


def show(name, f):
    for _ in range(3):
        f()
    torch.cuda.synchronize()
    start = time.perf_counter()
    f()
    torch.cuda.synchronize()
    count = max(3, min(100, int(0.02 / (time.perf_counter() - start))))
    times = []
    for _ in range(5):
        start = time.perf_counter()
        for _ in range(count):
            f()
        torch.cuda.synchronize()
        times.append((time.perf_counter() - start) / count * 1e6)
    print(f"{name}\t{sorted(times)[2]:.1f}", flush=True)


dtypes = {"f32": torch.float32, "bf16": torch.bfloat16, "f16": torch.float16}
for s in (256, 4, 32, 128), (50, 16, 64, 128), (100, 32, 128, 256), (100, 64, 512, 512), (50, 8, 512, 1024):
    steps, batch, inputs, n = s
    for short, dtype in dtypes.items():
        name = "x".join(map(str, s)) + " " + short
        layer = torch.nn.LSTM(inputs, n).to("cuda", dtype)
        layer.flatten_parameters()
        x = torch.randn(steps, batch, inputs, device="cuda", dtype=dtype)
        w = torch.randn(steps, batch, n, device="cuda", dtype=dtype)
        with torch.no_grad():
            show(name, lambda: layer(x))
        x.requires_grad_()

        def step():
            x.grad = None
            for p in layer.parameters():
                p.grad = None
            layer(x)[0].backward(w)

        show(name + " grad", step)
