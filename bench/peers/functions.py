# The functions of bench/functions.lua in PyTorch on the CPU, at once and by torch.compile:
# microseconds a call, the least of many rounds that alternate. torch.compile needs g++.
# `python bench/peers/functions.py [THREADS [ROUNDS [NAME...]]]`.
import math
import sys
import time

import torch

torch.set_num_threads(int(sys.argv[1]) if len(sys.argv) > 1 else 2)
torch.set_grad_enabled(False)
rounds = int(sys.argv[2]) if len(sys.argv) > 2 else 300
wanted = sys.argv[3:]
random = torch.randn


def softmax(x):
    e = (x - x.amax(-1, keepdim=True)).exp()
    return e / e.sum(-1, keepdim=True)


def normed(x):
    d = x - x.mean(-1, keepdim=True)
    return d / ((d * d).mean(-1, keepdim=True) + 1e-5).sqrt()


def layer_norm(x, w, b):
    return normed(x) * w + b


def rms_norm(x, w):
    return x * ((x * x).mean(-1, keepdim=True) + 1e-6).rsqrt() * w


def group_norm(x, w, b):
    return normed(x.reshape(x.shape[0], 8, 8 * x.shape[2])).reshape(x.shape) * w + b


def gelu(x):
    return x * 0.5 * (1 + ((x + x * x * x * 0.044715) * 0.7978845608).tanh())


def attention(q, k, v):
    return softmax(q.matmul(k.transpose(1, 2)) * 0.125).matmul(v)


def heads(n, m):
    shape = (n * m // 65536, 256, 64) if n * m >= 65536 else (2, 64, 64)
    return random(shape), random(shape), random(shape)


def focal_loss(x, t):
    p = x.sigmoid()
    q = p * t + (1 - p) * (1 - t)
    return ((1 - q) * (1 - q) * -(q + 1e-6).log() * (t * 0.25 + (1 - t) * 0.75)).mean()


def rope(x, cos, sin):
    h = x.shape[1] // 2
    a, b = x[:, :h], x[:, h:]
    return torch.cat([a * cos - b * sin, b * cos + a * sin], 1)


def swiglu(x, y):
    return x * x.sigmoid() * y


def adam(p, g, m, v):
    m.mul_(0.9).add_(g * 0.1)
    v.mul_(0.999).add_(g * g * 0.001)
    p.sub_(m / 0.5 / ((v / 0.25).sqrt() + 1e-8) * 1e-4)


def mish_and_silu(x, y):
    mish = x * (x.exp() + 1).log().tanh()
    return mish + y / (1 + (-y).exp())


def cross_entropy(x, t):
    top = x.amax(-1, keepdim=True)
    all = (x - top).exp().sum(-1, keepdim=True).log() + top
    return (all - x.gather(1, t.unsqueeze(1))).mean()


functions = [
    (layer_norm, lambda n, m: (random(n, m), random(m), random(m))),
    (rms_norm, lambda n, m: (random(n, m), random(m))),
    (group_norm, lambda n, m: (random(n // 16, 64, m // 4), random(64, 1), random(64, 1))),
    (gelu, lambda n, m: (random(n, m),)),
    (attention, heads),
    (focal_loss, lambda n, m: (random(n, m), torch.rand(n, m).gt(0.5).float())),
    (rope, lambda n, m: (random(n, m), random(n, m // 2), random(n, m // 2))),
    (swiglu, lambda n, m: (random(n, m), random(n, m))),
    (adam, lambda n, m: (random(n, m), random(n, m), random(n, m), torch.rand(n, m))),
    (softmax, lambda n, m: (random(n, m),)),
    (mish_and_silu, lambda n, m: (random(n, m), random(n, m))),
    (cross_entropy, lambda n, m: (random(n, m), torch.randint(m, (n,)))),
]


def measure(calls, f, a):
    f(*a)
    start = time.perf_counter()
    for _ in range(calls):
        f(*a)
    return (time.perf_counter() - start) / calls * 1e6


for shape in (64, 128), (1024, 1024):
    ratios = []
    for f, make in functions:
        name = f.__name__.replace("_", " ")
        if wanted and not any(word in name for word in wanted):
            continue
        operands = make(*shape)
        torch._dynamo.reset()
        ways = [f, torch.compile(f, dynamic=False)]
        least = []
        for way in ways:
            for _ in range(30):
                way(*operands)
            least.append(measure(10, way, operands))
        calls = max(1, int(200 / least[0]))
        for _ in range(rounds):
            for k, way in enumerate(ways):
                least[k] = min(least[k], measure(calls, way, operands))
        ratios.append(least[0] / least[1])
        print(f"{name:14s} {shape[0]:4d} x {shape[1]:<4d}  eager {least[0]:9.2f} us  "
              f"compiled {least[1]:9.2f} us {ratios[-1]:5.2f}x", flush=True)
    print(f"geometric mean: {math.prod(ratios) ** (1 / len(ratios)):.2f}x")
