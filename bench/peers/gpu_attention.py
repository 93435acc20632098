"""The peer of bench/gpu/attention.lua in PyTorch: FlashAttention, and cuDNN."""
import torch, torch.nn.functional as F
from torch.nn.attention import SDPBackend, sdpa_kernel
from gpu_measure import backward, leaf, show

shapes = [(16, 12, 1024, 64), (64, 12, 1024, 64)]
shapes += [(16384 // t, 2048 // d, t, d) for d in (64, 128)
           for t in (1024, 2048, 4096, 8192, 16384)]
for b, h, t, d in shapes:
    q, k, v = (leaf("bf16", b, h, t, d) for _ in range(3))
    for causal in (False, True):
        name = f"b{b} h{h} t{t} d{d} {'causal' if causal else 'full'}"
        attention = lambda: F.scaled_dot_product_attention(q, k, v, is_causal=causal)
        for backend, note in ((SDPBackend.FLASH_ATTENTION, ""),
                              (SDPBackend.CUDNN_ATTENTION, " [cuDNN]")):
            with sdpa_kernel(backend):
                show(f"{name} forward{note}", attention)
                backward(f"{name} backward{note}", attention(), (q, k, v))
