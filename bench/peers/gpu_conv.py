"""The peer of bench/gpu/conv.lua in PyTorch, whose channels_last tensors are all three or none."""
import torch, torch.nn.functional as F
from gpu_measure import normal, show

torch.backends.cudnn.benchmark, torch.backends.cudnn.allow_tf32 = True, False
for dtype, batch, start, side, to, kernel, stride in (
        ("bf16", 256, 128, 28, 128, 3, 1), ("bf16", 256, 64, 56, 64, 3, 1),
        ("bf16", 256, 256, 14, 256, 3, 1), ("bf16", 256, 512, 7, 512, 3, 1),
        ("bf16", 256, 128, 56, 128, 3, 2), ("bf16", 256, 256, 56, 64, 1, 1),
        ("bf16", 256, 64, 56, 256, 1, 1), ("bf16", 256, 3, 224, 64, 7, 2),
        ("f32", 64, 128, 28, 128, 3, 1)):
    name = f"{dtype} b{batch} {start} to {to} {side}^2 k{kernel} s{stride}"
    last = dtype == "bf16" and start > 3
    for form, notes in ((torch.contiguous_format, ("",)),
                        (torch.channels_last, (" last", " last, weights too"))):
        if notes[0] and not last: continue
        x = normal(dtype, batch, start, side, side).to(memory_format=form)
        w = normal(dtype, to, start, kernel, kernel).to(memory_format=form)
        pad = kernel // 2
        conv = lambda: F.conv2d(x, w, stride=stride, padding=pad)
        dy = torch.randn_like(conv())
        def grad(*which):
            return torch.ops.aten.convolution_backward(dy, x, w, None, [stride] * 2, [pad] * 2,
                                                       [1, 1], False, [0, 0], 1, which)
        for work, f in (("", conv), (" dx", lambda: grad(True, False, False)),
                        (" dw", lambda: grad(False, True, False))):
            show([name + work + note for note in notes], f)
