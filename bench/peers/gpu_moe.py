"""The peer of bench/gpu/moe.lua in PyTorch: torch._grouped_mm over tokens sorted by expert."""
import torch, torch.nn.functional as F
from gpu_measure import leaf, normal, seconds, show

tokens, width, hidden, k = 16384, 1024, 4096, 2
rows = tokens * k
torch.manual_seed(1)

def moe(x, router, gate, up, down):
    """Routing in f32, experts in bf16; the balance loss of Switch with it."""
    experts = up.shape[0]
    p = F.linear(x.float(), router.float()).softmax(-1)
    share, chosen = p.topk(k)
    share = share / share.sum(-1, keepdim=True)
    flat = chosen.reshape(-1)
    order = flat.argsort(stable=True)
    load = torch.zeros(experts, dtype=torch.int64, device="cuda").scatter_add(0, flat, torch.ones_like(flat))
    ends = load.cumsum(0).int()
    token = order // k
    h = torch._grouped_mm(x.index_select(0, token), up.transpose(1, 2), offs=ends)
    if gate is None: h = F.gelu(h)
    else: h = F.silu(torch._grouped_mm(x.index_select(0, token), gate.transpose(1, 2), offs=ends)) * h
    y = torch._grouped_mm(h, down.transpose(1, 2), offs=ends)
    y = y * share.reshape(-1)[order].unsqueeze(1).to(y.dtype)
    loss = experts * (load.float() / (tokens * k) * p.mean(0)).sum()
    return torch.zeros_like(x).index_add(0, token, y), .01 * loss

for experts in (8, 64):
    x, dy, w = normal("bf16", rows, width), normal("bf16", rows, hidden), normal("bf16", experts, hidden, width)
    ends = torch.bincount(torch.randint(experts, (rows,), device="cuda"), minlength=experts).cumsum(0).int()
    show(f"grouped E{experts} y", lambda: torch._grouped_mm(x, w.transpose(1, 2), offs=ends))
    show(f"grouped E{experts} dx", lambda: torch._grouped_mm(dy, w, offs=ends))
    show(f"grouped E{experts} dw", lambda: torch._grouped_mm(dy.t(), x, offs=ends))
    show(f"grouped E{experts} dw turned", lambda: torch._grouped_mm(x.t(), dy, offs=ends))
    for gated in (False, True):
        label = f"MoE E{experts} {'swiglu' if gated else 'gelu'}"
        small = lambda *shape: (normal("bf16", *shape) * .02).requires_grad_()
        router, up, down = small(experts, width), small(experts, hidden, width), small(experts, width, hidden)
        gate = small(experts, hidden, width) if gated else None
        leaves = [t for t in (router, gate, up, down) if t is not None]
        inp, out = leaf("bf16", tokens, width), normal("bf16", tokens, width)
        show(label + " forward", lambda: moe(inp, router, gate, up, down)[0])
        def step():
            y, loss = moe(inp, router, gate, up, down)
            torch.autograd.grad([y, loss], [inp] + leaves, [out, torch.ones_like(loss)])
        took = seconds(step)
        work = 3 * 2 * rows * width * hidden * (3 if gated else 2)
        print(f"{label} step\t{took:.4g}\t{work / took / 1e12:.4g} TFLOP/s", flush=True)
