"""The peer of bench/gpu/depthwise.lua in PyTorch."""
import torch, torch.nn.functional as F
from gpu_measure import normal, show

torch.backends.cudnn.benchmark, torch.backends.cudnn.allow_tf32 = True, False
for dtype, batch, channels, side, kernel, stride in (
        ("bf16", 128, 96, 56, 7, 1), ("bf16", 128, 192, 28, 7, 1), ("bf16", 128, 384, 14, 7, 1),
        ("bf16", 128, 768, 7, 7, 1), ("bf16", 128, 144, 56, 3, 1), ("bf16", 128, 144, 56, 3, 2),
        ("bf16", 128, 240, 28, 5, 2), ("bf16", 32, 128, 56, 31, 1), ("f32", 64, 144, 56, 3, 1),
        ("f32", 64, 96, 56, 7, 1)):
    name, pad = f"{dtype} b{batch} {channels} {side}^2 k{kernel} s{stride}", kernel // 2
    for form, note in ((torch.contiguous_format, ""), (torch.channels_last, " last")):
        x = normal(dtype, batch, channels, side, side).to(memory_format=form)
        w = normal(dtype, channels, 1, kernel, kernel).to(memory_format=form)
        conv = lambda: F.conv2d(x, w, stride=stride, padding=pad, groups=channels)
        dy = torch.randn_like(conv())
        def grad(*which):
            return torch.ops.aten.convolution_backward(dy, x, w, None, [stride] * 2, [pad] * 2,
                                                       [1, 1], False, [0, 0], channels, which)
        show(name + note, conv)
        show(name + " dx" + note, lambda: grad(True, False, False))
        show(name + " dw" + note, lambda: grad(False, True, False))
