"""PyTorch's side of `flare bench peers`: see bench/suite.lua.

    python suite.py THREADS

Reads lines: given, torch_given, torch, leaves and forward of a work of
bench/works.lua, with tabs between, or "again" for one more round of it.
Answers with seconds.
"""

import gc
import sys
import time

import torch
import torch.nn.functional as F

torch.set_num_threads(int(sys.argv[1]))
others = [[i] for i in range(20000)]


def fresh():
    return {
        "torch": torch, "F": F, "normal": torch.randn, "uniform": torch.rand,
        "eye": torch.eye,
        "complex": lambda *s: torch.randn(*s, dtype=torch.complex64),
        "mask": lambda *s: torch.rand(*s) > 0.5,
        "positions": lambda bound, *s: torch.randint(0, bound, s),
    }


inputs, given = {}, None


def function_of(text):
    """A function that evaluates an expression, or runs statements."""
    try:
        return eval("lambda: " + text, inputs)
    except SyntaxError:
        exec("def work():\n    " + text, inputs)
        return inputs["work"]


def call_of(common, own, what, names, forward):
    global inputs, given
    text = common + ";" + own
    if text != given:
        inputs, given = {}, None
        gc.collect()
        inputs = fresh()
        exec(text.strip(";"), inputs)
        given = text
    f = function_of(what)
    if not names:
        return f
    leaves = [inputs[name] for name in names.split()]
    for leaf in leaves:
        leaf.requires_grad = True
    given = None
    if forward:
        return f
    first = lambda y: y if isinstance(y, torch.Tensor) else y[0]
    y = first(f())
    gradient = torch.randn_like(y) if y.dim() > 0 else None
    del y

    def both():
        first(f()).backward(gradient)
        for leaf in leaves:
            leaf.grad = None

    return both


def once():
    start = time.perf_counter()
    for _ in range(count):
        call()
    return (time.perf_counter() - start) / count


call, count, recorded = None, 1, False
for line in sys.stdin:
    if line != "again\n":
        work = line.rstrip("\n").split("\t")
        call, count, recorded = None, 1, bool(work[3] or work[4])
    with torch.set_grad_enabled(recorded):
        if call is None:
            call = call_of(*work)
            if once() < 0.5:
                count = max(1, int(0.02 / max(once(), 1e-8)))
                for _ in range(count // 4):
                    call()
        print(f"{once():.9g}", flush=True)
