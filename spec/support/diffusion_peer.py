"""The part of diffusers in spec/long/diffusion.lua.

    python spec/support/diffusion_peer.py FOLDER

For each model NAME in FOLDER: whether diffusers reads NAME.saved, which flare wrote, as the same tensors and the same
configuration as NAME; and what it predicts in bf16, in FOLDER/low.safetensors.
"""
import os
import sys

import diffusers
import torch
from diffusion_data import MODELS, SCHEDULERS, compute
from safetensors.torch import save_file

diffusers.logging.set_verbosity_error()
folder, wrong, low = sys.argv[1], 0, {}

for name, (cls, _, inputs) in MODELS.items():
    cls = getattr(diffusers, cls)
    first = cls.from_pretrained(os.path.join(folder, name)).eval()
    second, info = cls.from_pretrained(os.path.join(folder, name + ".saved"), output_loading_info=True)
    a, b = first.state_dict(), second.state_dict()
    same = set(a) == set(b) and all(torch.equal(a[key], b[key]) for key in a)
    same = same and not any(info.values()) and {k: v for k, v in first.config.items() if k[0] != "_"} == {
        k: v for k, v in second.config.items() if k[0] != "_"}
    if not same:
        wrong += 1
        print("finding: diffusers reads", name, "differently:", info, flush=True)
    out = {}
    try:
        compute(first.to(torch.bfloat16), [], inputs, out)
        low[name] = out["predicted" if "predicted" in out else "decoded"].float().contiguous()
    except RuntimeError as problem:  # some embeddings of diffusers know f32 only
        print("figure: diffusers does not compute", name, "in bf16:", problem, flush=True)
for name, c in SCHEDULERS.items():
    cls = getattr(diffusers, c["cls"])
    saved = cls.from_pretrained(os.path.join(folder, name + ".scheduler"))
    plain = cls(**c["config"])
    same = all(saved.config[k] == v for k, v in plain.config.items() if k[0] != "_")
    if not same:
        wrong += 1
        print("finding: diffusers reads the scheduler", name, "differently", flush=True)
save_file(low, os.path.join(folder, "low.safetensors"))
print(f"figure: diffusers {diffusers.__version__} reads all but {wrong} of {len(MODELS)} saved models and "
      f"{len(SCHEDULERS)} schedulers")
sys.exit(wrong > 0)
