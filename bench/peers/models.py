"""The training steps of bench/models in PyTorch: the same architectures, inputs and initial weights.
usage: models.py [MODEL[:option=value,...] ...] [--size small|full] [--device D] [--mode eager,compile,graphs]
                 [--steps N] [--warm N] [--amp bf16|none]
A line of JSON for each model and mode. `compile`: torch.compile of forward pass and loss; `graphs`: the same with
mode="reduce-overhead" (CUDA graphs). Optimizers are fused ones on a GPU."""
import argparse
import gc
import json
import math
import time
import traceback

import torch
import torch.nn as nn
import torch.nn.functional as F

MODELS = {}
DEFAULT = ["gpt2", "gpt2:batch=16", "llama", "resnet50", "resnet50:layout=last"]


class Options(dict):
    __getattr__ = dict.__getitem__


def model(name, unit, small, full, steps=20, read=0):
    def register(build):
        MODELS[name] = dict(unit=unit, small=small, full=full, steps=steps, read=read, build=build)
        return build
    return register


# --- inputs and weights: the hashes of bench/models/loop.lua ---

def hash_of(shape, salt, device):
    i = torch.arange(math.prod(shape), dtype=torch.float64, device=device)
    u = (i * 12.9898 + salt * 78.233).sin() * 43758.5453
    return u.frac().abs().reshape(shape)


def ids(o, classes, shape, salt=1):
    return (hash_of(shape, salt, o.device) * classes).floor().long().clamp(0, classes - 1)


def numbers(o, shape, salt=2):
    return ((hash_of(shape, salt, o.device) - 0.5) * math.sqrt(12)).float()


def prepare(o, m, gain=1.0):
    m.to(o.device)
    with torch.no_grad():
        for k, (name, p) in enumerate(m.named_parameters(), 1):
            if p.dim() > 1:
                std = 0.02 if "embed" in name else gain / math.sqrt(p.numel() // p.shape[0])
                p.copy_(numbers(o, tuple(p.shape), 100 + k) * std)
            else:
                p.fill_(0 if "bias" in name else 1)
    return m


# --- steps ---

def compiled(o, f):
    if o.mode == "compile":
        return torch.compile(f)
    if o.mode == "graphs":
        return torch.compile(f, mode="reduce-overhead")
    return f


def autocast(o):
    return torch.autocast(o.device.split(":")[0], torch.bfloat16, enabled=o.amp == "bf16")


def training(o, m, optimizer, forward, clip=None):
    params = list(m.parameters())
    forward = compiled(o, forward)

    def step():
        optimizer.zero_grad(set_to_none=True)
        with autocast(o):
            loss = forward()
        loss.backward()
        if clip:
            nn.utils.clip_grad_norm_(params, clip)
        optimizer.step()
        return loss.detach()
    return step


def fused(o):
    return {"fused": True} if o.device.startswith("cuda") else {}


def adamw(o, m, decay):
    return torch.optim.AdamW(m.parameters(), 3e-4, weight_decay=decay, **fused(o))


# --- GPT-2 ---

class GPTBlock(nn.Module):
    def __init__(self, o):
        super().__init__()
        d = o.width
        self.heads = o.heads
        self.norm1 = nn.LayerNorm(d)
        self.qkv = nn.Linear(d, 3 * d)
        self.proj = nn.Linear(d, d)
        self.norm2 = nn.LayerNorm(d)
        self.up = nn.Linear(d, 4 * d)
        self.down = nn.Linear(4 * d, d)
        self.drop = nn.Dropout(o.dropout)

    def forward(self, x):
        b, t, d = x.shape
        q, k, v = self.qkv(self.norm1(x)).view(b, t, 3, self.heads, d // self.heads).permute(2, 0, 3, 1, 4)
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.drop(self.proj(y.transpose(1, 2).reshape(b, t, d)))
        return x + self.drop(self.down(F.gelu(self.up(self.norm2(x)), approximate="tanh")))


class GPT(nn.Module):
    def __init__(self, o):
        super().__init__()
        self.embed = nn.Embedding(o.vocabulary, o.width)
        self.embed_positions = nn.Embedding(o.time, o.width)
        self.blocks = nn.ModuleList(GPTBlock(o) for _ in range(o.layers))
        self.norm = nn.LayerNorm(o.width)
        self.drop = nn.Dropout(o.dropout)

    def forward(self, x, y):
        h = self.drop(self.embed(x) + self.embed_positions.weight[:x.shape[1]])
        for block in self.blocks:
            h = block(h)
        return F.cross_entropy(F.linear(self.norm(h), self.embed.weight).flatten(0, 1), y.flatten())


@model("gpt2", "tokens",
       dict(batch=2, time=16, layers=2, width=32, heads=2, vocabulary=64, tokens=60, dropout=0.1),
       dict(batch=64, time=1024, layers=12, width=768, heads=12, vocabulary=50304, tokens=50257, dropout=0))
def gpt2(o):
    m = prepare(o, GPT(o))
    text = ids(o, o.tokens, (o.batch, o.time + 1))
    x, y = text[:, :-1].contiguous(), text[:, 1:].contiguous()
    return m, o.batch * o.time, training(o, m, adamw(o, m, 0.01), lambda: m(x, y), 1.0)


# --- Llama ---

class RMSNorm(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(width))

    def forward(self, x):
        x = x.float()
        return x / ((x * x).mean(-1, keepdim=True) + 1e-5).sqrt() * self.weight


def rotate(x, cos, sin):
    a, b = x.chunk(2, -1)
    return torch.cat((a * cos - b * sin, b * cos + a * sin), -1)


class LlamaBlock(nn.Module):
    def __init__(self, o):
        super().__init__()
        d, self.heads, self.groups, self.size = o.width, o.heads, o.groups, o.width // o.heads
        inner = o.groups * self.size
        self.norm1 = RMSNorm(d)
        self.q = nn.Linear(d, d, bias=False)
        self.k = nn.Linear(d, inner, bias=False)
        self.v = nn.Linear(d, inner, bias=False)
        self.out = nn.Linear(d, d, bias=False)
        self.norm2 = RMSNorm(d)
        self.gate = nn.Linear(d, o.hidden, bias=False)
        self.up = nn.Linear(d, o.hidden, bias=False)
        self.down = nn.Linear(o.hidden, d, bias=False)

    def forward(self, x, cos, sin):
        b, t, d = x.shape
        h = self.norm1(x)
        q = self.q(h).view(b, t, self.heads, self.size).transpose(1, 2)
        k = self.k(h).view(b, t, self.groups, self.size).transpose(1, 2)
        v = self.v(h).view(b, t, self.groups, self.size).transpose(1, 2)
        q, k = rotate(q, cos, sin), rotate(k, cos, sin)
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True, enable_gqa=True)
        x = x + self.out(y.transpose(1, 2).reshape(b, t, d))
        h = self.norm2(x)
        gate = self.gate(h)
        return x + self.down(gate * gate.sigmoid() * self.up(h))


class Llama(nn.Module):
    def __init__(self, o):
        super().__init__()
        self.embed = nn.Embedding(o.vocabulary, o.width)
        self.blocks = nn.ModuleList(LlamaBlock(o) for _ in range(o.layers))
        self.norm = RMSNorm(o.width)
        self.head = nn.Linear(o.width, o.vocabulary, bias=False)
        half = o.width // o.heads // 2
        rates = (torch.arange(half).float() * (-math.log(10000) / half)).exp()
        angles = torch.outer(torch.arange(o.time).float(), rates)
        dtype = torch.bfloat16 if o.amp == "bf16" else torch.float32
        self.register_buffer("cos", angles.cos().to(dtype))
        self.register_buffer("sin", angles.sin().to(dtype))

    def forward(self, x, y):
        h = self.embed(x)
        for block in self.blocks:
            h = block(h, self.cos, self.sin)
        return F.cross_entropy(self.head(self.norm(h)).flatten(0, 1), y.flatten())


@model("llama", "tokens",
       dict(batch=2, time=16, layers=2, width=32, heads=4, groups=2, hidden=48, vocabulary=64),
       dict(batch=8, time=2048, layers=16, width=1024, heads=16, groups=4, hidden=2816, vocabulary=32000))
def llama(o):
    m = prepare(o, Llama(o))
    text = ids(o, o.vocabulary, (o.batch, o.time + 1))
    x, y = text[:, :-1].contiguous(), text[:, 1:].contiguous()
    return m, o.batch * o.time, training(o, m, adamw(o, m, 0.1), lambda: m(x, y), 1.0)


# --- ResNet-50 ---

class Bottleneck(nn.Module):
    def __init__(self, inputs, inner, outputs, stride):
        super().__init__()
        self.conv1 = nn.Conv2d(inputs, inner, 1, bias=False)
        self.norm1 = nn.BatchNorm2d(inner)
        self.conv2 = nn.Conv2d(inner, inner, 3, stride=stride, padding=1, bias=False)
        self.norm2 = nn.BatchNorm2d(inner)
        self.conv3 = nn.Conv2d(inner, outputs, 1, bias=False)
        self.norm3 = nn.BatchNorm2d(outputs)
        self.short = None
        if stride > 1 or inputs != outputs:
            self.short = nn.Sequential(nn.Conv2d(inputs, outputs, 1, stride=stride, bias=False),
                                       nn.BatchNorm2d(outputs))

    def forward(self, x):
        y = self.norm1(self.conv1(x)).relu()
        y = self.norm2(self.conv2(y)).relu()
        y = self.norm3(self.conv3(y))
        return (y + (self.short(x) if self.short is not None else x)).relu()


class ResNet(nn.Module):
    def __init__(self, o):
        super().__init__()
        self.stem = nn.Conv2d(3, o.width, 7, stride=2, padding=3, bias=False)
        self.norm = nn.BatchNorm2d(o.width)
        self.blocks = nn.ModuleList()
        channels = o.width
        for stage, count in enumerate(o.depths):
            inner = o.width << stage
            for k in range(count):
                stride = 2 if k == 0 and stage > 0 else 1
                self.blocks.append(Bottleneck(channels, inner, 4 * inner, stride))
                channels = 4 * inner
        self.head = nn.Linear(channels, o.classes)

    def forward(self, x):
        x = F.max_pool2d(self.norm(self.stem(x)).relu(), 3, 2, 1)
        for block in self.blocks:
            x = block(x)
        return self.head(x.mean((2, 3)))


@model("resnet50", "images",
       dict(batch=4, image=32, width=8, depths=(1, 1), classes=10, layout="first"),
       dict(batch=256, image=224, width=64, depths=(3, 4, 6, 3), classes=1000, layout="first"))
def resnet50(o):
    m = prepare(o, ResNet(o), math.sqrt(2))
    x, y = numbers(o, (o.batch, 3, o.image, o.image)), ids(o, o.classes, (o.batch,))
    if o.layout == "last":
        m, x = m.to(memory_format=torch.channels_last), x.to(memory_format=torch.channels_last)
    optimizer = torch.optim.SGD(m.parameters(), 0.05, momentum=0.9, weight_decay=1e-4, **fused(o))
    return m, o.batch, training(o, m, optimizer, lambda: F.cross_entropy(m(x), y))


# --- the loop ---

def parse(text):
    name, _, rest = text.partition(":")
    given = {}
    for pair in filter(None, rest.split(",")):
        key, value = pair.split("=")
        for convert in (int, float):
            try:
                value = convert(value)
                break
            except ValueError:
                pass
        given[key] = value
    return name, given


def settled(times):
    median = sorted(times)[(len(times) - 1) // 2]
    last = max((k for k, t in enumerate(times, 1) if t > 1.5 * median), default=0)
    return last, sum(times[:last])


def run(text, mode, a):
    name, given = parse(text)
    definition = MODELS[name]
    o = Options(amp="bf16")
    o.update(definition[a.size])
    o.update(given)
    o.update(device=a.device, mode=mode)
    if a.amp:
        o["amp"] = a.amp
    cuda = a.device.startswith("cuda")
    sync = torch.cuda.synchronize if cuda else lambda: None
    torch.manual_seed(1)
    m, items, step = definition["build"](o)
    times, losses = [], []
    for k in range(a.warm):
        start = time.perf_counter()
        loss = step()
        sync()
        times.append(time.perf_counter() - start)
        if k < 4 and loss is not None:
            losses.append(loss.float().mean().item())
    if cuda:
        torch.cuda.reset_peak_memory_stats()
    steps, read = a.steps or definition["steps"], definition["read"]
    start = time.perf_counter()
    for k in range(1, steps + 1):
        loss = step()
        if read and k % read == 0:
            loss.item()
    sync()
    seconds = (time.perf_counter() - start) / steps
    warm, total = settled(times)
    return dict(unit=definition["unit"], step_ms=seconds * 1e3, rate=items / seconds, losses=losses,
                peak_mib=torch.cuda.max_memory_allocated() / 2**20 if cuda else None,
                reserved_mib=torch.cuda.max_memory_reserved() / 2**20 if cuda else None,
                first_s=times[0], settle_steps=warm, settle_s=total,
                parameters=sum(p.numel() for p in m.parameters()) if m is not None else 0)


def main():
    p = argparse.ArgumentParser(description="Times training steps.")
    p.add_argument("models", nargs="*", default=DEFAULT)
    p.add_argument("--size", default="full", choices=["small", "full"])
    p.add_argument("--device", default="cuda")
    p.add_argument("--mode", default="eager,compile")
    p.add_argument("--steps", type=int, default=0)
    p.add_argument("--warm", type=int, default=10)
    p.add_argument("--amp", default="")
    p.add_argument("--threads", type=int, default=0)
    a = p.parse_args()
    if a.threads:
        torch.set_num_threads(a.threads)
    for text in a.models or DEFAULT:
        for mode in a.mode.split(","):
            try:
                figures = run(text, mode, a)
            except Exception:
                figures = {"error": traceback.format_exc()}
            figures.update(model=text, size=a.size, side="pytorch", mode=mode)
            print(json.dumps(figures), flush=True)
            torch._dynamo.reset()
            gc.collect()
            if a.device.startswith("cuda"):
                torch.cuda.empty_cache()


if __name__ == "__main__":
    main()
