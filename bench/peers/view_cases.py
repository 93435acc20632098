"""Writes through views in PyTorch: values and gradients of each case, or that it is refused.
Prints spec/support/view_cases_expected.lua:
  python bench/peers/view_cases.py > spec/support/view_cases_expected.lua
The same cases, by name, are in spec/support/view_cases.lua."""
import torch

cases = []


def case(f):
    cases.append(f)
    return f


def wave(*shape, seed=0):
    """Known numbers: element k (from 1) is seed + k / 2 + (k^2 mod 5) / 4."""
    n = 1
    for size in shape:
        n *= size
    k = torch.arange(1, n + 1, dtype=torch.float64)
    return (seed + k / 2 + k * k % 5 / 4).reshape(shape)


def leaf(*shape, seed=0):
    return wave(*shape, seed=seed).requires_grad_()


def back(y, seed=3):
    """Backward from y, each element weighed differently."""
    (y * wave(*y.shape, seed=seed)).sum().backward()


@case
def write_before_a_view():
    x = leaf(4)
    y = x * 2
    y.mul_(3)
    v = y[1:3]
    back(v)
    return dict(y=y, v=v, x=x.grad)


@case
def write_after_a_view():
    x = leaf(4)
    y = x * 2
    v = y[1:3]
    y.mul_(3)
    back(v)
    return dict(y=y, v=v, x=x.grad)


@case
def squared_then_viewed():
    x = leaf(4)
    y = x * 2
    v = (y * y)[1:3]
    back(v)
    return dict(v=v, x=x.grad)


@case
def squared_in_place():
    x = leaf(4)
    y = x * 2
    v = y[1:3]
    y.mul_(y)
    back(v)
    return dict(v=v, x=x.grad)


@case
def write_through_a_view():
    x, w = leaf(4), leaf(2, seed=1)
    y = x * 2
    y[1:3].mul_(w)
    back(y)
    return dict(y=y, x=x.grad, w=w.grad)


@case
def write_through_a_view_read_from_it():
    x, w = leaf(4), leaf(2, seed=1)
    y = x * 2
    v = y[1:3]
    v.mul_(w)
    back(v)
    return dict(v=v, x=x.grad, w=w.grad)


@case
def chain_of_views():
    x, w = leaf(3, 4), leaf(2, seed=1)
    y = x * 2
    y[1][1:3].add_(w)
    back(y)
    return dict(y=y, x=x.grad, w=w.grad)


@case
def chain_of_views_base_written():
    x, w = leaf(3, 4), leaf(3, 1, seed=1)
    y = x * 2
    u = y[1][1:3]
    y.mul_(w)
    back(u)
    return dict(u=u, x=x.grad, w=w.grad)


@case
def chain_of_views_middle_written():
    x, w = leaf(3, 4), leaf(4, seed=1)
    y = x * 2
    v = y[1]
    u = v[1:3]
    v.mul_(w)
    back(u)
    return dict(u=u, y=y, x=x.grad, w=w.grad)


@case
def three_views_deep():
    x, w = leaf(3, 4), leaf(2, seed=1)
    y = x * 2
    y.t()[1:][:, 1:][0].mul_(w)
    back(y)
    return dict(y=y, x=x.grad, w=w.grad)


@case
def overlapping_siblings():
    x, w = leaf(5), leaf(3, seed=1)
    y = x * 2
    a, b = y[0:3], y[2:5]
    a.mul_(w)
    back(b)
    return dict(b=b, x=x.grad, w=w.grad)


@case
def overlapping_siblings_both_written():
    x, w = leaf(5), leaf(3, seed=1)
    y = x * 2
    a, b = y[0:3], y[2:5]
    a.mul_(w)
    b.mul_(w)
    back(y)
    return dict(a=a, b=b, y=y, x=x.grad, w=w.grad)


@case
def transpose_written():
    x, w = leaf(2, 3), leaf(3, 1, seed=1)
    y = x * 2
    y.t().mul_(w)
    back(y)
    return dict(y=y, x=x.grad, w=w.grad)


@case
def transpose_seen_after_a_write():
    x, w = leaf(2, 3), leaf(3, seed=1)
    y = x * 2
    t = y.t()
    y[1].mul_(w)
    back(t)
    return dict(t=t, x=x.grad, w=w.grad)


@case
def permuted_part_written():
    x, w = leaf(2, 3, 2), leaf(2, 3, seed=1)
    y = x * 2
    y.permute(2, 0, 1)[1].add_(w)
    back(y)
    return dict(y=y, x=x.grad, w=w.grad)


@case
def reshaped_view_written():
    x, w = leaf(6), leaf(3, seed=1)
    y = x * 2
    y.view(2, 3)[1].mul_(w)
    back(y)
    return dict(y=y, x=x.grad, w=w.grad)


@case
def reshaped_copy_written():
    x = leaf(2, 3)
    y = x * 2
    c = y.t().reshape(-1)
    c.mul_(wave(6))
    back(y)
    return dict(y=y, c=c, x=x.grad)


@case
def diagonal_written():
    x, w = leaf(3, 3), leaf(3, seed=1)
    y = x * 2
    y.diagonal().mul_(w)
    back(y)
    return dict(y=y, x=x.grad, w=w.grad)


@case
def unsqueezed_view_written():
    x, w = leaf(3), leaf(1, seed=1)
    y = x * 2
    y.unsqueeze(0)[0, 1:].mul_(w)
    back(y)
    return dict(y=y, x=x.grad, w=w.grad)


@case
def slice_assigned():
    x, w = leaf(3, 4), leaf(2, 4, seed=1)
    y = x * 2
    y[1:3] = w
    back(y)
    return dict(y=y, x=x.grad, w=w.grad)


@case
def slice_assigned_broadcast():
    x, w = leaf(3, 4), leaf(4, seed=1)
    y = x * 2
    y[1:3] = w
    back(y)
    return dict(y=y, x=x.grad, w=w.grad)


@case
def slice_assigned_a_number():
    x = leaf(3, 4)
    y = x * 2
    y[0] = 5.0
    back(y)
    return dict(y=y, x=x.grad)


@case
def column_assigned():
    x, w = leaf(3, 4), leaf(3, seed=1)
    y = x * 2
    y[:, 1] = w
    back(y)
    return dict(y=y, x=x.grad, w=w.grad)


@case
def steps_assigned():
    x, w = leaf(5), leaf(3, seed=1)
    y = x * 2
    y[::2] = w * w
    back(y)
    return dict(y=y, x=x.grad, w=w.grad)


@case
def element_assigned():
    x, w = leaf(3, 4), leaf(2, seed=1)
    y = x * 2
    y[1, 2] = w[0] * w[1]
    back(y)
    return dict(y=y, x=x.grad, w=w.grad)


@case
def mask_assigned_a_number():
    x = leaf(6)
    y = x * 2
    y[y > 2.5] = 1.0
    back(y)
    return dict(y=y, x=x.grad)


@case
def mask_assigned_a_tensor():
    x, w = leaf(4), leaf(2, seed=1)
    y = x * 2
    y[torch.tensor([True, False, False, True])] = w
    back(y)
    return dict(y=y, x=x.grad, w=w.grad)


@case
def positions_assigned():
    x, w = leaf(4, 2), leaf(2, 2, seed=1)
    y = x * 2
    y[torch.tensor([3, 0])] = w
    back(y)
    return dict(y=y, x=x.grad, w=w.grad)


@case
def slice_assigned_from_the_same_tensor():
    x = leaf(4)
    y = x * 2
    y[0:2] = y[2:4]
    back(y)
    return dict(y=y, x=x.grad)


@case
def filled():
    x = leaf(3, 2)
    y = x * 2
    v = y[1]
    v.fill_(3)
    y[2].zero_()
    back(y)
    return dict(y=y, x=x.grad)


@case
def all_copied_over():
    x, w = leaf(4), leaf(4, seed=1)
    y = x * 2
    v = y[0:2]
    y.copy_(w)
    back(v)
    return dict(v=v, x=x.grad, w=w.grad)


@case
def base_gets_a_history():
    x = leaf(2)
    z = torch.zeros(4, dtype=torch.float64)
    z[1:3] = x
    back(z)
    return dict(z=z, x=x.grad)


@case
def older_view_gets_a_history():
    x = leaf(2)
    z = torch.zeros(4, dtype=torch.float64)
    v = z[0:2]
    z[1:3].add_(x)
    back(v)
    return dict(v=v, x=x.grad)


@case
def sum_taken_before_a_write():
    x, w = leaf(4), leaf(2, seed=1)
    y = x * 2
    s = y.sum()
    y[0:2].mul_(w)
    back(s + y)
    return dict(y=y, x=x.grad, w=w.grad)


@case
def two_views_after_a_write():
    x, w = leaf(2, 3), leaf(3, seed=1)
    y = x * 2
    u, v = y[0], y[1]
    y.add_(w)
    back(u * v)
    return dict(u=u, v=v, x=x.grad, w=w.grad)


@case
def no_grad_write_to_a_leaf():
    x = leaf(4)
    with torch.no_grad():
        x[1:3].mul_(10)
    back(x * x)
    return dict(value=x, x=x.grad)


@case
def no_grad_write_to_a_base():
    x = leaf(4)
    y = x * 2
    v = y[0:2]
    with torch.no_grad():
        y.mul_(3)
    back(v)
    return dict(v=v, x=x.grad)


@case
def detached_shares():
    x = leaf(4)
    y = x * 2
    y.detach()[1:3].mul_(3)
    back(y)
    return dict(y=y, x=x.grad)


@case
def detached_write_to_what_is_saved():
    x = leaf(4)
    y = x.exp()
    y.detach()[0:1].mul_(2)
    back(y)
    return dict(x=x.grad)


@case
def saved_changed():
    x = leaf(4)
    y = x * 2
    z = y * y
    y.mul_(3)
    back(z)
    return dict(x=x.grad)


@case
def saved_changed_through_a_view():
    x = leaf(4)
    y = x * 2
    z = y * y
    y[1:2].zero_()
    back(z)
    return dict(x=x.grad)


@case
def factor_of_a_write_changed():
    x, w = leaf(4), leaf(2, seed=1)
    y = x * 2
    u = w * 1
    y[1:3].mul_(u)
    u.add_(1)
    back(y)
    return dict(x=x.grad)


@case
def leaf_written():
    x = leaf(4)
    x.mul_(2)
    back(x)
    return dict(x=x.grad)


@case
def view_of_a_leaf_written():
    x = leaf(4)
    x[0:2].mul_(2)
    back(x)
    return dict(x=x.grad)


@case
def expanded_view_written():
    x = leaf(3)
    y = x * 2
    y.expand(2, 3).add_(1)
    back(y)
    return dict(x=x.grad)


@case
def view_made_without_gradients_written():
    x, w = leaf(4), leaf(2, seed=1)
    y = x * 2
    with torch.no_grad():
        v = y[0:2]
    v.mul_(w)
    back(y)
    return dict(x=x.grad)


@case
def selected_part_written():
    x, w = leaf(2, 3), leaf(3, seed=1)
    y = x * 2
    y[0].mul_(w)
    back(y)
    return dict(y=y, x=x.grad, w=w.grad)


@case
def unbound_views_written():
    x, w = leaf(2, 3), leaf(3, seed=1)
    y = x * 2
    a, b = y.unbind()
    a.mul_(w)
    back(y)
    return dict(y=y, x=x.grad, w=w.grad)


@case
def half_written():
    x, w = leaf(4), leaf(2, seed=1)
    y = x * 2
    y[2:4].mul_(w)
    back(y)
    return dict(y=y, x=x.grad, w=w.grad)


@case
def split_views_written():
    x, w = leaf(4), leaf(2, seed=1)
    y = x * 2
    a, b = y.split(2)
    b.mul_(w)
    back(y)
    return dict(y=y, x=x.grad, w=w.grad)


@case
def second_gradient_through_a_view():
    x, w = leaf(4), leaf(2, seed=1)
    y = x * x
    y[1:3].mul_(w)
    (g,) = torch.autograd.grad((y * y).sum(), x, create_graph=True)
    back(g)
    return dict(g=g, x=x.grad, w=w.grad)


@case
def view_made_without_gradients_changed():
    y = leaf(4) * 2
    with torch.no_grad():
        v = y[0:2]
    v.mul_(3)


@case
def view_of_a_view_made_without_gradients_changed():
    y = leaf(4) * 2
    with torch.no_grad():
        v = y[0:3]
    v[0:2].mul_(3)


@case
def view_of_a_leaf_made_without_gradients_changed():
    x = leaf(4)
    with torch.no_grad():
        v = x[0:2]
    v.mul_(3)
    back(x * x)
    return dict(value=x, v=v, x=x.grad)


@case
def zeroed():
    x = leaf(4)
    y = x * 2
    y.zero_()
    back(y)
    return dict(y=y, x=x.grad)


@case
def older_view_asked_for_gradients():
    x, w = leaf(3, 1), leaf(2, 1, seed=1)
    y = x * 2
    v = y.unsqueeze(0)[:, :, 0]
    y[1:] = w * y[:-1].clone()
    gx, gw = torch.autograd.grad((v * wave(1, 3, seed=3)).sum(), [x, w])
    return dict(v=v, x=gx, w=gw)


@case
def older_views_of_two_bases_asked_for_gradients():
    x, w = leaf(4), leaf(4, seed=1)
    y, z = x * 2, w * w
    u, v = y[1:3], z[0:2]
    y.mul_(w)
    z.mul_(x)
    (g,) = torch.autograd.grad((u * v).sum(), x, create_graph=True)
    back(g)
    return dict(g=g, x=x.grad, w=w.grad)


@case
def gradients_of_a_result_leave_what_made_it():
    x = leaf(4)
    y = x * x
    (g,) = torch.autograd.grad((y * y).sum(), y)
    back(y)
    return dict(g=g, x=x.grad)


@case
def gradients_of_a_result_need_not_what_made_it():
    x = leaf(4)
    u = x * 2
    y = u * x
    u.zero_()
    (g,) = torch.autograd.grad((y * y).sum(), y)
    return dict(g=g)


@case
def retained_before_a_write():
    x = leaf(4)
    y = x * 2
    y.retain_grad()
    y.square_()
    back(y * 2)
    return dict(x=x.grad, y=y.grad)


@case
def retained_of_a_view_before_a_write():
    x, w = leaf(4), leaf(4, seed=1)
    y = x * 2
    v = y[1:3]
    v.retain_grad()
    y.mul_(w)
    back(v)
    return dict(x=x.grad, v=v.grad)


@case
def retained_adds_up():
    x = leaf(4)
    y = x * 2
    y.retain_grad()
    y.register_hook(lambda g: g * 2)
    (y * wave(4, seed=3)).sum().backward(retain_graph=True)
    back(y * y, 1)
    return dict(x=x.grad, y=y.grad)


@case
def frozen_after_it_was_used():
    x, w = leaf(4), leaf(4, seed=1)
    y = x * w
    x.requires_grad_(False)
    back(y)
    return dict(x=x.grad, w=w.grad)


def numbers(t):
    if t is None:
        return "false"
    return "{%s}" % ", ".join("%.15g" % v for v in t.detach().reshape(-1).tolist())


def line(text, indent):
    """Broken before 100 columns, at a comma."""
    while len(text) > 100:
        cut = text.rfind(" ", 0, 100)
        print(text[:cut])
        text = " " * (indent + 2) + text[cut + 1 :]
    print(text)


version = torch.__version__.split("+")[0]
print("-- What PyTorch %s gives; made by bench/peers/view_cases.py." % version)
print("return {")
for f in cases:
    try:
        results = f()
    except RuntimeError as e:
        text = str(e).split("\n")[0].replace('"', "'")
        print("  %s = {" % f.__name__)
        print('    refused = "%s",' % text[:80])
        print("  },")
        continue
    print("  %s = {" % f.__name__)
    for name, t in results.items():
        line("    %s = %s," % (name, numbers(t)), 4)
    print("  },")
print("}")
