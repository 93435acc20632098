"""Linear algebra and Fourier transforms by NumPy and SciPy, as data for spec/ops/linalg_spec.lua
and spec/ops/fft_spec.lua:

    python3 spec/support/peers_data.py > spec/support/peers_data.lua
"""
import textwrap

import numpy as np
import scipy
import scipy.linalg as sl


def numbers(x):
    return ", ".join("%.17g" % v for v in np.asarray(x, "f8").ravel())


def entry(name, x):
    x = np.asarray(x)
    if np.iscomplexobj(x):
        x = np.stack([x.real, x.imag], -1)
    shape = ", ".join(str(n) for n in x.shape)
    text = "%s = {shape = {%s}, %s}," % (name, shape, numbers(x))
    print(textwrap.fill(text, 98, initial_indent="  ", subsequent_indent="    "))


def case(seed, m, n):
    r = np.random.default_rng(seed)
    # eighths, so that the inputs are exact in every float dtype
    x = np.round(r.standard_normal((m, n)) * 8) / 8
    b = np.round(r.standard_normal((m, 2)) * 8) / 8
    print("{")
    entry("x", x)
    entry("b", b)
    entry("s", np.linalg.svd(x, compute_uv=False))
    entry("pinv", np.linalg.pinv(x))
    entry("lstsq", np.linalg.lstsq(x, b, rcond=None)[0])
    entry("r", np.abs(np.linalg.qr(x)[1]))
    entry("nuc", np.linalg.norm(x, "nuc"))
    entry("two", np.linalg.norm(x, 2))
    entry("rank", np.linalg.matrix_rank(x))
    entry("fft", np.fft.fft(x, axis=1))
    entry("rfft", np.fft.rfft(x, axis=0))
    entry("fft2", np.fft.fft2(x))
    if m == n:
        spd = x @ x.T + np.eye(n)
        w = np.linalg.eigvals(x)
        entry("inv", np.linalg.inv(x))
        entry("solve", np.linalg.solve(x, b))
        entry("det", np.linalg.det(x))
        entry("logdet", np.linalg.slogdet(x)[1])
        entry("expm", sl.expm(x))
        entry("cholesky", np.linalg.cholesky(spd))
        entry("eigvalsh", np.linalg.eigvalsh(spd))
        entry("eigvals", w[np.lexsort((w.imag, w.real))])
        entry("power", np.linalg.matrix_power(x, 3))
    print("},")


print("-- Made by spec/support/peers_data.py with NumPy %s and SciPy %s." % (
    np.__version__, scipy.__version__))
print("return {")
for number, (rows, columns) in enumerate([(4, 4), (7, 7), (6, 4), (3, 5)]):
    case(number, rows, columns)
print("}")
