"""Images changed by Pillow and torchvision, for spec/transforms_peers_spec.lua.

Writes spec/data/transforms.json: bytes as hexadecimal digits, floats as numbers. Needs Pillow
(13.0.0 was used), torch (2.15.0) and torchvision (0.29.2):
  python3 spec/support/transforms_data.py
"""
import json
import numpy as np
import torch
from PIL import Image, ImageEnhance
from torchvision.transforms.v2 import functional as F

rng = np.random.default_rng(5)
out = {"resize": [], "enhance": [], "float": []}


def smooth(h, w):
    y, x = np.mgrid[0:h, 0:w]
    planes = [127 + 100 * np.sin(x / (3 + k) + k) * np.cos(y / (4 + k)) for k in range(3)]
    noise = rng.integers(-60, 60, (h, w, 3))
    return (np.stack(planes, 2) + noise).clip(0, 255).astype(np.uint8)


def digits(a):
    a = np.asarray(a)
    a = a[:, :, None] if a.ndim == 2 else a
    planes = a.transpose(2, 0, 1)
    return {"shape": list(planes.shape), "hex": planes.astype(np.uint8).tobytes().hex()}


def floats(t):
    return {"shape": list(t.shape), "values": [round(float(v), 7) for v in t.flatten()]}


picture = smooth(29, 37)
image = Image.fromarray(picture)
out["picture"] = digits(picture)
for mode, how in [("linear", Image.BILINEAR), ("cubic", Image.BICUBIC)]:
    for h, w in [(7, 11), (29, 5), (3, 37), (50, 41), (58, 13), (1, 1)]:
        out["resize"].append({"mode": mode, "size": [h, w], **digits(image.resize((w, h), how))})
for name, kind in [("brightness", ImageEnhance.Brightness), ("contrast", ImageEnhance.Contrast),
                   ("saturation", ImageEnhance.Color)]:
    for factor in (0.0, 0.35, 1.0, 1.9):
        out["enhance"].append({"name": name, "factor": factor,
                               **digits(kind(image).enhance(factor))})
out["grey"] = digits(image.convert("L"))

x = torch.from_numpy(picture).permute(2, 0, 1)
small = F.center_crop(x, [9, 8])
out["center"] = digits(small.permute(1, 2, 0).numpy())
f = small.float() / 255
cases = out["float"]
for turn in (-0.5, -0.2, 0.1, 0.4):
    cases.append({"name": "hue", "factor": turn, **floats(F.adjust_hue(f, turn)),
                  "bytes": digits(F.adjust_hue(small, turn).permute(1, 2, 0).numpy())["hex"]})
for mode in ("bilinear", "bicubic"):
    for antialias in (True, False):
        for size in ([4, 5], [12, 3]):
            y = F.resize(f, size, interpolation=F.InterpolationMode(mode), antialias=antialias)
            cases.append({"name": "resize", "mode": {"bilinear": "linear", "bicubic": "cubic"}[mode],
                          "antialias": antialias, "size": size, **floats(y)})
for name in ("brightness", "contrast", "saturation"):
    for factor in (0.3, 1.6):
        y = getattr(F, "adjust_" + name)(f, factor)
        cases.append({"name": name, "factor": factor, **floats(y)})
top, left, h, w = 2, 1, 6, 5
y = F.resized_crop(f, top, left, h, w, [4, 4], antialias=True)
out["crop"] = {"box": [top, left, h, w], **floats(y)}
out["short"] = {"size": 5, "shape": list(F.resize(x, 5).shape)}
with open("spec/data/transforms.json", "w") as file:
    json.dump(out, file, separators=(",", ":"))
