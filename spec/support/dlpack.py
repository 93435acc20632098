"""dlpack.py LIBFLARE [cuda]: libflare, NumPy and PyTorch in one process, each over the memory of
the others through DLPack; with "cuda" on a GPU, too. Prints a line for each group of checks, and
"skipped: ..." where a package is missing. The class Tensor is what a Python module over flare.h
would have."""
import ctypes as c
import gc
import sys
import threading

py = c.pythonapi
py.PyCapsule_New.restype = c.py_object
py.PyCapsule_New.argtypes = [c.c_void_p, c.c_char_p, c.c_void_p]
py.PyCapsule_IsValid.argtypes = [c.py_object, c.c_char_p]
py.PyCapsule_GetPointer.restype = c.c_void_p
py.PyCapsule_GetPointer.argtypes = [c.py_object, c.c_char_p]
py.PyCapsule_SetName.argtypes = [c.py_object, c.c_char_p]

VERSIONED, OLD = b"dltensor_versioned", b"dltensor"
USED = {VERSIONED: b"used_dltensor_versioned", OLD: b"used_dltensor"}  # capsules keep the pointers
DTYPES = ["f64", "f32", "f16", "bf16", "i64", "i32", "i16", "i8", "u8", "bool", "c64",
          "c128"]
SIZES = [8, 4, 2, 2, 8, 4, 2, 1, 1, 1, 8, 16]
HOST, CUDA = 1, 2  # device types


class Meta(c.Structure):
    _fields_ = [("dtype", c.c_int), ("ndim", c.c_int), ("shape", c.c_int64 * 8)]


class Operand(c.Structure):
    _fields_ = [("tensor", c.c_void_p), ("dtype", c.c_int), ("f", c.c_double)]


class Call(c.Structure):
    _fields_ = [("op", c.c_void_p), ("n_in", c.c_int), ("inputs", c.POINTER(Operand)),
                ("attrs", c.c_void_p), ("base", c.c_int), ("inplace", c.c_bool),
                ("site", c.c_uint32), ("device", c.c_int), ("generator", c.c_void_p),
                ("out", c.POINTER(c.c_void_p))]


class Options(c.Structure):
    _fields_ = [("struct_size", c.c_size_t), ("stream", c.c_ssize_t)]


lib = c.CDLL(sys.argv[1])
for name in ("fl_error", "fl_device_name"):
    getattr(lib, name).restype = c.c_char_p
lib.fl_tensor_meta.restype = c.POINTER(Meta)
lib.fl_tensor_strides.restype = c.POINTER(c.c_int64)
lib.fl_tensor_data.restype = c.c_void_p
lib.fl_tensor_numel.restype = c.c_int64
lib.fl_op_find.restype = c.c_void_p
lib.fl_tensor_count.restype = c.c_uint64
for name in ("fl_tensor_meta", "fl_tensor_strides", "fl_tensor_data", "fl_tensor_numel",
             "fl_tensor_release", "fl_tensor_device", "fl_runtime_close", "fl_tensor_count"):
    getattr(lib, name).argtypes = [c.c_void_p]
lib.fl_op_find.argtypes = [c.c_void_p, c.c_char_p]
lib.fl_tensor_read.argtypes = [c.c_void_p, c.c_void_p, c.c_size_t]
lib.fl_call_run.argtypes = [c.c_void_p, c.POINTER(Call)]
lib.fl_device_find.argtypes = [c.c_void_p, c.c_char_p, c.POINTER(c.c_int)]
lib.fl_stream_handle.argtypes = [c.c_void_p, c.c_int, c.c_int, c.POINTER(c.c_ssize_t)]
lib.fl_stream_adopt.argtypes = [c.c_void_p, c.c_int, c.c_ssize_t, c.POINTER(c.c_int)]
lib.fl_stream_use.argtypes = [c.c_void_p, c.c_int, c.c_int]
lib.fl_device_sync.argtypes = [c.c_void_p, c.c_int]
for name in ("fl_tensor_to_dlpack", "fl_tensor_to_dlpack_old"):
    getattr(lib, name).argtypes = [c.c_void_p, c.POINTER(Options), c.POINTER(c.c_void_p)]
for name in ("fl_tensor_from_dlpack", "fl_tensor_from_dlpack_old"):
    getattr(lib, name).argtypes = [c.c_void_p, c.c_void_p, c.POINTER(Options),
                                   c.POINTER(c.c_void_p)]


class Error(BufferError):
    pass


def check(status):
    if status:
        raise Error(lib.fl_error().decode())


@c.PYFUNCTYPE(None, c.c_void_p)
def drop(capsule):
    """A capsule that was not taken: its deleter releases the tensor."""
    capsule = c.cast(capsule, c.py_object)
    for name, at in ((VERSIONED, 16), (OLD, 56)):
        if py.PyCapsule_IsValid(capsule, name):
            m = py.PyCapsule_GetPointer(capsule, name)
            c.CFUNCTYPE(None, c.c_void_p)(c.c_void_p.from_address(m + at).value)(m)


class Runtime:
    def __init__(self):
        self.p = c.c_void_p()
        check(lib.fl_runtime_open(None, c.byref(self.p)))

    def close(self):
        lib.fl_runtime_close(self.p)

    def device(self, name):
        d = c.c_int()
        check(lib.fl_device_find(self.p, name.encode(), c.byref(d)))
        return d.value

    def stream(self, device):
        handle = c.c_ssize_t()
        check(lib.fl_stream_handle(self.p, device, 0, c.byref(handle)))
        return handle.value

    def take(self, x, stream=None):
        """A Tensor over x, an object of any library with __dlpack__."""
        ask = {}
        if x.__dlpack_device__()[0] == CUDA:
            ask["stream"] = stream or self.stream(self.device("cuda:%d" % x.__dlpack_device__()[1]))
        try:
            capsule = x.__dlpack__(max_version=(1, 0), **ask)
        except TypeError:
            capsule = x.__dlpack__(**ask)
        t = c.c_void_p()
        name = VERSIONED if py.PyCapsule_IsValid(capsule, VERSIONED) else OLD
        f = lib.fl_tensor_from_dlpack if name == VERSIONED else lib.fl_tensor_from_dlpack_old
        check(f(self.p, py.PyCapsule_GetPointer(capsule, name), None, c.byref(t)))
        py.PyCapsule_SetName(capsule, USED[name])
        return Tensor(self, t)


class Tensor:
    def __init__(self, rt, p):
        self.rt, self.p = rt, p

    def __del__(self):
        lib.fl_tensor_release(self.p)

    @property
    def meta(self):
        return lib.fl_tensor_meta(self.p).contents

    @property
    def shape(self):
        return tuple(self.meta.shape[:self.meta.ndim])

    @property
    def dtype(self):
        return DTYPES[self.meta.dtype]

    @property
    def pointer(self):
        return lib.fl_tensor_data(self.p)

    def bytes(self):
        n = lib.fl_tensor_numel(self.p) * SIZES[self.meta.dtype]
        b = c.create_string_buffer(max(n, 1))
        check(lib.fl_tensor_read(self.p, b, n))
        return b.raw[:n]

    def run(self, op, *others, inplace=False):
        inputs = [Operand(self.p, 0, 0.0)]
        for x in others:
            inputs.append(Operand(x.p, 0, 0.0) if isinstance(x, Tensor) else Operand(None, 0, x))
        out = c.c_void_p()
        call = Call(op=lib.fl_op_find(self.rt.p, op.encode()), n_in=len(inputs),
                    inputs=(Operand * len(inputs))(*inputs), inplace=inplace,
                    out=c.pointer(out))
        check(lib.fl_call_run(self.rt.p, c.byref(call)))
        return Tensor(self.rt, out)

    def __dlpack_device__(self):
        name = lib.fl_device_name(self.rt.p, lib.fl_tensor_device(self.p)).decode()
        kind, _, index = name.partition(":")
        return ({"cpu": HOST, "cuda": CUDA}[kind], int(index or 0))

    def __dlpack__(self, *, stream=None, max_version=None, dl_device=None, copy=None):
        if copy or dl_device not in (None, self.__dlpack_device__()):
            raise BufferError("there are no copies here")
        cuda = self.__dlpack_device__()[0] == CUDA
        o = Options(c.sizeof(Options), (1 if stream is None else stream) if cuda else 0)
        m = c.c_void_p()
        versioned = max_version is not None and max_version[0] >= 1
        f = lib.fl_tensor_to_dlpack if versioned else lib.fl_tensor_to_dlpack_old
        check(f(self.p, c.byref(o), c.byref(m)))
        return py.PyCapsule_New(m, VERSIONED if versioned else OLD, c.cast(drop, c.c_void_p))


def refused(message, f, *args):
    try:
        f(*args)
    except Exception as e:  # noqa: BLE001, any library's
        assert message in str(e), str(e)
        return
    raise AssertionError("not refused: " + message)


def numpy_both_ways(rt, np):
    for kind in ("f8", "f4", "f2", "i8", "i4", "i2", "i1", "u1", "?", "c8",
                 "c16"):
        a = (np.arange(24) % 5).reshape(2, 3, 4).astype(kind)
        for v in (a, a.T, a[:, ::2], a[::-1, :, 1], a[1, 2, 3:], a[0, 0, 0, ...], a[:0],
                  np.broadcast_to(a[0], (2, 3, 4))):
            v = np.asarray(v)
            t = rt.take(v)
            assert t.shape == v.shape and t.bytes() == v.tobytes(), (kind, v.shape)
            assert v.size == 0 or t.pointer == v.ctypes.data
            back = np.from_dlpack(t)
            assert back.dtype == v.dtype and np.array_equal(back, v)
            assert v.size == 0 or back.ctypes.data == v.ctypes.data
    a = np.arange(6.0).reshape(2, 3)
    before = sys.getrefcount(a)
    t = rt.take(a[:, 1:])
    t.run("add", 10.0, inplace=True)
    assert a.tolist() == [[0, 11, 12], [3, 14, 15]], a
    b = np.from_dlpack(t.run("mul", 2.0))
    del t
    gc.collect()
    assert sys.getrefcount(a) == before, "the array is held"
    b[0, 0] = -1
    assert b.tolist() == [[-1, 24], [28, 30]], b
    a.flags.writeable = False
    t = rt.take(a)
    refused("may only be read: clone() it first", lambda: t.run("add", 1.0, inplace=True))
    assert not np.from_dlpack(t).flags.writeable
    refused("uint16", rt.take, np.zeros(2, "u2"))
    refused("at most 8 dims", rt.take, np.zeros((1,) * 9))
    t.__dlpack__(max_version=(1, 0))  # capsules that are not taken
    rt.take(np.zeros(2)).__dlpack__()
    print("numpy: zero-copy both ways")


def torch_both_ways(rt, torch, device):
    kinds = [torch.float64, torch.float32, torch.float16, torch.bfloat16, torch.int64, torch.int32,
             torch.int16, torch.int8, torch.uint8, torch.bool, torch.complex64,
             torch.complex128]
    for kind, name in zip(kinds, DTYPES):
        a = (torch.arange(24) % 5).reshape(2, 3, 4).to(kind).to(device)
        for v in (a, a.permute(2, 0, 1), a[:, ::2], a[1, 2, 3], a[:0], a[0].expand(2, 3, 4)):
            t = rt.take(v)
            back = torch.from_dlpack(t)
            assert t.dtype == name and t.shape == tuple(v.shape)
            assert back.dtype == v.dtype and torch.equal(back, v), (kind, v.shape)
            assert v.numel() == 0 or back.data_ptr() == v.data_ptr()
    a = torch.arange(6.0, device=device).reshape(2, 3)
    t = rt.take(a[:, 1:])
    t.run("add", 10.0, inplace=True)
    lib.fl_device_sync(rt.p, lib.fl_tensor_device(t.p))
    assert a.tolist() == [[0, 11, 12], [3, 14, 15]], a
    b = torch.from_dlpack(t.run("mul", 2.0))
    b += 1
    assert b.tolist() == [[23, 25], [29, 31]], b
    refused("detach", rt.take, a.clone().requires_grad_())
    x = a.clone().requires_grad_()  # torch's gradient through flare's values
    (x * torch.from_dlpack(rt.take(a).run("add", 1.0))).sum().backward()
    assert torch.equal(x.grad, a + 1)
    parts = [torch.from_dlpack(rt.take(a).run("add", float(k))) for k in range(20)]
    thread = threading.Thread(target=parts.clear)
    thread.start()
    thread.join()
    print("torch: zero-copy both ways on", device)


def three_in_a_row(rt, np, torch):
    a = np.arange(4.0)
    end = np.from_dlpack(torch.from_dlpack(rt.take(torch.from_dlpack(rt.take(a)))))
    assert end.ctypes.data == a.ctypes.data
    end += 1
    assert a.tolist() == [1, 2, 3, 4]
    print("numpy -> flare -> torch -> flare -> torch -> numpy: one memory")


def after_the_end(np, torch):
    for elsewhere in (False, True):
        rt = Runtime()
        held = [np.from_dlpack(rt.take(np.arange(1000.0)).run("add", 1.0))]
        if torch:
            held.append(torch.from_dlpack(rt.take(torch.arange(1000.0)).run("add", 1.0)))
        rt.close()
        assert all(float(x[999]) == 1000 and float(x.sum()) == 500500 for x in held)
        if elsewhere:
            thread = threading.Thread(target=held.clear)
            thread.start()
            thread.join()
        held.clear()
    print("memory outlives its runtime")


def on_streams(torch, device="cuda:0", rounds=40):
    """Two runtimes and PyTorch on one GPU, each in its own streams; the host does not wait."""
    one, two = Runtime(), Runtime()
    side = torch.cuda.Stream()
    n = 1 << 22
    x = torch.randn(n, device=device)
    m = torch.randn(4096, 4096, device=device)
    want = (x * 3 + 1 - 2) * 5
    worst = 0.0
    for k in range(rounds):
        with torch.cuda.stream(side if k % 2 else torch.cuda.current_stream()):
            slow = m @ m  # keeps the stream busy before what counts
            a = x * (3 + 0 * slow[0, 0])
            b = two.take(one.take(a).run("add", 1.0)).run("sub", 2.0)
            c_ = torch.from_dlpack(b) * 5
            del a, b, slow
            junk = [one.take(torch.empty(n, device=device)).run("mul", 0.0) for _ in range(2)]
            del junk
            worst = max(worst, (c_ - want).abs().max().item())
    assert worst < 1e-4, worst
    # flare in PyTorch's own stream
    number = c.c_int()
    d = one.device(device)
    check(lib.fl_stream_adopt(one.p, d, side.cuda_stream, c.byref(number)))
    check(lib.fl_stream_use(one.p, d, number))
    with torch.cuda.stream(side):
        a = (m @ m)[0].clone()
        b = torch.from_dlpack(one.take(a, side.cuda_stream).run("mul", 2.0))
        assert torch.equal(b, a * 2)
    held = torch.from_dlpack(two.take(x).run("add", 1.0))
    del a, b
    one.close()
    two.close()
    assert torch.equal(held, x + 1)
    del held
    torch.cuda.synchronize()
    print("two runtimes and torch on one GPU:", rounds, "rounds, off by at most %.3g" % worst)


def find(name):
    try:
        return __import__(name)
    except ImportError as e:
        print(f"skipped: {e}")
        return None


def main():
    rt = Runtime()
    np, torch = find("numpy"), find("torch")
    if np:
        numpy_both_ways(rt, np)
    if torch:
        torch_both_ways(rt, torch, "cpu")
        if "cuda" in sys.argv:
            torch_both_ways(rt, torch, "cuda:0")
    if np and torch:
        three_in_a_row(rt, np, torch)
    gc.collect()
    assert lib.fl_tensor_count(rt.p) == 0, "tensors are held"
    rt.close()
    if np:
        after_the_end(np, torch)
    if torch and "cuda" in sys.argv:
        on_streams(torch)
    print("done")


if __name__ == "__main__":
    main()
