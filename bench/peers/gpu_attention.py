"""The peer of bench/gpu/attention.lua in PyTorch: FlashAttention, and cuDNN where it can."""
import torch, torch.nn.functional as F
from torch.nn.attention import SDPBackend, sdpa_kernel
from gpu_measure import graded, leaf, normal, show

attention = F.scaled_dot_product_attention

def both(name, note, q, k, v, **options):
    dy = torch.randn_like(q)
    def step():
        attention(q, k, v, **options).backward(dy); q.grad = k.grad = v.grad = None
    show(f"{name} forward{note}", lambda: attention(q, k, v, **options))
    graded(f"{name} forward and backward{note}", step)

for b, h, t, d in ((4, 16, 4096, 128), (1, 16, 16384, 128), (16, 12, 1024, 64),
                   (16, 12, 1152, 64), (64, 12, 1024, 64), (1, 32, 16384, 64)):
    q, k, v = (leaf("bf16", b, h, t, d) for _ in range(3))
    for causal in (False, True):
        name = f"bf16 b{b} h{h} t{t} d{d} {'causal' if causal else 'full'}"
        for backend, note in ((SDPBackend.FLASH_ATTENTION, ""),
                              (SDPBackend.CUDNN_ATTENTION, " [cuDNN]")):
            with sdpa_kernel(backend): both(name, note, q, k, v, is_causal=causal)

for b, h, t, d in ((1, 12, 1024, 64), (1, 32, 8192, 128), (8, 32, 4096, 128)):
    q, k, v = (normal("bf16", b, h, n, d) for n in (1, t, t))
    show(f"decode bf16 b{b} h{h} k{t} d{d}", lambda: attention(q, k, v))

shape = (4, 16, 2048, 64)
x = normal("f32", *shape)
show("f32 b4 h16 t2048 d64 full forward", lambda: attention(x, x, x))
q, k, v = (leaf("bf16", *shape) for _ in range(3))
keys = (torch.rand(4, 1, 1, 2048, device="cuda") > .3).expand(4, 16, 2048, 2048)
both("bf16 b4 h16 t2048 d64 bool keys", "", q, k, v, attn_mask=keys)
both("bf16 b4 h16 t2048 d64 dropout", "", q, k, v, dropout_p=.1)
