"""Writes spec/support/adam8bit_data.lua: steps of Adam and AdamW with moments of 8 bits.

    python spec/support/adam8bit_data.py > spec/support/adam8bit_data.lua

The maps are those of bitsandbytes 0.50.2; quantisation, to the nearest number of the map, and the
steps are written out in f64. Parameter and gradients of the element i are formulas, as in
spec/adam8bit_spec.lua.
"""
import bitsandbytes.functional as bnb
import torch

N, STEPS, LR, DECAY = 5000, 6, 0.01, 0.1
i = torch.arange(1, N + 1, dtype=torch.float64)


def gradient(t):
    return (torch.sin(i * 0.37 + t * 1.3) * 10 ** (i % 5 - 4)).float().double()


def quantize(x, numbers):
    scales = torch.stack([block.abs().max() for block in x.split(256)]).float().double()
    unit = x / scales.repeat_interleave(256)[:N]
    return (unit[:, None] - numbers[None]).abs().argmin(1), scales


def run(decoupled):
    p = torch.sin(i * 0.11)
    maps = [bnb.create_dynamic_map(signed=s).double() for s in (True, False)]
    packed = [(torch.zeros(N, dtype=torch.int64), torch.zeros(20)) for _ in maps]
    for t in range(1, STEPS + 1):
        m, v = (numbers[codes] * scales.repeat_interleave(256)[:N]
                for (codes, scales), numbers in zip(packed, maps))
        g = gradient(t)
        if decoupled:
            p = p * (1 - LR * DECAY)
        else:
            g = g + DECAY * p
        m = 0.9 * m + 0.1 * g
        v = 0.999 * v + 0.001 * g * g
        p = p - LR * (m / (1 - 0.9 ** t)) / ((v / (1 - 0.999 ** t)) ** 0.5 + 1e-8)
        packed = [quantize(x, numbers) for x, numbers in zip((m, v), maps)]
    return p, packed


def listed(x):
    return "{" + ", ".join(f"{float(y):.8g}" for y in x) + "}"


def lines(name, text):
    out = f"    {name} ="
    for part in text.split(" "):
        if len(out) + len(part) > 98:
            print(out)
            out = "     "
        out += " " + part
    print(out + ",")


print("-- Written by spec/support/adam8bit_data.py.\nreturn {\n  maps = {")
for name, signed in (("signed", True), ("unsigned", False)):
    lines(name, listed(bnb.create_dynamic_map(signed=signed)))
print("  },")
for name, decoupled in (("Adam8bit", False), ("AdamW8bit", True)):
    p, packed = run(decoupled)
    print(f"  {name} = {{ -- elements 1, 42, 83, ...")
    lines("p", listed(p[::41]))
    lines("mean", listed(packed[0][0][::41]))
    lines("square", listed(packed[1][0][::41]))
    lines("scales", listed(packed[0][1]))
    print("  },")
print("}")
