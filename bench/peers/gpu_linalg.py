"""The peer of bench/gpu/linalg.lua in PyTorch."""
import torch
from gpu_measure import normal, show

L, F = torch.linalg, torch.fft

def rows(what, x, b):
    n = x.shape[-1]
    positive = x @ x.mT / n + torch.eye(n, device="cuda", dtype=x.dtype)
    symmetric = x + x.mT
    show(f"solve {what}", lambda: L.solve(x, b))
    show(f"inv {what}", lambda: L.inv(x))
    show(f"det {what}", lambda: L.det(x))
    show(f"cholesky {what}", lambda: L.cholesky(positive))
    show(f"triangular_solve {what}", lambda: L.solve_triangular(positive, b, upper=False))
    show(f"qr {what}", lambda: L.qr(x))
    show(f"eigh {what}", lambda: L.eigh(symmetric))
    show(f"svd {what}", lambda: L.svd(x, full_matrices=False))

for n in (64, 512, 2048): rows(f"f32 {n}", normal("f32", n, n), normal("f32", n, 64))
rows("f64 512", normal("f64", 512, 512), normal("f64", 512, 64))
rows("f32 1024 of 32", normal("f32", 1024, 32, 32), normal("f32", 1024, 32, 4))
rows("f32 16 of 256", normal("f32", 16, 256, 256), normal("f32", 16, 256, 16))
x = normal("f32", 512, 512)
show("eig f32 512", lambda: L.eig(x))
show("pinv f32 512", lambda: L.pinv(x))
small = x / 100
show("matrix_exp f32 512", lambda: L.matrix_exp(small))

for k in (10, 14, 18, 22):
    x = normal("f32", 1 << k)
    z = torch.complex(x, normal("f32", 1 << k))
    show(f"fft 2^{k}", lambda: F.fft(z))
    show(f"rfft 2^{k}", lambda: F.rfft(x))
x = normal("f32", 4096, 1000)
z = torch.complex(x, x)
show("fft 4096 of 1000", lambda: F.fft(z))
show("ifft 4096 of 1000", lambda: F.ifft(z))
show("fft 4096 of 1000, down", lambda: F.fft(z, dim=0))
prime = torch.complex(normal("f32", 64, 10007), normal("f32", 64, 10007))
show("fft 64 of 10007", lambda: F.fft(prime))
x = normal("f32", 4096, 4096)
z = torch.complex(x, x)
half = F.rfft2(x)
show("fft2 4096x4096", lambda: F.fft2(z))
show("rfft2 4096x4096", lambda: F.rfft2(x))
show("irfft2 4096x4096", lambda: F.irfft2(half))
images = normal("f32", 64, 3, 256, 256)
show("rfft2 64x3 of 256x256", lambda: F.rfft2(images))
cubes = torch.complex(normal("f64", 8, 64, 64, 64), normal("f64", 8, 64, 64, 64))
show("fftn f64 8 of 64x64x64", lambda: F.fftn(cubes, dim=(1, 2, 3)))
