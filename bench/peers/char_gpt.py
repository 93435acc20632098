"""The recipe of examples/char_gpt.lua in PyTorch, with the same evaluation.

    python char_gpt.py TEXT THREADS STEPS SEED [cuda|compiled]

With `cuda` it is nanoGPT's setting for GPUs in bf16 autocast: 6 layers, 6 heads,
384 wide, block 256, batch 64, dropout 0.2; with `compiled` by torch.compile, too.
Prints `step_ms` (the median; on a GPU of runs of 50 steps) and, evaluated over
the whole validation split in windows that do not overlap, `val_loss`.
"""

import math
import sys
import time

import torch
import torch.nn as nn
import torch.nn.functional as F

text = open(sys.argv[1]).read()
torch.set_num_threads(int(sys.argv[2]))
steps, seed = int(sys.argv[3]), int(sys.argv[4])
way = sys.argv[5] if len(sys.argv) > 5 else "cpu"
GPU = way != "cpu"
DEVICE = "cuda" if GPU else "cpu"
LAYERS, HEADS, WIDTH, BLOCK, BATCH, DROP = (
    (6, 6, 384, 256, 64, 0.2) if GPU else (4, 4, 128, 64, 12, 0.0))
LR, RUN = 1e-3, 50 if GPU else 1
torch.manual_seed(seed)


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.norm1 = nn.LayerNorm(WIDTH, bias=False)
        self.norm2 = nn.LayerNorm(WIDTH, bias=False)
        self.qkv = nn.Linear(WIDTH, 3 * WIDTH, bias=False)
        self.proj = nn.Linear(WIDTH, WIDTH, bias=False)
        self.up = nn.Linear(WIDTH, 4 * WIDTH, bias=False)
        self.down = nn.Linear(4 * WIDTH, WIDTH, bias=False)
        self.drop = nn.Dropout(DROP)

    def forward(self, x):
        b, t, c = x.shape
        qkv = self.qkv(self.norm1(x)).view(b, t, 3, HEADS, c // HEADS)
        q, k, v = qkv.permute(2, 0, 3, 1, 4)
        y = F.scaled_dot_product_attention(
            q, k, v, is_causal=True, dropout_p=DROP if self.training else 0.0)
        x = x + self.drop(self.proj(y.transpose(1, 2).reshape(b, t, c)))
        return x + self.drop(self.down(F.gelu(self.up(self.norm2(x)))))


class GPT(nn.Module):
    def __init__(self, vocabulary):
        super().__init__()
        self.tokens = nn.Embedding(vocabulary, WIDTH)
        self.places = nn.Embedding(BLOCK, WIDTH)
        self.blocks = nn.ModuleList(Block() for _ in range(LAYERS))
        self.norm = nn.LayerNorm(WIDTH, bias=False)
        self.drop = nn.Dropout(DROP)
        for name, p in self.named_parameters():
            if p.dim() > 1:
                deep = name.endswith(("proj.weight", "down.weight"))
                nn.init.normal_(p, std=0.02 / math.sqrt(2 * LAYERS) if deep else 0.02)

    def forward(self, index, target):
        x = self.drop(self.tokens(index) + self.places.weight[: index.shape[1]])
        for block in self.blocks:
            x = block(x)
        logits = F.linear(self.norm(x), self.tokens.weight)
        return F.cross_entropy(logits.flatten(0, 1), target.flatten())


letters = sorted(set(text))
number = {c: i for i, c in enumerate(letters)}
data = torch.tensor([number[c] for c in text])
cut = int(0.9 * len(data))
train, held = data[:cut], data[cut:]
model = GPT(len(letters)).to(DEVICE)
matrices = [p for p in model.parameters() if p.dim() > 1]
vectors = [p for p in model.parameters() if p.dim() < 2]
optimizer = torch.optim.AdamW(
    [{"params": matrices, "weight_decay": 0.1}, {"params": vectors, "weight_decay": 0.0}],
    LR, betas=(0.9, 0.99), fused=True)

forward = torch.compile(model) if way == "compiled" else model
precision = torch.autocast(DEVICE, torch.bfloat16, enabled=GPU)


def to_device(x):
    return x.pin_memory().to(DEVICE, non_blocking=True) if GPU else x


times = []
start = time.perf_counter()
for step in range(steps):
    if step < 100:
        lr = LR * (step + 1) / 100
    else:
        done = (step - 100) / max(1, steps - 100)
        lr = LR * (0.1 + 0.9 * 0.5 * (1 + math.cos(math.pi * done)))
    for group in optimizer.param_groups:
        group["lr"] = lr
    at = torch.randint(len(train) - BLOCK, (BATCH,)).tolist()
    x = to_device(torch.stack([train[i:i + BLOCK] for i in at]))
    y = to_device(torch.stack([train[i + 1:i + BLOCK + 1] for i in at]))
    with precision:
        loss = forward(x, y)
    optimizer.zero_grad(set_to_none=True)
    loss.backward()
    nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    optimizer.step()
    if (step + 1) % RUN == 0:
        loss.item()
        now = time.perf_counter()
        times.append((now - start) / RUN)
        start = now
times = times[1:] or times
times.sort()
print(f"step_ms {times[len(times) // 2] * 1e3:.3f}")

total, count = 0.0, 0
model.eval()
with torch.no_grad(), precision:
    n = (len(held) - 1) // BLOCK
    for i in range(0, n, 64):
        rows = range(i, min(n, i + 64))
        x = torch.stack([held[r * BLOCK:(r + 1) * BLOCK] for r in rows])
        y = torch.stack([held[r * BLOCK + 1:(r + 1) * BLOCK + 1] for r in rows])
        total += float(model(x.to(DEVICE), y.to(DEVICE))) * len(rows)
        count += len(rows)
print(f"val_loss {total / count:.4f}")
