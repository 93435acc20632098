"""The peer of examples/gpt2.lua: GPT-2 124M in PyTorch, bf16 autocast, eager or compiled.
usage: gpt2.py MODE BATCH STEPS [xl | FOLDER [f32] [reversed] [math]]   xl: 1.5B parameters; MODE: eager, compile, or make (writes weights and tokens to FOLDER)
With RANK, LOCAL_RANK, WORLD_SIZE, MASTER_ADDR and MASTER_PORT it is one of several, by DistributedDataParallel.
With FOLDER it starts from FOLDER/weights.safetensors and reads FOLDER/tokens.safetensors, as the example does;
`f32`: without autocast. Two ways of the same mathematics that round otherwise: `reversed`, the windows of each batch
the other way round; `math`, attention by products and softmax."""
import json, os, struct, sys, time, torch, torch.nn as nn, torch.nn.functional as F
NAMES = {torch.float32: "F32", torch.int32: "I32"}
def save_file(tensors, path):
    head, blobs, at = {}, [], 0
    for name, t in tensors.items():
        blobs.append(t.numpy().tobytes()); n = len(blobs[-1])
        head[name] = {"dtype": NAMES[t.dtype], "shape": list(t.shape), "data_offsets": [at, at + n]}; at += n
    text = json.dumps(head).encode()
    with open(path, "wb") as f: f.write(struct.pack("<Q", len(text)) + text); f.writelines(blobs)
def load_file(path):
    with open(path, "rb") as f: data = bytearray(f.read())
    n = struct.unpack_from("<Q", data)[0]; types = {v: k for k, v in NAMES.items()}
    return {k: torch.frombuffer(data, dtype=types[v["dtype"]], offset=8 + n + v["data_offsets"][0],
                                count=(v["data_offsets"][1] - v["data_offsets"][0]) // 4).view(v["shape"])
            for k, v in json.loads(data[8:8 + n]).items() if k != "__metadata__"}
mode, B, steps = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
folder = sys.argv[4] if len(sys.argv) > 4 and sys.argv[4] != "xl" else None
T, V = 1024, 50304; D, L, H = (1600, 48, 25) if "xl" in sys.argv else (768, 12, 12)
class Block(nn.Module):
    def __init__(s):
        super().__init__(); s.norm1 = nn.LayerNorm(D); s.norm2 = nn.LayerNorm(D)
        s.qkv = nn.Linear(D, 3 * D); s.proj = nn.Linear(D, D); s.up = nn.Linear(D, 4 * D); s.down = nn.Linear(4 * D, D)
    def forward(s, x):
        b, t, c = x.shape
        q, k, v = s.qkv(s.norm1(x)).view(b, t, 3, H, c // H).permute(2, 0, 3, 1, 4)
        x = x + s.proj(F.scaled_dot_product_attention(q, k, v, is_causal=True).transpose(1, 2).reshape(b, t, c))
        return x + s.down(F.gelu(s.up(s.norm2(x)), approximate="tanh"))
class GPT(nn.Module):
    def __init__(s):
        super().__init__(); s.tokens = nn.Embedding(V, D); s.positions = nn.Embedding(T, D)
        s.blocks = nn.ModuleList(Block() for _ in range(L)); s.norm = nn.LayerNorm(D)
        for p in s.parameters():
            if p.dim() > 1: nn.init.normal_(p, std=.02)
    def forward(s, x, y):
        h = s.tokens(x) + s.positions.weight[:x.shape[1]]
        for b in s.blocks: h = b(h)
        return F.cross_entropy(F.linear(s.norm(h), s.tokens.weight).flatten(0, 1), y.flatten())
torch.manual_seed(1)
if mode == "make":
    m = GPT(); names = {}
    for n, p in m.state_dict().items():
        parts = n.split(".")
        if parts[0] == "blocks": parts[1] = str(int(parts[1]) + 1)
        names[".".join(parts)] = p.contiguous()
    save_file(names, folder + "/weights.safetensors")
    # a text with something to learn: words drawn by rank, each followed by one of few
    n = B * T * steps + 1; g = torch.Generator().manual_seed(3)
    p = 1 / torch.arange(1, 50258).float(); ids = torch.multinomial(p, n, True, generator=g)
    even = torch.arange(0, n - 1, 2); ids[even + 1] = (ids[even] * 7 + 13) % 50257
    save_file({"tokens": ids.to(torch.int32)}, folder + "/tokens.safetensors"); sys.exit()
world = int(os.environ.get("WORLD_SIZE", "1")); rank = int(os.environ.get("RANK", "0"))
if world > 1:
    torch.cuda.set_device(int(os.environ["LOCAL_RANK"])); torch.distributed.init_process_group("nccl")
dev = "cuda"; m = GPT().to(dev)
if folder:
    w = load_file(folder + "/weights.safetensors"); sd = {}
    for n, p in w.items():
        parts = n.split(".")
        if parts[0] == "blocks": parts[1] = str(int(parts[1]) - 1)
        sd[".".join(parts)] = p
    m.load_state_dict(sd)
    tok = load_file(folder + "/tokens.safetensors")["tokens"].to(dev).long(); win = tok.unfold(0, T + 1, T); n = win.shape[0] // B
    turn = (lambda x: x.flip(0)) if "reversed" in sys.argv else (lambda x: x)
    batch = lambda k: turn(win[k % n * B:(k % n + 1) * B])
else:
    fixed = torch.randint(0, 50257, (B, T + 1), device=dev); batch = lambda k: fixed
op = torch.optim.AdamW(m.parameters(), 3e-4, weight_decay=.01, fused=True)
if world > 1: torch.manual_seed(1 + rank); fixed = torch.randint(0, 50257, (B, T + 1), device=dev)
f = nn.parallel.DistributedDataParallel(m, device_ids=[torch.cuda.current_device()]) if world > 1 else m
f = torch.compile(f) if mode == "compile" else f
def say(text):
    if rank == 0: print(text, flush=True)
if "math" in sys.argv: torch.backends.cuda.enable_flash_sdp(False); torch.backends.cuda.enable_mem_efficient_sdp(False); torch.backends.cuda.enable_cudnn_sdp(False)
def step(k):
    t = batch(k); x, y = t[:, :-1], t[:, 1:]
    with torch.autocast(dev, torch.bfloat16, enabled="f32" not in sys.argv): l = f(x, y)
    op.zero_grad(set_to_none=True); l.backward(); nn.utils.clip_grad_norm_(m.parameters(), 1.); op.step(); return l
t0 = time.time(); l = step(0).item(); say(f"step 1: loss {l:.4f}, {time.time() - t0:.2f} s")
last, done = time.time(), 1
for k in range(2, steps + 1):
    l = step(k - 1)
    if k % 10 == 0 or k == steps:
        v = l.item(); now = time.time(); say(f"step {k}: loss {v:.4f}, {int((k - done) * B * T * world / (now - last))} tokens/s"); last, done = now, k
say(f"peak {torch.cuda.max_memory_allocated() / 2**30:.2f} GiB live, {torch.cuda.memory_reserved() / 2**30:.2f} GiB reserved")
