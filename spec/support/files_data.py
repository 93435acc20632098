"""Writes spec/data/files: small files of PyTorch and llama.cpp, and what they hold.

    python spec/support/files_data.py spec/data/files

Made with torch 2.15.0, gguf 0.19.0 and safetensors 0.8.0.
"""
import collections
import os
import sys

import gguf
import numpy as np
import torch
from gguf import GGMLQuantizationType as Type
from gguf import quants
from safetensors.numpy import save_file

folder = sys.argv[1]


def path(name):
    return os.path.join(folder, name)


class Code:
    """What a pickle can do: call a function of the operating system when it is read."""

    def __reduce__(self):
        return os.system, ("exit 3",)


def pytorch():
    base = torch.arange(24.0).reshape(4, 6)
    tree = {
        "base": base, "turned": base.t()[1:3], "wide": base[:1].expand(5, 6), "none": torch.zeros(0, 3),
        "scalar": torch.tensor(3.25), "i64": torch.tensor([1, -2, 3]), "u8": torch.tensor([255], dtype=torch.uint8),
        "bool": torch.tensor([True, False, True]), "bf16": torch.full((2, 2), 1.5, dtype=torch.bfloat16),
        "f16": torch.tensor([0.5], dtype=torch.float16), "c64": torch.tensor([1 + 2j]),
        "parameter": torch.nn.Parameter(torch.ones(2)), "nothing": None, "half": 0.5, "big": 2**40, "minus": -7,
        "text": "h\u00e9", "list": [1, "a", (2, 3)], "ordered": collections.OrderedDict(a=1), 5: "five",
        "dtype": torch.float16, "size": torch.Size([1, 2]), "yes": True,
    }
    torch.save(tree, path("tree.pt"))
    torch.save(tree, path("tree.old.pt"), _use_new_zipfile_serialization=False)
    torch.save(torch.nn.Linear(1, 1), path("module.pt"))
    torch.save({"a": Code()}, path("code.pt"))
    torch.save({"a": Code()}, path("code.old.pt"), _use_new_zipfile_serialization=False)


def llama_cpp():
    rng = np.random.default_rng(0)
    w = gguf.GGUFWriter(path("tree.gguf"), "test")
    w.add_uint32("u32", 7)
    w.add_int64("i64", -5)
    w.add_float32("f32", 0.5)
    w.add_bool("bool", True)
    w.add_string("text", "h\u00e9")
    w.add_array("strings", ["x", "yy"])
    w.add_array("numbers", [1, 2, 3])
    values = {}
    for name in ("Q4_0", "Q4_1", "Q5_0", "Q5_1", "Q8_0"):
        x = rng.standard_normal((3, 64)).astype(np.float32)
        x[0, :32] = 0  # a block without a scale
        values["source." + name.lower()] = x
        values[name.lower()] = quants.dequantize(quants.quantize(x, Type[name]), Type[name])
        w.add_tensor(name.lower(), quants.quantize(x, Type[name]), raw_dtype=Type[name])
    halves = {"Q2_K": (80, 82), "Q3_K": (108,), "Q4_K": (0, 2), "Q5_K": (0, 2), "Q6_K": (208,)}
    for name, offsets in halves.items():  # blocks of random bytes, but for their f16 numbers
        size = gguf.GGML_QUANT_SIZES[Type[name]][1]
        b = rng.integers(0, 256, (4, size), dtype=np.uint8)
        for at in offsets:
            b[:, at:at + 2] = (rng.standard_normal(4) * 0.1).astype(np.float16).view(np.uint8).reshape(-1, 2)
        b = b.reshape(2, 2 * size)
        values[name.lower()] = quants.dequantize(b, Type[name])
        w.add_tensor(name.lower(), b, raw_dtype=Type[name])
    w.add_tensor("f16", rng.standard_normal((2, 3)).astype(np.float16))
    w.add_tensor("f32", np.arange(24, dtype=np.float32).reshape(2, 3, 4))
    w.write_header_to_file()
    w.write_kv_data_to_file()
    w.write_tensors_to_file()
    w.close()
    save_file(values, path("gguf.safetensors"))


pytorch()
llama_cpp()
