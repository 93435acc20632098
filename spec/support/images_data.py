"""Images of every kind that readers meet, and what Pillow makes of their pixels.

Writes spec/data/images/*.png, *.jpg and, with the expected samples as hexadecimal digits,
pixels.json. Needs Pillow (13.0.0 was used) and NumPy:
  python3 spec/support/images_data.py
"""
import json, struct, zlib
import numpy as np
from PIL import Image, ImageOps

folder = "spec/data/images/"
rng = np.random.default_rng(7)
expected = {}


def smooth(h, w, c):
    y, x = np.mgrid[0:h, 0:w]
    planes = [127 + 120 * np.sin(x / (3 + k) + k) * np.cos(y / (4 + k)) for k in range(c)]
    return np.stack(planes, 2).clip(0, 255).astype(np.uint8)


def note(name, array):
    array = np.asarray(array)
    if array.ndim == 2:
        array = array[:, :, None]
    planes = array.transpose(2, 0, 1)
    wide = planes.dtype.itemsize > 1
    expected[name] = {"shape": list(planes.shape), "bits": 16 if wide else 8,
                      "hex": planes.astype(">u2" if wide else np.uint8).tobytes().hex()}


def chunk(kind, body):
    return struct.pack(">I", len(body)) + kind + body + struct.pack(">I", zlib.crc32(kind + body))


def raw_png(name, w, h, depth, colour, rows, extra=b""):
    """A file that Pillow does not write: rows are bytes without filters."""
    data = zlib.compress(b"".join(b"\0" + bytes(r) for r in rows))
    with open(folder + name, "wb") as f:
        f.write(b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", struct.pack(">IIBBBBB", w, h, depth, colour,
                0, 0, 0)) + extra + chunk(b"IDAT", data) + chunk(b"IEND", b""))


rgb, rgba = smooth(13, 17, 3), smooth(9, 11, 4)
for name, mode, a in [("grey.png", "L", rgb[:, :, 0]), ("rgb.png", "RGB", rgb),
                      ("rgba.png", "RGBA", rgba), ("grey_alpha.png", "LA", rgba[:, :, :2])]:
    Image.fromarray(a, mode).save(folder + name)
    note(name, a)
bits = rgb[:, :, 0] > 127
Image.fromarray(bits).save(folder + "bits.png")
note("bits.png", bits.astype(np.uint8) * 255)
palette = Image.fromarray(rgb).quantize(13)
palette.save(folder + "palette.png", bits=4)
note("palette.png", palette.convert("RGB"))
palette.save(folder + "palette_alpha.png", transparency=2)
note("palette_alpha.png", Image.open(folder + "palette_alpha.png").convert("RGBA"))
for depth in (2, 4):
    values = rng.integers(0, 1 << depth, (5, 8))
    rows = [np.packbits(((r[:, None] >> np.arange(depth - 1, -1, -1)) & 1).astype(np.uint8))
            for r in values]
    raw_png("grey%d.png" % depth, 8, 5, depth, 0, rows)
    note("grey%d.png" % depth, (values * (255 // ((1 << depth) - 1))).astype(np.uint8))
deep = rng.integers(0, 65536, (4, 5, 4)).astype(np.uint16)
for name, colour, c in [("grey16.png", 0, 1), ("grey_alpha16.png", 4, 2), ("rgb16.png", 2, 3),
                        ("rgba16.png", 6, 4)]:
    a = deep[:, :, :c]
    raw_png(name, 5, 4, 16, colour, a.astype(">u2").reshape(4, -1).view(np.uint8))
    note(name, a)
raw_png("key.png", 17, 13, 8, 2, rgb.reshape(13, -1),
        chunk(b"tRNS", struct.pack(">HHH", *map(int, rgb[3, 4]))))
keyed = (rgb == rgb[3, 4]).all(2, keepdims=True)
note("key.png", np.concatenate([rgb, np.where(keyed, 0, 255).astype(np.uint8)], 2))
# Adam7: seven passes, written by hand
passes = [(0, 0, 8, 8), (0, 4, 8, 8), (4, 0, 8, 4), (0, 2, 4, 4), (2, 0, 4, 2), (0, 1, 2, 2),
          (1, 0, 2, 1)]
rows = [part.tobytes() for y, x, dy, dx in passes
        for part in rgb[y::dy, x::dx] if part.size]
data = zlib.compress(b"".join(b"\0" + r for r in rows))
with open(folder + "interlaced.png", "wb") as f:
    f.write(b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", struct.pack(">IIBBBBB", 17, 13, 8, 2, 0, 0, 1))
            + chunk(b"IDAT", data) + chunk(b"IEND", b""))
note("interlaced.png", rgb)

big = Image.fromarray(smooth(21, 30, 3))
for name, image, how in [
        ("rgb.jpg", big, {}), ("grey.jpg", big.convert("L"), {}),
        ("progressive.jpg", big, {"progressive": True, "quality": 90}),
        ("sampled.jpg", big, {"subsampling": "4:2:2"}), ("cmyk.jpg", big.convert("CMYK"), {}),
        ("optimized.jpg", big, {"optimize": True, "subsampling": "4:4:4", "quality": 95})]:
    image.save(folder + name, **how)
    again = Image.open(folder + name)
    note(name, again if again.mode == "L" else again.convert("RGB"))
data = open(folder + "cmyk.jpg", "rb").read()
at = data.index(b"\xff\xee")  # without Adobe's mark
with open(folder + "inks.jpg", "wb") as f:
    f.write(data[:at] + data[at + 2 + struct.unpack(">H", data[at + 2:at + 4])[0]:])
note("inks.jpg", Image.open(folder + "inks.jpg").convert("RGB"))
for turn in range(1, 9):
    exif = Image.Exif()
    exif[0x112] = turn
    for name in ("turn%d.jpg" % turn, "turn%d.png" % turn):
        big.crop((0, 0, 10, 6)).save(folder + name, exif=exif.tobytes())
        note(name, ImageOps.exif_transpose(Image.open(folder + name)))
note("luminance of rgb.png", Image.open(folder + "rgb.png").convert("L"))
with open(folder + "pixels.json", "w") as f:
    json.dump(expected, f, indent=0, sort_keys=True)
    f.write("\n")
