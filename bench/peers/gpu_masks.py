"""The peer of bench/gpu/masks.lua in PyTorch, with the kernels that it chooses by itself."""
import torch, torch.nn.functional as F
from gpu_measure import backward, leaf, normal, show

attend = F.scaled_dot_product_attention
for b, h, t, d in ((1, 12, 1024, 64), (1, 32, 8192, 128), (8, 32, 4096, 128)):
    q, k, v = (normal("bf16", b, h, n, d) for n in (1, t, t))
    show(f"one query b{b} h{h} k{t} d{d}", lambda: attend(q, k, v))

chance = lambda *shape: torch.rand(*shape, device="cuda") > .3
for dtype, b, h, t, d in (("f32", 4, 16, 2048, 64), ("bf16", 4, 16, 2048, 64),
                          ("bf16", 16, 12, 1024, 64), ("bf16", 4, 16, 2048, 128)):
    q, k, v = (leaf(dtype, b, h, t, d) for _ in range(3))
    ways = dict(full={}, causal=dict(is_causal=True))
    if dtype == "bf16":
        ways = {"keys": dict(attn_mask=chance(b, 1, 1, t).expand(b, h, t, t)),
                "square": dict(attn_mask=chance(t, t)),
                "each": dict(attn_mask=chance(b, h, t, t)),
                "float": dict(attn_mask=normal("bf16", b, h, t, t)),
                "dropout": dict(dropout_p=.1),
                "causal dropout": dict(dropout_p=.1, is_causal=True)}
    for what, options in ways.items():
        name = f"{dtype} b{b} h{h} t{t} d{d} {what}"
        attention = lambda: attend(q, k, v, **options)
        show(f"{name} forward", attention)
        backward(f"{name} backward", attention(), (q, k, v))
