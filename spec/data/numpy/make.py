"""Writes the files of this folder with NumPy, and what is in them as expected.lua."""
import io
import os
import zipfile

import numpy as np

here = os.path.dirname(os.path.abspath(__file__))
rng = np.random.default_rng(1)

# NumPy's type without byte order: flare's
TYPES = {"f8": "f64", "f4": "f32", "f2": "f16", "i8": "i64", "i4": "i32", "i2": "i16",
         "i1": "i8", "u1": "u8", "b1": "bool", "u2": "i32", "u4": "i64", "u8": "i64",
         "c8": "c64", "c16": "c128"}


def values(kind, shape):
    if kind[0] == "c":
        return (values("f8", shape) + 1j * values("f8", shape)).astype(kind)
    if kind[0] == "f":
        return rng.standard_normal(shape).astype(kind)
    if kind == "b1":
        return rng.integers(0, 2, shape).astype(bool)
    info = np.iinfo(kind)
    high = min(info.max, 2**53)  # what a JSON reader and a float hold, too
    low = max(info.min, -(2**53))
    return np.asarray(rng.integers(low, high, shape, dtype=kind, endpoint=True))


cases = {}
for kind in TYPES:
    for order in "<>":
        if kind[1] == "1" and order == ">":
            continue
        way = "big_" if order == ">" else ""
        cases[f"{way}{kind}"] = values(kind, (2, 3)).astype(order + kind)
        cases[f"{way}{kind}_fortran"] = np.asfortranarray(
            values(kind, (2, 3, 2)).astype(order + kind))
cases["scalar"] = np.array(2.5)
cases["scalar_big"] = np.array(-7, ">i4")
cases["empty"] = np.zeros((0, 3), "f4")
cases["empty_fortran"] = np.asfortranarray(np.zeros((2, 0, 3), "i2"))
cases["one"] = np.array([3], "i8")
cases["special"] = np.array([np.inf, -np.inf, -0.0, 6e-8, 65504], "f2")
cases["edges"] = np.array([-(2**63), 2**63 - 1], "i8")
cases["unsigned_edges"] = np.array([0, 2**63 - 1], "u8")
cases["eight_dims"] = np.arange(12, dtype="i4").reshape(1, 2, 1, 3, 1, 2, 1, 1)
cases["folder/name é"] = np.array([1, 2], "u1")

np.savez(os.path.join(here, "arrays.npz"), **cases)
np.savez_compressed(os.path.join(here, "compressed.npz"), **cases)
np.savez(os.path.join(here, "positional.npz"), np.arange(3), np.ones(2))
np.savez(os.path.join(here, "none.npz"))

for version in (1, 2, 3):
    with open(os.path.join(here, f"version{version}.npy"), "wb") as f:
        np.lib.format.write_array(f, np.arange(6, dtype="f4").reshape(2, 3), (version, 0))

# what is refused: a type each
refused = {
    "complex": np.zeros(2, np.clongdouble), "text": np.array(["ab"]), "bytes": np.array([b"ab"]),
    "long": np.zeros(2, np.longdouble), "date": np.array(["2020-01-01"], "M8[D]"),
    "span": np.array([1], "m8[s]"), "raw": np.zeros(2, "V2"),
    "records": np.zeros(2, [("a", "f4"), ("b", "i4")]), "above": np.array([2**63], "u8"),
}
np.savez(os.path.join(here, "refused.npz"), **refused)
np.save(os.path.join(here, "pickled.npy"), np.array([{}, None]), allow_pickle=True)

# members that were streamed have their sizes behind the data
out = io.BytesIO()


class Stream(io.RawIOBase):
    def writable(self):
        return True

    def write(self, data):
        return out.write(data)


with zipfile.ZipFile(Stream(), "w", zipfile.ZIP_DEFLATED) as z:
    data = io.BytesIO()
    np.save(data, np.arange(100))
    z.writestr(zipfile.ZipInfo("x.npy"), data.getvalue(), zipfile.ZIP_DEFLATED)
with open(os.path.join(here, "streamed.npz"), "wb") as f:
    f.write(out.getvalue())


def text(v):
    if isinstance(v, (bool, np.bool_)):
        return "true" if v else "false"
    if isinstance(v, (int, np.integer)):
        return "math.mininteger" if v == -(2**63) else str(v)
    if np.isinf(v):
        return "1 / 0" if v > 0 else "-1 / 0"
    return repr(float(v))


with open(os.path.join(here, "expected.lua"), "w") as f:
    f.write("-- What make.py, beside this, has put into arrays.npz: dtype, shape, elements in order.\n")
    f.write("return {\n")
    for name, a in sorted(cases.items()):
        kind = TYPES[a.dtype.str[1:]]
        flat = a.reshape(-1)  # complex numbers as pairs
        if kind[0] == "c":
            flat = np.stack([flat.real, flat.imag], -1).reshape(-1)
        flat = [text(v) for v in flat.tolist()] if a.size else []
        lines, line = [], "  "
        for v in flat:
            if len(line) + len(v) + 2 > 98:
                lines.append(line.rstrip())
                line = "  "
            line += v + ", "
        lines.append(line.rstrip().rstrip(","))
        shape = ", ".join(str(s) for s in a.shape)
        f.write(f'["{name}"] = {{"{kind}", {{{shape}}}, {{\n' + "\n".join(lines) + "\n}},\n")
    f.write("}\n")
