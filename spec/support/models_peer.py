"""The part of transformers in spec/long/models.lua.

    python spec/support/models_peer.py FOLDER

For each model NAME in FOLDER: whether transformers reads NAME.saved, which flare wrote, as the same
tensors as NAME; and, of models of text, the logits in f32 and bf16, in FOLDER/low.safetensors.
"""
import os
import sys

import torch
import transformers
from models_data import MODELS, causal, ids
from safetensors.torch import save_file

transformers.logging.set_verbosity_error()
folder, wrong, logits = sys.argv[1], 0, {}

for name, (run, cls, _, _) in MODELS.items():
    cls = getattr(transformers, cls)
    first = cls.from_pretrained(os.path.join(folder, name), dtype=torch.float32).eval()
    second, info = cls.from_pretrained(os.path.join(folder, name + ".saved"), dtype=torch.float32,
                                       output_loading_info=True)
    a, b = first.state_dict(), second.state_dict()
    same = set(a) == set(b) and all(torch.equal(a[key], b[key]) for key in a)
    # batch norms of flare do not count batches
    missing = [key for key in info["missing_keys"] if not key.endswith("num_batches_tracked")]
    same = same and not missing and not info["unexpected_keys"]
    if not same:
        wrong += 1
        print("finding: transformers reads", name, "differently:", info, flush=True)
    if run is causal:
        x = ids(first.config.vocab_size)
        with torch.no_grad():
            logits[name + ".f32"] = first(x, use_cache=False).logits
            logits[name + ".bf16"] = first.to(torch.bfloat16)(x, use_cache=False).logits.float()
save_file({key: value.contiguous() for key, value in logits.items()}, os.path.join(folder, "low.safetensors"))
print(f"figure: transformers {transformers.__version__} reads {len(MODELS) - wrong} of {len(MODELS)} saved models")
sys.exit(wrong > 0)
