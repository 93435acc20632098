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
DEFAULT = ["gpt2", "gpt2:batch=16", "llama", "resnet50", "resnet50:layout=last", "vit", "unet", "lstm", "dlrm", "gat",
           "mlp", "gpt2_decode", "linear_ce", "bert", "mixer", "convnext", "wavenet", "t5", "realnvp", "vae"]


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


def prepare(o, m, gain=1.0, order=()):
    """`order`: the names that come first in the order of bench/models, where PyTorch has another one"""
    m.to(o.device)
    params = dict(m.named_parameters())
    params = {**{name: params[name] for name in order}, **params}
    with torch.no_grad():
        for k, (name, p) in enumerate(params.items(), 1):
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
        inner = torch.compile(f, mode="reduce-overhead")

        def marked(*a):
            torch.compiler.cudagraph_mark_step_begin()  # results of the run before may be overwritten
            return inner(*a)
        return marked
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
        return loss.detach().clone() if o.mode == "graphs" else loss.detach()
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


# --- ViT-B/16 ---

class ViTBlock(nn.Module):
    def __init__(self, o):
        super().__init__()
        d, self.heads = o.width, o.heads
        self.norm1 = nn.LayerNorm(d)
        self.qkv = nn.Linear(d, 3 * d)
        self.proj = nn.Linear(d, d)
        self.norm2 = nn.LayerNorm(d)
        self.up = nn.Linear(d, 4 * d)
        self.down = nn.Linear(4 * d, d)

    def forward(self, x):
        b, t, d = x.shape
        q, k, v = self.qkv(self.norm1(x)).view(b, t, 3, self.heads, d // self.heads).permute(2, 0, 3, 1, 4)
        y = F.scaled_dot_product_attention(q, k, v)
        x = x + self.proj(y.transpose(1, 2).reshape(b, t, d))
        return x + self.down(F.gelu(self.up(self.norm2(x))))


class ViT(nn.Module):
    def __init__(self, o):
        super().__init__()
        self.patches = nn.Conv2d(3, o.width, o.patch, stride=o.patch)
        self.embed_class = nn.Parameter(torch.zeros(1, 1, o.width))
        self.embed_positions = nn.Parameter(torch.zeros(1, (o.image // o.patch) ** 2 + 1, o.width))
        self.blocks = nn.ModuleList(ViTBlock(o) for _ in range(o.layers))
        self.norm = nn.LayerNorm(o.width)
        self.head = nn.Linear(o.width, o.classes)

    def forward(self, x):
        h = self.patches(x).flatten(2).transpose(1, 2)
        h = torch.cat((self.embed_class.expand(h.shape[0], -1, -1), h), 1) + self.embed_positions
        for block in self.blocks:
            h = block(h)
        return self.head(self.norm(h)[:, 0])


@model("vit", "images",
       dict(batch=2, image=32, patch=8, layers=2, width=32, heads=2, classes=10),
       dict(batch=128, image=224, patch=16, layers=12, width=768, heads=12, classes=1000))
def vit(o):
    # torch.nn.Module lists parameters of a module before those of its children, flare in order of assignment
    m = prepare(o, ViT(o), order=("patches.weight", "patches.bias", "embed_class", "embed_positions"))
    x, y = numbers(o, (o.batch, 3, o.image, o.image)), ids(o, o.classes, (o.batch,))
    return m, o.batch, training(o, m, adamw(o, m, 0.05), lambda: F.cross_entropy(m(x), y), 1.0)


# --- the U-Net of a diffusion model ---

class Res(nn.Module):
    def __init__(self, o, inputs, outputs):
        super().__init__()
        self.norm1 = nn.GroupNorm(o.groups, inputs)
        self.conv1 = nn.Conv2d(inputs, outputs, 3, padding=1)
        self.time = nn.Linear(4 * o.width, outputs)
        self.norm2 = nn.GroupNorm(o.groups, outputs)
        self.drop = nn.Dropout(o.dropout)
        self.conv2 = nn.Conv2d(outputs, outputs, 3, padding=1)
        self.short = nn.Conv2d(inputs, outputs, 1) if inputs != outputs else None

    def forward(self, x, t):
        h = self.conv1(F.silu(self.norm1(x)))
        h = h + self.time(F.silu(t))[:, :, None, None]
        h = self.conv2(self.drop(F.silu(self.norm2(h))))
        return h + (self.short(x) if self.short is not None else x)


class UNetAttention(nn.Module):
    def __init__(self, o, width):
        super().__init__()
        self.heads = width // o.head
        self.norm = nn.GroupNorm(o.groups, width)
        self.qkv = nn.Conv2d(width, 3 * width, 1)
        self.proj = nn.Conv2d(width, width, 1)

    def forward(self, x):
        b, d, h, w = x.shape
        q, k, v = self.qkv(self.norm(x)).view(b, 3, self.heads, d // self.heads, h * w).permute(1, 0, 2, 4, 3)
        y = F.scaled_dot_product_attention(q, k, v)
        return x + self.proj(y.transpose(2, 3).reshape(x.shape))


class Stage(nn.Module):
    def __init__(self, o, level, inputs, outputs):
        super().__init__()
        self.res = Res(o, inputs, outputs)
        self.attention = UNetAttention(o, outputs) if level >= len(o.factors) - 2 else None

    def forward(self, h, t):
        h = self.res(h, t)
        return self.attention(h) if self.attention is not None else h


class UNet(nn.Module):
    def __init__(self, o):
        super().__init__()
        self.width = c = o.width
        self.time1, self.time2 = nn.Linear(c, 4 * c), nn.Linear(4 * c, 4 * c)
        self.first = nn.Conv2d(4, c, 3, padding=1)
        self.down, self.up = nn.ModuleList(), nn.ModuleList()
        skips = [c]
        for level, factor in enumerate(o.factors):
            for _ in range(o.depth):
                self.down.append(Stage(o, level, c, o.width * factor))
                c = o.width * factor
                skips.append(c)
            if level < len(o.factors) - 1:
                self.down.append(nn.Conv2d(c, c, 3, stride=2, padding=1))
                skips.append(c)
        middle = Res(o, c, c), UNetAttention(o, c), Res(o, c, c)
        for level in reversed(range(len(o.factors))):
            for _ in range(o.depth + 1):
                outputs = o.width * o.factors[level]
                self.up.append(Stage(o, level, c + skips.pop(), outputs))
                c = outputs
            if level > 0:
                self.up.append(nn.Conv2d(c, c, 3, padding=1))
        self.middle1, self.middle2, self.middle3 = middle
        self.norm = nn.GroupNorm(o.groups, c)
        self.last = nn.Conv2d(c, 4, 3, padding=1)

    def forward(self, x, t):
        half = self.width // 2
        rates = (torch.arange(half, device=x.device).float() * (-math.log(10000) / half)).exp()
        angles = t.float()[:, None] * rates
        t = self.time2(F.silu(self.time1(torch.cat((angles.sin(), angles.cos()), 1))))
        h = self.first(x)
        skips = [h]
        for s in self.down:
            h = s(h, t) if isinstance(s, Stage) else s(h)
            skips.append(h)
        h = self.middle3(self.middle2(self.middle1(h, t)), t)
        for s in self.up:
            if isinstance(s, Stage):
                h = s(torch.cat((h, skips.pop()), 1), t)
            else:
                h = s(F.interpolate(h, scale_factor=2))
        return self.last(F.silu(self.norm(h)))


@model("unet", "images",
       dict(batch=2, image=8, width=8, factors=(1, 2, 2), depth=1, groups=4, head=8, dropout=0.1, noise="drawn"),
       dict(batch=32, image=64, width=128, factors=(1, 2, 3, 4), depth=2, groups=32, head=64, dropout=0,
            noise="drawn"))
def unet(o):
    m = prepare(o, UNet(o))
    optimizer = torch.optim.AdamW(m.parameters(), 1e-4, weight_decay=0.01, **fused(o))
    x = numbers(o, (o.batch, 4, o.image, o.image))
    noise, times = numbers(o, x.shape, 3), ids(o, 1000, (o.batch,))
    kept = (1 - torch.linspace(1e-4, 0.02, 1000, device=o.device)).cumprod(0)

    def forward():
        e, t = noise, times
        if o.noise == "drawn":
            e, t = torch.randn_like(x), torch.randint(1000, (o.batch,), device=o.device)
        a = kept[t].view(-1, 1, 1, 1)
        return F.mse_loss(m(a.sqrt() * x + (1 - a).sqrt() * e, t).float(), e)
    return m, o.batch, training(o, m, optimizer, forward, 1.0)


# --- the LSTM language model ---

class LSTMModel(nn.Module):
    def __init__(self, o):
        super().__init__()
        self.embed = nn.Embedding(o.vocabulary, o.width)
        self.drop = nn.Dropout(o.dropout)
        self.lstm = nn.LSTM(o.width, o.width, o.layers, dropout=o.dropout)
        self.head = nn.Linear(o.width, o.vocabulary)

    def forward(self, x, y, h, c):
        z, (h, c) = self.lstm(self.drop(self.embed(x)), (h, c))
        return F.cross_entropy(self.head(self.drop(z)).flatten(0, 1), y.flatten()), h, c


@model("lstm", "tokens",
       dict(batch=3, time=7, layers=2, width=16, vocabulary=40, dropout=0.2),
       dict(batch=128, time=128, layers=2, width=1024, vocabulary=32768, dropout=0.2))
def lstm(o):
    m = prepare(o, LSTMModel(o))
    optimizer = torch.optim.SGD(m.parameters(), 1.0, **fused(o))
    text = ids(o, o.vocabulary, (o.time + 1, o.batch))
    x, y = text[:-1], text[1:]
    state = [torch.zeros(o.layers, o.batch, o.width, device=o.device) for _ in range(2)]
    inner = compiled(o, m)

    def forward():
        loss, h, c = inner(x, y, *state)
        state[:] = h.detach().clone(), c.detach().clone()
        return loss
    return m, o.batch * o.time, training(Options(o, mode="eager"), m, optimizer, forward, 0.25)


# --- DLRM ---

def mlp_of(sizes):
    layers = []
    for a, b in zip(sizes, sizes[1:]):
        layers += [nn.Linear(a, b), nn.ReLU()]
    return nn.Sequential(*layers[:-1])


class DLRM(nn.Module):
    def __init__(self, o):
        super().__init__()
        self.bottom = mlp_of((13, o.hidden, o.hidden // 2, o.width))
        self.embed = nn.ModuleList(nn.EmbeddingBag(o.rows, o.width, mode="sum") for _ in range(o.tables))
        n = o.tables + 1
        pairs = [i * n + j for i in range(n) for j in range(i)]
        self.register_buffer("pairs", torch.tensor(pairs))
        self.top = mlp_of((o.width + len(pairs), o.hidden, o.hidden // 2, 1))

    def forward(self, x, categories):
        dense = self.bottom(x).relu()
        vectors = torch.stack([dense] + [bag(c) for bag, c in zip(self.embed, categories)], 1)
        products = vectors.matmul(vectors.transpose(1, 2)).flatten(1).index_select(1, self.pairs)
        return self.top(torch.cat((dense, products), 1)).squeeze(1)


@model("dlrm", "samples",
       dict(batch=8, tables=3, rows=20, bag=2, width=8, hidden=16),
       dict(batch=8192, tables=26, rows=100000, bag=4, width=64, hidden=512))
def dlrm(o):
    m = prepare(o, DLRM(o))
    optimizer = torch.optim.SGD(m.parameters(), 0.1, **fused(o))
    x = numbers(o, (o.batch, 13))
    categories = [ids(o, o.rows, (o.batch, o.bag), 201 + k) for k in range(o.tables)]
    clicks = ids(o, 2, (o.batch,)).float()
    return m, o.batch, training(o, m, optimizer, lambda: F.binary_cross_entropy_with_logits(
        m(x, categories).float(), clicks))


# --- GAT ---

class GATLayer(nn.Module):
    def __init__(self, inputs, heads, size):
        super().__init__()
        self.heads, self.size = heads, size
        self.linear = nn.Linear(inputs, heads * size, bias=False)
        self.source = nn.Parameter(torch.zeros(1, heads, size))
        self.target = nn.Parameter(torch.zeros(1, heads, size))
        self.bias = nn.Parameter(torch.zeros(heads * size))

    def forward(self, x, source, target):
        nodes, edges, width = x.shape[0], source.shape[0], self.heads * self.size
        h = self.linear(x)
        parts = h.view(nodes, self.heads, self.size)
        a, b = (parts * self.source).sum(2), (parts * self.target).sum(2)
        by_head = target[:, None].expand(edges, self.heads)
        score = a.gather(0, source[:, None].expand(edges, self.heads)) + b.gather(0, by_head)
        score = F.leaky_relu(score, 0.2)
        weight = (score - score.amax().detach()).exp()
        total = torch.zeros(nodes, self.heads, device=x.device).scatter_add(0, by_head, weight)
        weight = weight / (total.gather(0, by_head) + 1e-16)
        message = h.index_select(0, source).view(edges, self.heads, self.size) * weight[:, :, None]
        y = torch.zeros(nodes, width, device=x.device).scatter_add(
            0, target[:, None].expand(edges, width), message.view(edges, width))
        return y + self.bias


class GAT(nn.Module):
    def __init__(self, o):
        super().__init__()
        self.layer1 = GATLayer(o.inputs, o.heads, o.width)
        self.layer2 = GATLayer(o.heads * o.width, 1, o.classes)
        self.drop = nn.Dropout(o.dropout)

    def forward(self, x, source, target):
        h = F.elu(self.layer1(self.drop(x), source, target))
        return self.layer2(self.drop(h), source, target)


@model("gat", "edges",
       dict(nodes=12, edges=40, inputs=6, heads=2, width=4, classes=3, dropout=0.2, amp="none"),
       dict(nodes=65536, edges=1048576, inputs=128, heads=4, width=64, classes=40, dropout=0.2, amp="none"))
def gat(o):
    order = [f"layer{k}.{name}" for k in (1, 2) for name in ("linear.weight", "source", "target", "bias")]
    m = prepare(o, GAT(o), order=order)
    optimizer = torch.optim.Adam(m.parameters(), 5e-3, weight_decay=5e-4, **fused(o))
    x, y = numbers(o, (o.nodes, o.inputs)), ids(o, o.classes, (o.nodes,))
    source, target = ids(o, o.nodes, (o.edges,), 3), ids(o, o.nodes, (o.edges,), 4)
    return m, o.edges, training(o, m, optimizer, lambda: F.cross_entropy(m(x, source, target), y))


# --- a small network ---

@model("mlp", "steps", dict(batch=8, width=32, amp="none"), dict(batch=128, width=256, amp="none"),
       steps=2000, read=100)
def mlp(o):
    m = prepare(o, mlp_of((784, o.width, o.width // 2, 10)))
    optimizer = torch.optim.Adam(m.parameters(), 1e-3, **fused(o))
    x, y = numbers(o, (o.batch, 784)), ids(o, 10, (o.batch,))
    return m, 1, training(o, m, optimizer, lambda: F.cross_entropy(m(x), y))


# --- decoding ---

class DecodeBlock(nn.Module):
    def __init__(self, o):
        super().__init__()
        d, self.heads = o.width, o.heads
        self.norm1 = nn.LayerNorm(d)
        self.qkv = nn.Linear(d, 3 * d)
        self.proj = nn.Linear(d, d)
        self.norm2 = nn.LayerNorm(d)
        self.up = nn.Linear(d, 4 * d)
        self.down = nn.Linear(4 * d, d)
        self.register_buffer("cache", torch.zeros(2, 1, o.heads, o.time, d // o.heads))

    def forward(self, x, position, mask):
        heads = self.qkv(self.norm1(x)).view(1, 1, 3, self.heads, -1).permute(2, 0, 3, 1, 4)
        self.cache.index_copy_(3, position, heads[1:])  # keys and values
        y = F.scaled_dot_product_attention(heads[0], self.cache[0], self.cache[1], attn_mask=mask)
        x = x + self.proj(y.transpose(1, 2).reshape(x.shape))
        return x + self.down(F.gelu(self.up(self.norm2(x)), approximate="tanh"))


class DecodeGPT(nn.Module):
    def __init__(self, o):
        super().__init__()
        self.embed = nn.Embedding(o.vocabulary, o.width)
        self.embed_positions = nn.Embedding(o.time, o.width)
        self.blocks = nn.ModuleList(DecodeBlock(o) for _ in range(o.layers))
        self.norm = nn.LayerNorm(o.width)
        self.register_buffer("all", torch.arange(o.time))

    def forward(self, token, position):
        h = self.embed(token) + self.embed_positions(position)
        mask = (self.all <= position).view(1, 1, 1, -1)
        for block in self.blocks:
            h = block(h, position, mask)
        return F.linear(self.norm(h), self.embed.weight).argmax(2)


def decoding(o, m):
    state = [ids(o, o.vocabulary, (1, 1)), ids(o, 1, (1,))]
    inner = compiled(o, m)

    def step():
        with torch.no_grad():
            token = inner(*state)
            state[:] = token.clone() if o.mode == "graphs" else token, (state[1] + 1) % o.time
            return token
    return step


@model("gpt2_decode", "tokens",
       dict(time=6, layers=2, width=32, heads=2, vocabulary=64, dtype="f32"),
       dict(time=1024, layers=12, width=768, heads=12, vocabulary=50304, dtype="bf16"), steps=500)
def gpt2_decode(o):
    m = prepare(o, DecodeGPT(o)).to(torch.bfloat16 if o.dtype == "bf16" else torch.float32)
    return m, 1, decoding(o, m)


class DecodeRMSNorm(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(width))

    def forward(self, x):
        y = x.float()
        return (y / ((y * y).mean(-1, keepdim=True) + 1e-5).sqrt()).to(x.dtype) * self.weight


class DecodeLlamaBlock(nn.Module):
    def __init__(self, o):
        super().__init__()
        d, self.heads, self.groups, self.size = o.width, o.heads, o.groups, o.width // o.heads
        self.hidden = o.hidden
        self.norm1 = DecodeRMSNorm(d)
        self.qkv = nn.Linear(d, d + 2 * o.groups * self.size, bias=False)
        self.out = nn.Linear(d, d, bias=False)
        self.norm2 = DecodeRMSNorm(d)
        self.up = nn.Linear(d, 2 * o.hidden, bias=False)
        self.down = nn.Linear(o.hidden, d, bias=False)
        self.register_buffer("keys", torch.zeros(1, o.groups, o.time, self.size))
        self.register_buffer("values", torch.zeros(1, o.groups, o.time, self.size))

    def forward(self, x, position, mask, cos, sin):
        h = self.qkv(self.norm1(x)).view(1, -1, 1, self.size)
        turned, v = h.split((self.heads + self.groups, self.groups), 1)
        q, k = rotate(turned, cos, sin).split((self.heads, self.groups), 1)
        self.keys.index_copy_(2, position, k)
        self.values.index_copy_(2, position, v)
        y = F.scaled_dot_product_attention(rotate(q, cos, sin), self.keys, self.values, attn_mask=mask,
                                           enable_gqa=True)
        x = x + self.out(y.reshape(x.shape))
        gate, up = self.up(self.norm2(x)).split(self.hidden, 2)
        return x + self.down(F.silu(gate) * up)


class DecodeLlama(nn.Module):
    def __init__(self, o):
        super().__init__()
        self.embed = nn.Embedding(o.vocabulary, o.width)
        self.blocks = nn.ModuleList(DecodeLlamaBlock(o) for _ in range(o.layers))
        self.norm = DecodeRMSNorm(o.width)
        self.head = nn.Linear(o.width, o.vocabulary, bias=False)
        half = o.width // o.heads // 2
        rates = torch.exp(torch.arange(half) * (-math.log(500000) / half))
        angles = torch.outer(torch.arange(o.time), rates)
        self.register_buffer("cos", angles.cos())
        self.register_buffer("sin", angles.sin())
        self.register_buffer("all", torch.arange(o.time))

    def forward(self, token, position):
        h = self.embed(token)
        mask = (self.all <= position).view(1, 1, 1, -1)
        cos, sin = self.cos.index_select(0, position), self.sin.index_select(0, position)
        for block in self.blocks:
            h = block(h, position, mask, cos, sin)
        return self.head(self.norm(h)).argmax(2)


@model("llama_decode", "tokens",
       dict(time=6, layers=2, width=64, heads=4, groups=2, hidden=96, vocabulary=64, dtype="f32",
            bits=16, group=32),
       dict(time=2048, layers=16, width=2048, heads=32, groups=8, hidden=8192, vocabulary=128256,
            dtype="bf16", bits=16, group=128), steps=300)
def llama_decode(o):
    if o.bits != 16:
        raise ValueError("llama_decode: weights of 4 and 8 bits have no peer here")
    m = prepare(o, DecodeLlama(o)).to(torch.bfloat16 if o.dtype == "bf16" else torch.float32)
    return m, 1, decoding(o, m)


# --- a linear layer and cross-entropy ---

@model("linear_ce", "rows", dict(rows=16, width=8, classes=50), dict(rows=16384, width=768, classes=50304))
def linear_ce(o):
    m = prepare(o, nn.Linear(o.width, o.classes, bias=False))
    x, y = numbers(o, (o.rows, o.width)).requires_grad_(), ids(o, o.classes, (o.rows,))
    forward = compiled(o, lambda: F.cross_entropy(m(x), y))

    def step():
        m.zero_grad(set_to_none=True)
        x.grad = None
        with autocast(o):
            loss = forward()
        loss.backward()
        return loss.detach().clone() if o.mode == "graphs" else loss.detach()
    return m, o.rows, step


# --- BERT-base ---

class BERTBlock(nn.Module):
    def __init__(self, o):
        super().__init__()
        d, self.heads, self.p = o.width, o.heads, o.dropout
        self.q, self.k = nn.Linear(d, d), nn.Linear(d, d)
        self.v = nn.Linear(d, d)
        self.out = nn.Linear(d, d)
        self.norm1 = nn.LayerNorm(d, eps=1e-12)
        self.up, self.down = nn.Linear(d, 4 * d), nn.Linear(4 * d, d)
        self.norm2 = nn.LayerNorm(d, eps=1e-12)
        self.drop = nn.Dropout(o.dropout)

    def forward(self, x):
        b, t, d = x.shape
        q, k, v = (f(x).view(b, t, self.heads, -1).transpose(1, 2) for f in (self.q, self.k, self.v))
        y = F.scaled_dot_product_attention(q, k, v, dropout_p=self.p if self.training else 0)
        x = self.norm1(x + self.drop(self.out(y.transpose(1, 2).reshape(b, t, d))))
        return self.norm2(x + self.drop(self.down(F.gelu(self.up(x)))))


class BERT(nn.Module):
    def __init__(self, o):
        super().__init__()
        self.embed = nn.Embedding(o.vocabulary, o.width)
        self.embed_positions = nn.Embedding(o.time, o.width)
        self.embed_types = nn.Embedding(2, o.width)
        self.norm = nn.LayerNorm(o.width, eps=1e-12)
        self.drop = nn.Dropout(o.dropout)
        self.blocks = nn.ModuleList(BERTBlock(o) for _ in range(o.layers))
        self.dense = nn.Linear(o.width, o.width)
        self.norm_head = nn.LayerNorm(o.width, eps=1e-12)
        self.bias = nn.Parameter(torch.zeros(o.vocabulary))

    def forward(self, x, types, labels):
        h = self.embed(x) + self.embed_positions.weight[:x.shape[1]] + self.embed_types(types)
        h = self.drop(self.norm(h))
        for block in self.blocks:
            h = block(h)
        logits = F.linear(self.norm_head(F.gelu(self.dense(h))), self.embed.weight, self.bias)
        return F.cross_entropy(logits.flatten(0, 1), labels.flatten())


@model("bert", "tokens",
       dict(batch=3, time=16, layers=2, width=32, heads=2, vocabulary=60, dropout=0.1),
       dict(batch=32, time=512, layers=12, width=768, heads=12, vocabulary=30522, dropout=0.1))
def bert(o):
    m = BERT(o)
    m = prepare(o, m, order=[n for n, _ in m.named_parameters() if n != "bias"])
    optimizer = torch.optim.AdamW(m.parameters(), 1e-4, weight_decay=0.01, **fused(o))
    x, types = ids(o, o.vocabulary, (o.batch, o.time)), ids(o, 2, (o.batch, 1), 3)
    masked = ids(o, 100, (o.batch, o.time), 4) < 15
    labels, x = torch.where(masked, x, -100), torch.where(masked, 3, x)
    types = types.expand(o.batch, o.time).contiguous()
    return m, o.batch * o.time, training(o, m, optimizer, lambda: m(x, types, labels), 1.0)


# --- MLP-Mixer ---

class MixerBlock(nn.Module):
    def __init__(self, o, patches):
        super().__init__()
        d = o.width
        self.norm1 = nn.LayerNorm(d)
        self.up1, self.down1 = nn.Linear(patches, o.hidden), nn.Linear(o.hidden, patches)
        self.norm2 = nn.LayerNorm(d)
        self.up2, self.down2 = nn.Linear(d, 4 * d), nn.Linear(4 * d, d)

    def forward(self, x):
        y = self.norm1(x).transpose(1, 2)
        x = x + self.down1(F.gelu(self.up1(y))).transpose(1, 2)
        return x + self.down2(F.gelu(self.up2(self.norm2(x))))


class Mixer(nn.Module):
    def __init__(self, o):
        super().__init__()
        self.patches = nn.Conv2d(3, o.width, o.patch, stride=o.patch)
        self.blocks = nn.ModuleList(MixerBlock(o, (o.image // o.patch) ** 2) for _ in range(o.layers))
        self.norm = nn.LayerNorm(o.width)
        self.head = nn.Linear(o.width, o.classes)

    def forward(self, x):
        h = self.patches(x).flatten(2).transpose(1, 2)
        for block in self.blocks:
            h = block(h)
        return self.head(self.norm(h).mean(1))


@model("mixer", "images",
       dict(batch=2, image=32, patch=8, layers=2, width=32, hidden=24, classes=10),
       dict(batch=128, image=224, patch=16, layers=12, width=768, hidden=384, classes=1000))
def mixer(o):
    m = prepare(o, Mixer(o))
    x, y = numbers(o, (o.batch, 3, o.image, o.image)), ids(o, o.classes, (o.batch,))
    return m, o.batch, training(o, m, adamw(o, m, 0.1), lambda: F.cross_entropy(m(x), y, label_smoothing=0.1), 1.0)


# --- ConvNeXt-T ---

class ConvNeXtBlock(nn.Module):
    def __init__(self, width, p):
        super().__init__()
        self.p = p
        self.depthwise = nn.Conv2d(width, width, 7, padding=3, groups=width)
        self.norm = nn.LayerNorm(width, eps=1e-6)
        self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)
        self.scale = nn.Parameter(torch.ones(width))

    def forward(self, x):
        y = self.norm(self.depthwise(x).permute(0, 2, 3, 1))
        y = (self.down(F.gelu(self.up(y))) * self.scale).permute(0, 3, 1, 2)
        if self.training and self.p > 0:
            kept = torch.full((x.shape[0], 1, 1, 1), 1 - self.p, device=x.device)
            y = y * (torch.bernoulli(kept) / (1 - self.p))
        return x + y


class ChannelNorm(nn.LayerNorm):
    def forward(self, x):
        return super().forward(x.permute(0, 2, 3, 1)).permute(0, 3, 1, 2)


class ConvNeXt(nn.Module):
    def __init__(self, o):
        super().__init__()
        self.parts = nn.ModuleList()
        blocks = 0
        for stage, depth in enumerate(o.depths):
            width = o.width << stage
            if stage == 0:
                self.parts.append(nn.Conv2d(3, width, 4, stride=4))
                self.parts.append(ChannelNorm(width, eps=1e-6))
            else:
                self.parts.append(ChannelNorm(width // 2, eps=1e-6))
                self.parts.append(nn.Conv2d(width // 2, width, 2, stride=2))
            for _ in range(depth):
                self.parts.append(ConvNeXtBlock(width, o.dropout * blocks / (sum(o.depths) - 1)))
                blocks += 1
        last = o.width << (len(o.depths) - 1)
        self.norm = nn.LayerNorm(last, eps=1e-6)
        self.head = nn.Linear(last, o.classes)

    def forward(self, x):
        for part in self.parts:
            x = part(x)
        return self.head(self.norm(x.mean((2, 3))))


@model("convnext", "images",
       dict(batch=4, image=32, width=8, depths=(1, 2), classes=10, dropout=0.3),
       dict(batch=128, image=224, width=96, depths=(3, 3, 9, 3), classes=1000, dropout=0.1))
def convnext(o):
    m = ConvNeXt(o)
    # the scale of a block is a parameter of its own, which torch.nn.Module lists before those of the layers
    order = []
    for name, _ in m.named_parameters():
        if name.endswith(".scale"):
            held = name
        else:
            order.append(name)
            if name.endswith("down.bias"):
                order.append(held)
    m = prepare(o, m, order=order)
    x, y = numbers(o, (o.batch, 3, o.image, o.image)), ids(o, o.classes, (o.batch,))
    return m, o.batch, training(o, m, adamw(o, m, 0.05), lambda: F.cross_entropy(m(x), y))


# --- WaveNet ---

class WaveNetLayer(nn.Module):
    def __init__(self, o, dilation):
        super().__init__()
        self.dilation = dilation
        self.filter = nn.Conv1d(o.width, o.width, 2, dilation=dilation)
        self.gate = nn.Conv1d(o.width, o.width, 2, dilation=dilation)
        self.residual = nn.Conv1d(o.width, o.width, 1)
        self.skip = nn.Conv1d(o.width, o.skip, 1)

    def forward(self, x):
        padded = F.pad(x, (self.dilation, 0))
        z = self.filter(padded).tanh() * self.gate(padded).sigmoid()
        return x + self.residual(z), self.skip(z)


class WaveNet(nn.Module):
    def __init__(self, o):
        super().__init__()
        self.embed = nn.Embedding(o.classes, o.width)
        self.layers = nn.ModuleList(WaveNetLayer(o, 1 << k) for _ in range(o.cycles) for k in range(o.depth))
        self.last1, self.last2 = nn.Conv1d(o.skip, o.skip, 1), nn.Conv1d(o.skip, o.classes, 1)

    def forward(self, x):
        h, total = self.embed(x).transpose(1, 2), 0
        for layer in self.layers:
            h, skip = layer(h)
            total = total + skip
        return self.last2(self.last1(total.relu()).relu())


@model("wavenet", "samples",
       dict(batch=2, time=40, width=8, skip=16, classes=16, cycles=1, depth=3),
       dict(batch=8, time=16000, width=128, skip=256, classes=256, cycles=3, depth=10))
def wavenet(o):
    m = prepare(o, WaveNet(o))
    optimizer = torch.optim.Adam(m.parameters(), 3e-4, **fused(o))
    sound = ids(o, o.classes, (o.batch, o.time + 1))
    x, y = sound[:, :-1].contiguous(), sound[:, 1:].contiguous()
    return m, o.batch * o.time, training(o, m, optimizer, lambda: F.cross_entropy(m(x), y))


# --- T5 ---

class T5Norm(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(width))

    def forward(self, x):
        x = x.float()
        return x * ((x * x).mean(-1, keepdim=True) + 1e-6).rsqrt() * self.weight


class T5Attention(nn.Module):
    def __init__(self, o):
        super().__init__()
        d, self.heads = o.width, o.heads
        self.q, self.k = nn.Linear(d, d, bias=False), nn.Linear(d, d, bias=False)
        self.v = nn.Linear(d, d, bias=False)
        self.out = nn.Linear(d, d, bias=False)
        self.drop = nn.Dropout(o.dropout)

    def forward(self, x, memory, bias=None):
        b, t, d = x.shape
        q, k, v = (f(z).view(b, -1, self.heads, d // self.heads).transpose(1, 2)
                   for f, z in ((self.q, x), (self.k, memory), (self.v, memory)))
        scores = q.matmul(k.transpose(2, 3))
        if bias is not None:
            scores = scores + bias
        weights = self.drop(scores.float().softmax(-1))
        return self.out(weights.matmul(v).transpose(1, 2).reshape(b, t, d))


class T5Block(nn.Module):
    def __init__(self, o, decoder):
        super().__init__()
        d = o.width
        self.norm1, self.attention = T5Norm(d), T5Attention(o)
        self.cross = None
        if decoder:
            self.norm2, self.cross = T5Norm(d), T5Attention(o)
        self.norm3 = T5Norm(d)
        self.up = nn.Linear(d, 4 * d, bias=False)
        self.down = nn.Linear(4 * d, d, bias=False)
        self.drop = nn.Dropout(o.dropout)

    def forward(self, x, bias, memory=None):
        h = self.norm1(x)
        x = x + self.drop(self.attention(h, h, bias))
        if self.cross is not None:
            x = x + self.drop(self.cross(self.norm2(x), memory))
        return x + self.drop(self.down(self.drop(self.up(self.norm3(x)).relu())))


def buckets(time, count, both):
    at = torch.arange(time)
    d = at[None, :] - at[:, None]
    base = torch.zeros_like(d)
    if both:
        count //= 2
        base = (d > 0).long() * count
        d = d.abs()
    else:
        d = (-d).clamp(0, time)
    exact = count // 2
    far = ((d.float() / exact).clamp(min=1e-6).log() * ((count - exact) / math.log(128 / exact))).long() + exact
    return base + torch.where(d < exact, d, far.clamp(0, count - 1))


class T5(nn.Module):
    def __init__(self, o):
        super().__init__()
        self.embed = nn.Embedding(o.vocabulary, o.width)
        self.embed_near = nn.Embedding(o.buckets, o.heads)
        self.embed_past = nn.Embedding(o.buckets, o.heads)
        self.encoder = nn.ModuleList(T5Block(o, False) for _ in range(o.layers))
        self.decoder = nn.ModuleList(T5Block(o, True) for _ in range(o.layers))
        self.norm1, self.norm2 = T5Norm(o.width), T5Norm(o.width)
        self.drop, self.factor = nn.Dropout(o.dropout), o.width ** -0.5
        self.register_buffer("near", buckets(o.time, o.buckets, True))
        self.register_buffer("past", buckets(o.target, o.buckets, False))
        self.register_buffer("mask", torch.full((o.target, o.target), -1e9).triu(1))

    def forward(self, x, z, y):
        h = self.drop(self.embed(x))
        bias = self.embed_near(self.near).permute(2, 0, 1)[None]
        for block in self.encoder:
            h = block(h, bias)
        h = self.drop(self.norm1(h))
        g = self.drop(self.embed(z))
        bias = self.embed_past(self.past).permute(2, 0, 1)[None] + self.mask
        for block in self.decoder:
            g = block(g, bias, h)
        g = self.drop(self.norm2(g)) * self.factor
        return F.cross_entropy(F.linear(g, self.embed.weight).flatten(0, 1), y.flatten())


@model("t5", "tokens",
       dict(batch=2, time=24, target=12, layers=1, width=32, heads=2, buckets=8, vocabulary=60, dropout=0.1),
       dict(batch=32, time=512, target=128, layers=6, width=512, heads=8, buckets=32, vocabulary=32128, dropout=0.1))
def t5(o):
    m = prepare(o, T5(o))
    x, text = ids(o, o.vocabulary, (o.batch, o.time)), ids(o, o.vocabulary, (o.batch, o.target + 1), 3)
    z, y = text[:, :-1].contiguous(), text[:, 1:].contiguous()
    return m, o.batch * (o.time + o.target), training(o, m, adamw(o, m, 0.0), lambda: m(x, z, y), 1.0)


# --- RealNVP ---

class Coupling(nn.Module):
    def __init__(self, o, parity):
        super().__init__()
        self.scale = nn.Sequential(nn.Linear(o.size, o.width), nn.LeakyReLU(), nn.Linear(o.width, o.width),
                                   nn.LeakyReLU(), nn.Linear(o.width, o.size), nn.Tanh())
        self.shift = nn.Sequential(nn.Linear(o.size, o.width), nn.LeakyReLU(), nn.Linear(o.width, o.width),
                                   nn.LeakyReLU(), nn.Linear(o.width, o.size))
        self.register_buffer("mask", (torch.arange(o.size) % 2 == parity).float())

    def forward(self, x):
        kept, free = x * self.mask, 1 - self.mask
        s, t = self.scale(kept) * free, self.shift(kept) * free
        return kept + free * ((x - t) * (-s).exp()), -s.sum(1)


class Flow(nn.Module):
    def __init__(self, o):
        super().__init__()
        self.layers = nn.ModuleList(Coupling(o, k % 2) for k in range(1, o.layers + 1))

    def forward(self, x):
        total = torch.zeros(x.shape[0], device=x.device)
        for layer in self.layers:
            x, change = layer(x)
            total = total + change
        density = -0.5 * (x * x + math.log(2 * math.pi))
        return -(density.sum(1) + total).mean()


@model("realnvp", "samples", dict(batch=8, size=6, width=16, layers=4, amp="none"),
       dict(batch=8192, size=64, width=512, layers=12, amp="none"))
def realnvp(o):
    m = prepare(o, Flow(o), 0.5)
    optimizer = torch.optim.Adam(m.parameters(), 1e-4, **fused(o))
    x = numbers(o, (o.batch, o.size))
    return m, o.batch, training(o, m, optimizer, lambda: m(x), 5.0)


# --- VAE ---

class VAE(nn.Module):
    def __init__(self, o):
        super().__init__()
        self.encoder, self.decoder = nn.Sequential(), nn.Sequential()
        c, side = 3, o.image
        for k in range(o.layers):
            width = o.width << k
            self.encoder.extend((nn.Conv2d(c, width, 3, stride=2, padding=1, bias=False), nn.BatchNorm2d(width),
                                 nn.LeakyReLU()))
            c, side = width, side // 2
        self.inner, self.side = c, side
        mean, log_var = nn.Linear(c * side * side, o.latent), nn.Linear(c * side * side, o.latent)
        back = nn.Linear(o.latent, c * side * side)
        for k in reversed(range(o.layers - 1)):
            width = o.width << k
            self.decoder.extend((nn.ConvTranspose2d(c, width, 4, stride=2, padding=1, bias=False),
                                 nn.BatchNorm2d(width), nn.LeakyReLU()))
            c = width
        self.mean, self.log_var, self.back = mean, log_var, back
        self.last = nn.ConvTranspose2d(c, 3, 4, stride=2, padding=1)

    def forward(self, x, noise):
        h = self.encoder(x).flatten(1)
        mean, log_var = self.mean(h).float(), self.log_var(h).float()
        z = mean + (log_var * 0.5).exp() * noise
        y = self.last(self.decoder(self.back(z).view(-1, self.inner, self.side, self.side)))
        loss = F.binary_cross_entropy_with_logits(y.float(), x, reduction="sum")
        kl = -0.5 * (1 + log_var - mean * mean - log_var.exp()).sum()
        return (loss + kl) / x.shape[0]


@model("vae", "images", dict(batch=4, image=16, width=8, layers=2, latent=4, noise="drawn"),
       dict(batch=256, image=64, width=32, layers=4, latent=128, noise="drawn"))
def vae(o):
    m = prepare(o, VAE(o))
    optimizer = torch.optim.Adam(m.parameters(), 1e-3, **fused(o))
    x, fixed = numbers(o, (o.batch, 3, o.image, o.image)).sigmoid(), numbers(o, (o.batch, o.latent), 3)

    def forward():
        return m(x, torch.randn_like(fixed) if o.noise == "drawn" else fixed)
    return m, o.batch, training(o, m, optimizer, forward)


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
