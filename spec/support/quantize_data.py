"""Writes spec/support/quantize_data.lua: what rounding, GPTQ and AWQ give by their definitions, in f64.

    python spec/support/quantize_data.py > spec/support/quantize_data.lua

GPTQ is computed as in section 3 of arXiv:2210.17323 before the Cholesky factor is introduced: the
inverse of the products of the columns that are left is computed anew for each column. Weights and
inputs are not stored: both sides compute them by a linear congruential generator. Made with numpy
2.4.6.
"""
import numpy as np

ROWS, COLUMNS, INPUTS, GROUP = 12, 64, 80, 32


def numbers(count, seed):
    out, x = np.empty(count), seed
    for k in range(count):
        x = (1103515245 * x + 12345) % 2**31
        out[k] = x / 2**30 - 1
    return out


def inputs():
    x = numbers(INPUTS * COLUMNS, 7).reshape(INPUTS, COLUMNS)
    mixed = x + 0.9 * np.roll(x, 1, axis=1) + 0.5 * np.roll(x, 5, axis=1)  # columns correlate
    return mixed * (0.2 + 3 * (np.arange(COLUMNS) % 16 == 3) + (np.arange(COLUMNS) % 5 == 1))


def params(w, symmetric):
    if symmetric:
        return np.abs(w).max(axis=1) / 7.5, np.full(len(w), 8.0)
    low, high = np.minimum(w.min(axis=1), 0), np.maximum(w.max(axis=1), 0)
    scale = (high - low) / 15
    return scale, np.clip(np.round(-low / scale), 0, 15)


def rounded(w, scale, zero):
    return np.clip(np.round(w / scale) + zero, 0, 15)


def nearest(w, symmetric):
    q, value = np.empty_like(w), np.empty_like(w)
    for c in range(0, COLUMNS, GROUP):
        part = slice(c, c + GROUP)
        scale, zero = params(w[:, part], symmetric)
        q[:, part] = rounded(w[:, part], scale[:, None], zero[:, None])
        value[:, part] = (q[:, part] - zero[:, None]) * scale[:, None]
    return q, value


def gptq(w, h, symmetric, act_order):
    order = np.argsort(-np.diag(h), kind="stable") if act_order else np.arange(COLUMNS)
    w, h = w[:, order].copy(), h[order][:, order].copy()
    h += np.eye(COLUMNS) * 0.01 * np.diag(h).mean()
    q, value = np.empty_like(w), np.empty_like(w)
    for c in range(COLUMNS):
        if c % GROUP == 0:
            scale, zero = params(w[:, c:c + GROUP], symmetric)
        q[:, c] = rounded(w[:, c], scale, zero)
        value[:, c] = (q[:, c] - zero) * scale
        inverse = np.linalg.inv(h[c:, c:])
        off = (w[:, c] - value[:, c]) / inverse[0, 0]
        w[:, c + 1:] -= np.outer(off, inverse[0, 1:])
    back = np.argsort(order)
    return q, value[:, back]


def awq(w, x, symmetric):
    size = np.abs(x).mean(axis=0)
    best = None
    for step in range(20):
        by = np.maximum(size ** (step / 20), 1e-4)
        by = by / np.sqrt(by.max() * by.min())
        q, value = nearest(w * by, symmetric)
        value = value / by
        error = (((w - value) @ x.T) ** 2).sum()
        if best is None or error < best[0]:
            best = error, q, value
    return best[1:]


def main():
    w, x = numbers(ROWS * COLUMNS, 3).reshape(ROWS, COLUMNS), inputs()
    h = x.T @ x
    print("-- Written by spec/support/quantize_data.py: integers of rows as hexadecimal digits, and the")
    print("-- relative error of the outputs.")
    print("return {")
    for symmetric in (False, True):
        end = "_symmetric" if symmetric else ""
        cases = {"rtn": nearest(w, symmetric), "gptq": gptq(w, h, symmetric, False),
                 "gptq_order": gptq(w, h, symmetric, True), "awq": awq(w, x, symmetric)}
        for name, (q, value) in cases.items():
            error = np.linalg.norm((w - value) @ x.T) / np.linalg.norm(w @ x.T)
            print("  %s%s = {error = %.9g," % (name, end, error))
            for row in q:
                print('    "%s",' % "".join("%x" % int(v) for v in row))
            print("  },")
    print("}")


main()
