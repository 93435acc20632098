"""Operators by NumPy and SciPy in f64, as data for spec/ops/peers_spec.lua:

    python3 spec/support/peers_rows.py > spec/support/peers_rows.lua
"""
import textwrap

import numpy as np
import scipy
import scipy.integrate
import scipy.signal
import scipy.spatial.distance as distance
import scipy.special as sp
import scipy.stats

r = np.random.default_rng(4)


def eighths(*shape, low=-3.0, high=3.0):
    # exact in every float dtype, and without repetition
    n = int(np.prod(shape, dtype=int))
    steps = np.arange(np.ceil(low * 8), np.floor(high * 8) + 1)
    steps = steps[steps != 0]
    return (r.permutation(np.resize(steps, max(n, steps.size)))[:n] / 8).reshape(shape)


def numbers(x):
    def one(v):
        if np.isnan(v):
            return "nan"
        return "%.17g" % v if np.isfinite(v) else "inf" if v > 0 else "-inf"
    return ", ".join(one(v) for v in np.asarray(x, "f8").ravel())


def literal(v):
    if isinstance(v, bool):
        return "true" if v else "false"
    if isinstance(v, str):
        return '"%s"' % v
    if isinstance(v, (int, float)):
        return repr(v)
    if isinstance(v, (list, tuple)):
        return "{%s}" % ", ".join(literal(x) for x in v)
    kind = {"b": '"bool"', "i": '"i64"', "f": '"f64"'}[v.dtype.kind]
    return "{%s, {%s}, {%s}}" % (kind, ", ".join(str(n) for n in v.shape), numbers(v))


def case(row, args, *results):
    text = "{%s, {%s}, {%s}}," % (
        literal(row), ", ".join("%s = %s" % (k, literal(v)) for k, v in args.items()),
        ", ".join(literal(np.asarray(y)) for y in results))
    print(textwrap.fill(text, 98, initial_indent="  ", subsequent_indent="    ",
                        break_long_words=False, break_on_hyphens=False))


def unary(function, x, *names):
    for name in names:
        case(name, {"x": x}, function(name)(x))


x, wide = eighths(2, 5), eighths(7, low=-9, high=9)
positive, inside = eighths(6, low=0.125, high=5), eighths(6, low=-0.9, high=0.9)
share = eighths(5, low=0.1, high=0.95)
odd = np.array([0.0, 1.0, -1.5, np.inf, -np.inf, np.nan])


def elementwise():
    numpy_names = {"neg": "negative", "asin": "arcsin", "acos": "arccos", "atan": "arctan",
                   "asinh": "arcsinh", "acosh": "arccosh", "atanh": "arctanh", "round": "rint"}
    of_numpy = lambda name: getattr(np, numpy_names.get(name, name))
    unary(of_numpy, x, *("neg abs sign square reciprocal exp exp2 expm1 sin cos tan atan sinh "
                         "cosh tanh asinh sinc cbrt floor ceil round trunc rad2deg deg2rad "
                         "signbit logical_not").split())
    unary(of_numpy, positive, *"sqrt log log2 log10 log1p".split())
    unary(of_numpy, inside, "asin", "acos", "atanh")
    unary(of_numpy, positive + 1, "acosh")
    unary(of_numpy, odd, *"isnan isinf isfinite isposinf isneginf nan_to_num".split())
    scipy_names = {"bessel_j0": "j0", "bessel_j1": "j1", "bessel_y0": "y0", "bessel_y1": "y1",
                   "lgamma": "gammaln", "sigmoid": "expit", "logsigmoid": "log_expit"}
    of_scipy = lambda name: getattr(sp, scipy_names.get(name, name))
    unary(of_scipy, wide, *("erf erfc erfcx ndtr log_ndtr sigmoid logsigmoid bessel_j0 bessel_j1 "
                            "i0 i1 i0e i1e entr").split())
    unary(of_scipy, positive, "lgamma", "digamma", "bessel_y0", "bessel_y1")
    unary(of_scipy, inside, "erfinv")
    unary(of_scipy, share, "ndtri", "logit")
    case("rsqrt", {"x": positive}, positive ** -0.5)
    case("frac", {"x": x}, np.modf(x)[0])
    case("gelu", {"x": wide}, wide * sp.ndtr(wide))
    case("silu", {"x": wide}, wide * sp.expit(wide))
    case("softplus", {"x": wide}, np.logaddexp(wide, 0))
    case("mish", {"x": wide}, wide * np.tanh(np.logaddexp(wide, 0)))
    case("elu", {"x": x, "alpha": 0.5}, np.where(x > 0, x, 0.5 * np.expm1(x)))
    case("relu", {"x": x}, np.maximum(x, 0))
    case("clamp", {"x": x, "min": -1.0, "max": 0.5}, np.clip(x, -1, 0.5))
    case("frexp", {"x": x}, *np.frexp(x))
    case("mvlgamma", {"x": positive + 2, "p": 3}, [sp.multigammaln(v + 2, 3) for v in positive])

    a, b = eighths(3, 1), eighths(4)
    names = {"sub": "subtract", "mul": "multiply", "div": "divide", "atan2": "arctan2",
             "remainder": "mod", "floor_div": "floor_divide", "eq": "equal", "ne": "not_equal",
             "lt": "less", "le": "less_equal", "gt": "greater", "ge": "greater_equal"}
    for name in ("add sub mul div maximum minimum fmax fmin atan2 hypot copysign heaviside "
                 "logaddexp logaddexp2 remainder fmod floor_div eq ne lt le gt ge logical_and "
                 "logical_or logical_xor isclose").split():
        case(name, {"a": a, "b": b}, getattr(np, names.get(name, name))(a, b))
    case("pow", {"a": positive[:3, None], "b": b}, positive[:3, None] ** b)
    case("float_power", {"a": positive[:3, None], "b": b}, np.float_power(positive[:3, None], b))
    case("xlogy", {"a": a, "b": positive}, sp.xlogy(a, positive))
    case("xlog1py", {"a": a, "b": positive}, sp.xlog1py(a, positive))
    case("ldexp", {"a": a, "n": np.arange(-2, 3)}, np.ldexp(a, np.arange(-2, 3)))
    case("igamma", {"a": positive[:, None], "x": share}, sp.gammainc(positive[:, None], share))
    case("igammac", {"a": positive[:, None], "x": share}, sp.gammaincc(positive[:, None], share))
    order = np.arange(4)[:, None]
    case("polygamma", {"x": positive, "n": order}, sp.polygamma(order, positive))
    case("zeta", {"s": positive[:, None] + 1, "q": positive}, sp.zeta(positive[:, None] + 1, positive))
    case("nextafter", {"a": a, "b": b}, np.nextafter(a, b))
    i, j = r.integers(-40, 40, (3, 1)), r.integers(1, 30, 5)
    for name in "gcd lcm bitwise_and bitwise_or bitwise_xor remainder floor_div".split():
        case(name, {"a": i, "b": j}, getattr(np, names.get(name, name))(i, j))
    case("shift_left", {"a": j, "b": np.array(3)}, np.left_shift(j, 3))
    case("where", {"condition": x > 0, "a": x, "b": wide[:5]}, np.where(x > 0, x, wide[:5]))
    case("lerp", {"a": x, "b": x[::-1].copy(), "weight": 0.25}, x + 0.25 * (x[::-1] - x))


def reductions():
    y = eighths(3, 4, 2, low=-4, high=4)
    for name, f in {"sum": np.sum, "mean": np.mean, "prod": np.prod, "amax": np.max,
                    "amin": np.min, "logsumexp": sp.logsumexp}.items():
        case(name, {"x": y}, f(y))
        case(name, {"x": y, "dims": [1, 3]}, f(y, axis=(0, 2)))
        case(name, {"x": y, "dims": [2], "keepdim": True}, f(y, axis=1, keepdims=True))
    for name, f in {"var": np.var, "std": np.std}.items():
        case(name, {"x": y, "dims": [2]}, f(y, axis=1, ddof=1))
        case(name, {"x": y, "correction": 0}, f(y))
    for p in (1, 2, 3):
        case("norm", {"x": y, "p": p, "dims": [2]}, np.sum(np.abs(y) ** p, axis=1) ** (1 / p))
    case("any", {"x": y > 2, "dims": [3]}, np.any(y > 2, axis=2))
    case("all", {"x": y > -3, "dims": [3]}, np.all(y > -3, axis=2))
    case("count_nonzero", {"x": y > 0, "dims": [1]}, np.count_nonzero(y > 0, axis=0))
    case("argmax", {"x": y, "dim": 2}, np.argmax(y, axis=1) + 1)
    case("argmin", {"x": y, "dim": 1}, np.argmin(y, axis=0) + 1)
    case("cumsum", {"x": y, "dim": 2}, np.cumsum(y, axis=1))
    case("cumprod", {"x": y, "dim": 1}, np.cumprod(y, axis=0))
    case("logcumsumexp", {"x": y, "dim": 2}, np.logaddexp.accumulate(y, axis=1))
    case("cummax", {"x": y, "dim": 2}, np.maximum.accumulate(y, axis=1))
    case("cummin", {"x": y, "dim": 1}, np.minimum.accumulate(y, axis=0))
    case("softmax", {"x": y, "dim": 2}, sp.softmax(y, axis=1))
    case("log_softmax", {"x": y, "dim": 3}, sp.log_softmax(y, axis=2))
    case("sort", {"x": y, "dim": 2}, np.sort(y, axis=1), np.argsort(y, axis=1) + 1)
    case("argsort", {"x": y, "dim": 1}, np.argsort(y, axis=0) + 1)
    case("topk", {"x": y, "k": 2, "dim": 2}, -np.sort(-y, axis=1)[:, :2])
    case("kthvalue", {"x": y, "k": 2, "dim": 2}, np.sort(y, axis=1)[:, 1])
    case("median", {"x": y, "dim": 2}, np.percentile(y, 50, axis=1, method="lower"))
    holes = np.where(y > 2.5, np.nan, y)
    holes[:, 0] = -1
    case("nanmedian", {"x": holes, "dim": 2}, np.nanpercentile(holes, 50, axis=1, method="lower"))
    case("nansum", {"x": holes, "dims": [2]}, np.nansum(holes, axis=1))
    case("nanmean", {"x": holes, "dims": [2]}, np.nanmean(holes, axis=1))
    for how in "linear lower higher midpoint nearest".split():
        case("quantile", {"x": y, "q": 0.3, "dim": 2, "interpolation": how},
             np.quantile(y, 0.3, axis=1, method=how))
        case("nanquantile", {"x": holes, "q": 0.45, "dim": 2, "interpolation": how},
             np.nanquantile(holes, 0.45, axis=1, method=how))
    whole = r.integers(1, 5, (4, 6))
    case("mode", {"x": whole, "dim": 2}, scipy.stats.mode(whole, axis=1).mode)
    case("unique", {"x": whole}, *(v + k for v, k in zip(
        np.unique(whole, return_inverse=True, return_counts=True), (0, 1, 0))))
    case("bincount", {"x": whole, "minlength": 6}, np.bincount(whole.ravel() - 1, minlength=6))
    case("bincount", {"x": whole[0], "weight": x.ravel()[:6]},
         np.bincount(whole[0] - 1, x.ravel()[:6]))
    case("isin", {"x": whole, "values": np.array([2, 4])}, np.isin(whole, [2, 4]))
    stops = np.array([-1.0, 0.0, 0.0, 1.5])
    case("searchsorted", {"sorted": stops, "x": x}, np.searchsorted(stops, x) + 1)
    case("bucketize", {"x": x, "boundaries": stops, "right": True},
         np.searchsorted(stops, x, side="right") + 1)


def statistics():
    y, z = eighths(3, 8), eighths(8)
    case("cov", {"x": y}, np.cov(y))
    case("corrcoef", {"x": y}, np.corrcoef(y))
    case("diff", {"x": y, "n": 2}, np.diff(y, n=2))
    case("trapezoid", {"y": y, "dx": 0.5}, np.trapezoid(y, dx=0.5))
    case("trapezoid", {"y": y, "x": z}, np.trapezoid(y, z))
    case("cumulative_trapezoid", {"y": y, "x": z}, scipy.integrate.cumulative_trapezoid(y, z))
    case("histogram", {"x": y, "bins": 5}, *np.histogram(y, 5))
    case("histogram", {"x": y, "bins": 4, "min": -2.0, "max": 2.5, "weight": y * y},
         *np.histogram(y, 4, (-2, 2.5), weights=y * y))
    case("histogram", {"x": y, "bins": 4, "density": True}, *np.histogram(y, 4, density=True))
    case("histc", {"x": y, "bins": 4, "min": -2.0, "max": 2.0}, np.histogram(y, 4, (-2, 2))[0] * 1.0)
    a, b = eighths(4, 3), eighths(5, 3)
    for p, name in ((1.0, "cityblock"), (2.0, "euclidean")):
        case("cdist", {"a": a, "b": b, "p": p}, distance.cdist(a, b, name))
    case("cdist", {"a": a, "b": b, "p": 3.0}, distance.cdist(a, b, "minkowski", p=3))
    case("cosine_similarity", {"a": a, "b": b[:4], "dim": 2},
         [1 - distance.cosine(u, v) for u, v in zip(a, b)])
    case("dist", {"a": a, "b": b[:4], "p": 3.0}, np.sum(np.abs(a - b[:4]) ** 3) ** (1 / 3))


def shapes():
    y, m = eighths(3, 4), eighths(4, 4)
    case("outer", {"a": wide, "b": share}, np.outer(wide, share))
    case("inner", {"a": y, "b": m}, np.inner(y, m))
    case("kron", {"a": y, "b": x}, np.kron(y, x))
    a, b = eighths(4, 3), eighths(4, 3)
    case("cross", {"a": a, "b": b}, np.cross(a, b))
    case("matmul", {"a": y, "b": m}, y @ m)
    case("trace", {"x": m}, np.trace(m))
    case("tril", {"x": m, "diagonal": -1}, np.tril(m, -1))
    case("triu", {"x": m, "diagonal": 1}, np.triu(m, 1))
    case("diag", {"x": share, "offset": 1}, np.diag(share, 1))
    case("diagonal", {"x": m, "offset": -1}, np.diagonal(m, -1))
    case("diagflat", {"x": x}, np.diagflat(x))
    case("vander", {"x": share, "n": 4}, np.vander(share, 4))
    case("roll", {"x": y, "shifts": [1, -2], "dims": [1, 2]}, np.roll(y, (1, -2), (0, 1)))
    case("flip", {"x": y, "dims": [2]}, np.flip(y, 1))
    case("tile", {"x": y, "repeats": [2, 1]}, np.tile(y, (2, 1)))
    case("repeat_interleave", {"x": y, "repeats": 2, "dim": 2}, np.repeat(y, 2, axis=1))
    for how, name in (("constant", "constant"), ("reflect", "reflect"), ("edge", "replicate"),
                      ("wrap", "circular")):
        case("pad", {"x": y, "pad": [1, 2], "mode": name}, np.pad(y, ((0, 0), (1, 2)), how))
    at = r.integers(0, 3, (2, 4))
    case("gather", {"x": y, "dim": 1, "index": at + 1}, np.take_along_axis(y, at, 0))
    case("take", {"x": y, "index": at + 1}, np.take(y, at))
    case("index_select", {"x": y, "dim": 2, "index": at[0] + 1}, np.take(y, at[0], axis=1))
    case("nonzero", {"x": y > 1}, np.argwhere(y > 1) + 1)
    case("linspace", {"start": -1.0, "stop": 2.0, "steps": 7, "dtype": "f64"},
         np.linspace(-1, 2, 7))
    case("logspace", {"start": -1.0, "stop": 2.0, "steps": 4, "base": 2.0, "dtype": "f64"},
         np.logspace(-1, 2, 4, base=2))
    for name, window in (("hann_window", "hann"), ("hamming_window", "hamming"),
                         ("blackman_window", "blackman"), ("bartlett_window", "bartlett")):
        case(name, {"n": 9, "dtype": "f64"}, scipy.signal.get_window(window, 9))
        case(name, {"n": 8, "periodic": False, "dtype": "f64"},
             scipy.signal.get_window(window, 8, fftbins=False))
    case("kaiser_window", {"n": 9, "beta": 6.0, "dtype": "f64"},
         scipy.signal.get_window(("kaiser", 6.0), 9))
    signal, kernel = eighths(1, 1, 12), eighths(1, 1, 4)
    case("conv", {"x": signal, "weight": kernel},
         scipy.signal.correlate(signal, kernel, mode="valid"))


print("-- Made by spec/support/peers_rows.py with NumPy %s and SciPy %s: a row, its arguments and\n"
      "-- its results; a tensor is its dtype, shape and elements. Long because it is data."
      % (np.__version__, scipy.__version__))
print("local inf, nan = math.huge, 0/0")
print("return {")
elementwise()
reductions()
statistics()
shapes()
print("}")
