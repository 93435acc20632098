"""The work of bench/suite.lua in PyTorch: the same names, tab, seconds.

    python suite.py THREADS [WORD ...]
"""

import statistics
import sys
import time

import torch
import torch.nn.functional as F

torch.set_num_threads(int(sys.argv[1]) if len(sys.argv) > 1 else 1)
words = sys.argv[2:]
others = [[i] for i in range(20000)]


def wanted(group):
    return not words or any(w in group for w in words)


def measure(name, f):
    start = time.perf_counter()
    f()
    once = time.perf_counter() - start
    n = max(1, int(0.02 / max(once, 1e-8)))
    for _ in range(n // 4):
        f()
    times = []
    for r in range(9):
        start = time.perf_counter()
        for _ in range(n):
            f()
        times.append((time.perf_counter() - start) / n)
        if r >= 2 and times[-1] * n > 1:
            break
    print(f"{name}\t{statistics.median(times):.9g}", flush=True)


def overhead():
    x, y = torch.randn(16, 16), torch.randn(16, 16)
    w = torch.randn(16, 16, requires_grad=True)
    v = torch.randn(16, 16, requires_grad=True)
    measure("overhead: add 16x16", lambda: x + y)
    measure("overhead: add 16x16 with gradient", lambda: w + y)
    measure("overhead: row of a matrix", lambda: x[3])

    def four():
        (w * v + y).relu().sum().backward()
        w.grad = v.grad = None

    measure("overhead: 4 ops forward and backward", four)


UNARY = {
    "neg": torch.neg, "abs": torch.abs, "square": torch.square,
    "reciprocal": torch.reciprocal, "sqrt": torch.sqrt, "rsqrt": torch.rsqrt,
    "exp": torch.exp, "expm1": torch.expm1, "log": torch.log,
    "log1p": torch.log1p, "sin": torch.sin, "cos": torch.cos,
    "tanh": torch.tanh, "sigmoid": torch.sigmoid, "erf": torch.erf,
    "floor": torch.floor, "round": torch.round, "relu": torch.relu,
    "leaky_relu": F.leaky_relu, "elu": F.elu, "gelu": F.gelu, "silu": F.silu,
    "softplus": F.softplus, "mish": F.mish, "hardtanh": F.hardtanh,
    "logsigmoid": F.logsigmoid,
}
BINARY = {
    "add": torch.add, "sub": torch.sub, "mul": torch.mul, "div": torch.div,
    "maximum": torch.maximum, "minimum": torch.minimum, "lt": torch.lt,
    "eq": torch.eq, "pow": torch.pow,
}


@torch.no_grad()
def elementwise():
    for size, n in (("32 KiB", 8192), ("4 MiB", 1048576)):
        a, b = torch.rand(n) + 0.5, torch.rand(n) + 0.5
        for name, f in UNARY.items():
            measure(f"elementwise {size}: {name}", lambda f=f: f(a))
        for name, f in BINARY.items():
            measure(f"elementwise {size}: {name}", lambda f=f: f(a, b))


@torch.no_grad()
def expressions():
    def mix(x, y, w):
        d = x - y
        return d * d * 0.5 + w * d.abs() - 0.25 * x

    works = {
        "z = x * y + 1": lambda x, y, w: x * y + 1,
        "T d = x - y; z = d * d * 0.5 + w * abs(d) - 0.25 * x": mix,
        "z = gelu(x + y) * w": lambda x, y, w: F.gelu(x + y) * w,
        "z = x * sigmoid(y) + tanh(w)":
            lambda x, y, w: x * torch.sigmoid(y) + torch.tanh(w),
    }
    for size, n in (("32 KiB", 8192), ("4 MiB", 1048576)):
        x, y, w = torch.randn(n), torch.randn(n), torch.randn(n)
        for text, f in works.items():
            measure(f"expressions {size}: {text}", lambda f=f: f(x, y, w))
    x, y = torch.randn(4096, 1024), torch.randn(1024)
    measure("expressions: sum of exp(x) * y, 4096x1024",
            lambda: (torch.exp(x) * y).sum(1))


@torch.no_grad()
def rows():
    x = torch.randn(4096, 1024)
    h, w, b = torch.randn(768, 128), torch.randn(128), torch.randn(128)
    measure("rows: softmax 4096x1024", lambda: x.softmax(1))
    measure("rows: sum 4096x1024", lambda: x.sum())
    measure("rows: sum of columns 4096x1024", lambda: x.sum(0))
    measure("rows: layer_norm 768x128", lambda: F.layer_norm(h, (128,), w, b))


@torch.no_grad()
def product():
    for n in (16, 32, 64, 128, 256, 512, 1024, 2048):
        a, b = torch.randn(n, n), torch.randn(n, n)
        measure(f"product: {n}", lambda: a @ b)


def conv():
    x = torch.randn(128, 32, 28, 28)
    layer = torch.nn.Conv2d(32, 64, 3, padding=1)

    def step():
        layer(x).sum().backward()
        layer.zero_grad(set_to_none=True)

    measure("conv: 3x3 32 to 64, 128 x 28 x 28, forward and backward", step)


def mlp():
    model = torch.nn.Sequential(
        torch.nn.Linear(784, 256), torch.nn.ReLU(), torch.nn.Linear(256, 128),
        torch.nn.ReLU(), torch.nn.Linear(128, 10))
    optimizer = torch.optim.Adam(model.parameters(), 1e-3)
    x, y = torch.randn(128, 784), torch.randint(0, 10, (128,))

    def step():
        loss = F.cross_entropy(model(x), y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()

    measure("mlp: 784-256-128-10, batch 128, a step of Adam", step)


for group in (overhead, elementwise, expressions, rows, product, conv, mlp):
    if wanted(group.__name__):
        group()
