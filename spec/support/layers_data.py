"""Layers, optimizers, schedules and distributions by PyTorch in f64, as data for
spec/nn/peers_spec.lua, spec/nn/weights_spec.lua, spec/optim_peers_spec.lua and
spec/distributions_peers_spec.lua:

    python3 spec/support/layers_data.py > spec/support/layers_data.lua

Tensors are fill(shape, c), as spec/support/fill.lua makes them. Those of a module are numbered by
the order of their names. A row has the sum of the result times fill(shape, 3), then the sums of
magnitudes of gradients towards the leaves, those of a module's parameters in one.
"""
import textwrap

import torch
import torch.nn.functional as F
import torch.nn.utils.prune as prune
from torch import nn

torch.set_default_dtype(torch.float64)


def fill(shape, c):
    n = 1
    for size in shape:
        n *= size
    return torch.sin(0.7 * torch.arange(1, n + 1) + c).reshape(shape)


def leaf(shape, c):
    return fill(shape, c).requires_grad_()


def emit(name, values):
    numbers = ["%.13g" % (0.0 + float(torch.as_tensor(v).detach())) for v in values]
    text = "%s = {%s}," % (name, ", ".join(numbers))
    print(textwrap.fill(text, 98, initial_indent="  ", subsequent_indent="    ",
                        break_long_words=False))


def row(name, y, leaves, module=None):
    value = (y * fill(y.shape, 3)).sum()
    own = list(module.parameters()) if module else []
    grads = torch.autograd.grad(value, leaves + own, allow_unused=True)
    sums = [0 if g is None else g.abs().sum() for g in grads]
    emit(name, [value] + sums[:len(leaves)] + ([sum(sums[len(leaves):])] if own else []))


def names(name, module):
    words = ['"%s"' % k for k in sorted(module.state_dict()) if "num_batches" not in k]
    print(textwrap.fill("%s_names = {%s}," % (name, ", ".join(words)), 98, initial_indent="  ",
                        subsequent_indent="    ", break_long_words=False, break_on_hyphens=False))


def known(module):
    state = {k: v for k, v in module.state_dict().items() if "num_batches" not in k}
    for number, name in enumerate(sorted(state), 1):
        state[name].copy_(fill(state[name].shape, number) * 0.3)
    return module


print("-- Made by spec/support/layers_data.py with PyTorch %s." % torch.__version__.split("+")[0])
print("local nan, inf = 0 / 0, math.huge")
print("return {")

# bags
one = torch.tensor([2, 5, 1, 1, 3, 4, 1]) - 1
offsets = torch.tensor([1, 3, 3, 5, 7]) - 1
for mode in ("sum", "mean", "max"):
    for padding in (None, 1):
        w = leaf((5, 3), 1)
        name = "bag_%s%s" % (mode, "_padded" if padding else "")
        pad = padding and padding - 1
        row(name, F.embedding_bag(one, w, offsets, mode=mode, padding_idx=pad), [w])
        row(name + "_2d", F.embedding_bag(one[:6].reshape(2, 3), w, mode=mode, padding_idx=pad),
            [w])
w, share = leaf((5, 3), 1), leaf((7,), 2)
row("bag_weights", F.embedding_bag(one, w, offsets, mode="sum", per_sample_weights=share),
    [w, share])
row("bag_weights_padded", F.embedding_bag(one, w, offsets, mode="sum", per_sample_weights=share,
                                          padding_idx=0), [w, share])
e = nn.Embedding(5, 3, max_norm=0.9)
e.weight.data.copy_(fill((5, 3), 1))
row("embedding_max_norm", e(one), [], e)
emit("embedding_max_norm_weight", e.weight.detach().flatten())

# transformers
options = dict(dim_feedforward=10, dropout=0.0, batch_first=True)
past = nn.Transformer.generate_square_subsequent_mask(3)
for first in (False, True):
    x, memory = leaf((2, 3, 6), 1), leaf((2, 4, 6), 2)
    end = "_first" if first else ""
    m = known(nn.TransformerEncoderLayer(6, 2, norm_first=first, **options))
    row("encoder_layer" + end, m(x, src_mask=past), [x], m)
    m = known(nn.TransformerDecoderLayer(6, 2, norm_first=first, activation="gelu", **options))
    row("decoder_layer" + end, m(x, memory, tgt_mask=past), [x, memory], m)
    m = known(nn.Transformer(6, 3, num_encoder_layers=2, num_decoder_layers=1, norm_first=first,
                             **options))
    row("transformer" + end, m(memory, x, tgt_mask=past), [memory, x], m)
names("transformer", m)
m = known(nn.MultiheadAttention(6, 2, kdim=5, vdim=5, batch_first=True))
x, memory = leaf((2, 3, 6), 1), leaf((2, 4, 5), 2)
y, weights = m(x, memory, memory, average_attn_weights=False)
row("attention_memory", y, [x, memory], m)
names("attention_memory", m)
emit("attention_weights", weights.detach().flatten())

# averages of weights
m = nn.Sequential(nn.Linear(3, 2), nn.BatchNorm1d(2))
m[0].weight.data.copy_(fill((2, 3), 1))
m[0].bias.data.copy_(fill((2,), 2))
swa = torch.optim.swa_utils.AveragedModel(m)
for c in (3, 4, 5):
    m[0].weight.data.copy_(fill((2, 3), c))
    swa.update_parameters(m)
torch.optim.swa_utils.update_bn([fill((4, 3), 6), fill((5, 3), 7)], swa)
emit("swa", torch.cat([t.flatten() for t in (
    swa.module[0].weight, swa.module[1].running_mean, swa.module[1].running_var)]))

# recurrent layers
for end, options in (("", {}), ("_deep", dict(num_layers=2, bidirectional=True))):
    m = known(nn.LSTM(3, 5, proj_size=2, **options))
    n = 4 if options else 1
    x, h, c = leaf((6, 2, 3), 1), leaf((n, 2, 2), 2), leaf((n, 2, 5), 3)
    y, (h1, c1) = m(x, (h, c))
    row("lstm_projection" + end, torch.cat([y.flatten(), h1.flatten(), c1.flatten()]), [x, h, c], m)
names("lstm_projection_deep", m)

# norms
m = nn.BatchNorm1d(3, momentum=None)
for c in (1, 2, 4):
    y = m(fill((4, 3, 2), c))
row("batch_norm_cumulative", y, [], m)
emit("batch_norm_cumulative_stats", torch.cat([m.running_mean, m.running_var]))

# small layers
x = leaf((2, 5, 3), 1)
row("local_response_norm", F.local_response_norm(x, 4, 0.3, 0.6, 0.9), [x])
x = leaf((2, 5), 1)
row("local_response_norm_flat", F.local_response_norm(x.unsqueeze(2), 3).squeeze(2), [x])
row("threshold", F.threshold(x, 0.2, -3.0), [x])
row("softmin", F.softmin(x, 1), [x])
row("rrelu", F.rrelu(x, 0.2, 0.6), [x])
other = leaf((2, 5), 4)
row("pairwise_distance", nn.PairwiseDistance(3, 1e-3, keepdim=True)(x, other), [x, other])
labels = torch.tensor([[4, 1, 0, 2, 0], [5, 3, 2, 1, 4]]) - 1
for how in ("mean", "sum", "none"):
    row("multilabel_margin_" + how, F.multilabel_margin_loss(x, labels, reduction=how), [x])
row("multilabel_margin_one", F.multilabel_margin_loss(x[0], labels[0]), [x])
third = leaf((2, 5), 2)
row("triplet_distance", F.triplet_margin_with_distance_loss(
    x, other, third, distance_function=lambda a, b: (a - b).abs().sum(-1), margin=2, swap=True),
    [x, other, third])
for name, shape, groups in (("1", (4, 3, 4), 1), ("2", (4, 2, 3, 2), 2), ("3", (3, 3, 1, 2, 3), 1)):
    w = torch.empty(shape)
    nn.init.dirac_(w, groups)
    emit("dirac_" + name, w.flatten())

# many classes
m = known(nn.AdaptiveLogSoftmaxWithLoss(6, 12, [3, 7], div_value=2.0, head_bias=True))
x = leaf((5, 6), 1)
y, loss = m(x, torch.tensor([1, 12, 4, 8, 7]) - 1)
row("adaptive", torch.cat([y, loss.view(1)]), [x], m)
emit("adaptive_all", m.log_prob(x).flatten())
names("adaptive", m)

# weights made of others
m = nn.Linear(4, 3)
m.weight.data.copy_(fill((3, 4), 1))
prune.l1_unstructured(m, "weight", 0.3)
emit("prune_once", m.weight.flatten())
prune.l1_unstructured(m, "weight", 2)
emit("prune_twice", m.weight.flatten())
prune.ln_structured(m, "weight", 1, n=2, dim=1)
emit("prune_slices", m.weight.flatten())
layers = [nn.Linear(4, 3), nn.Linear(2, 3)]
for c, m in enumerate(layers, 1):
    m.weight.data.copy_(fill(m.weight.shape, c))
prune.global_unstructured([(m, "weight") for m in layers],
                                   prune.L1Unstructured, amount=7)
emit("prune_global", torch.cat([m.weight.flatten() for m in layers]))

m = nn.Sequential(nn.utils.parametrizations.weight_norm(nn.Linear(4, 3)),
                  nn.utils.parametrizations.spectral_norm(nn.Linear(3, 3)), nn.Linear(3, 2),
                  nn.EmbeddingBag(3, 2), nn.BatchNorm1d(2))
prune.l1_unstructured(m[2], "weight", 2)
names("made_of_others", m)

# optimizers
def steps(name, optimizer, n=6, **options):
    p = fill((3, 4), 1).float().requires_grad_()
    q = fill((4, 2), 2).float().requires_grad_()
    o = optimizer([p, q], **options)
    for _ in range(n):
        o.zero_grad()
        ((p @ q).square().sum() + (p.sin() * 0.3).sum()).backward()
        o.step()
    emit(name, torch.cat([p.flatten(), q.flatten()]))


optim = torch.optim
steps("asgd", optim.ASGD, lr=0.05, t0=2, lambd=0.1, weight_decay=0.1)
steps("adafactor", optim.Adafactor, lr=0.3, weight_decay=0.1)
steps("adafactor_far", optim.Adafactor, lr=0.9, d=1.5, eps=(1e-4, 0.9), beta2_decay=-0.5)
torch.Tensor.bfloat16 = lambda x: x.clone()  # Muon in f32, as sums in bf16 depend on their order
steps("muon", optim.Muon, lr=0.05)
steps("muon_rms", optim.Muon, lr=0.1, nesterov=False, momentum=0.8, weight_decay=0,
      adjust_lr_fn="match_rms_adamw")


# distributions: sums of log_prob, entropy, mean, variance, cdf, icdf and divergence, nan for none
def figures(name, d, x, other=None, share=None):
    def of(f):
        try:
            return f().sum()
        except (NotImplementedError, AttributeError, TypeError):
            return float("nan")
    emit("d_" + name, [of(f) for f in (
        lambda: d.log_prob(x), d.entropy, lambda: d.mean, lambda: d.variance,
        lambda: d.cdf(x), lambda: d.icdf(share),
        lambda: torch.distributions.kl_divergence(d, other))])


D = torch.distributions
s, u = (4, 3), (fill((4, 3), 9) + 1) / 2.2 + 0.02


def positive(shape, c):
    return fill(shape, c).abs() + 0.3


figures("Normal", D.Normal(fill((3,), 1), positive((4, 1), 2)), fill(s, 5), share=u)
figures("Uniform", D.Uniform(fill(s, 1) - 1, fill(s, 1) + 1.5), fill(s, 2),
        D.Uniform(fill(s, 1) - 2, fill(s, 1) + 1.7), u)
figures("Exponential", D.Exponential(positive(s, 1)), positive(s, 3), share=u)
figures("Laplace", D.Laplace(fill(s, 1), positive((3,), 2)), fill(s, 5),
        D.Laplace(fill(s, 3), positive(s, 4)), u)
figures("Gamma", D.Gamma(positive(s, 1), positive((3,), 2)), positive(s, 5))
figures("Poisson", D.Poisson(positive(s, 1) * 3), torch.arange(12.0).remainder(5).view(s),
        D.Poisson(positive(s, 2)))
figures("LogNormal", D.LogNormal(fill(s, 1), positive((3,), 2)), positive(s, 5),
        D.LogNormal(fill(s, 3), positive(s, 4)), u)
figures("Cauchy", D.Cauchy(fill(s, 1), positive((3,), 2)), fill(s, 5),
        D.Cauchy(fill(s, 3), positive(s, 4)), u)
figures("HalfNormal", D.HalfNormal(positive(s, 2)), positive(s, 5), D.HalfNormal(positive(s, 4)),
        u)
figures("HalfCauchy", D.HalfCauchy(positive(s, 2)), positive(s, 5), share=u)
figures("StudentT", D.StudentT(positive(s, 2) + 2, fill((3,), 1), positive(s, 3)), fill(s, 5))
figures("Chi2", D.Chi2(positive(s, 2) * 3), positive(s, 5), D.Chi2(positive(s, 3)))
figures("InverseGamma", D.InverseGamma(positive(s, 2) + 2, positive(s, 3)), positive(s, 5),
        D.InverseGamma(positive(s, 4) + 2, positive(s, 5)))
figures("Gumbel", D.Gumbel(fill(s, 1), positive((3,), 2)), fill(s, 5),
        D.Gumbel(fill(s, 3), positive(s, 4)), u)
figures("Weibull", D.Weibull(positive(s, 1), positive(s, 2) + 1), positive(s, 5), share=u)
figures("Pareto", D.Pareto(positive(s, 1), positive(s, 2) + 2), positive(s, 1) + 0.5, share=u)
figures("Geometric", D.Geometric(logits=fill(s, 1)), torch.arange(12.0).remainder(5).view(s),
        D.Geometric(probs=u))
figures("Binomial", D.Binomial(torch.tensor(6.0), logits=fill(s, 1) * 2),
        torch.arange(12.0).remainder(7).view(s))
figures("NegativeBinomial", D.NegativeBinomial(positive((3,), 2) * 4, probs=u * 0.7),
        torch.arange(12.0).remainder(7).view(s))
classes = torch.tensor([1, 3, 2, 2]) - 1
figures("OneHotCategorical", D.OneHotCategorical(logits=fill(s, 1) * 2), F.one_hot(classes, 3),
        D.OneHotCategorical(probs=positive(s, 2)))
figures("Multinomial", D.Multinomial(5, logits=fill((3,), 1) * 2),
        torch.tensor([[5.0, 0, 0], [1, 2, 2], [0, 4, 1]]))
figures("MixtureSameFamily", D.MixtureSameFamily(
    D.Categorical(logits=fill((3,), 1)), D.Normal(fill(s, 2), positive(s, 3))), fill((4,), 5))
figures("MixtureOfVectors", D.MixtureSameFamily(
    D.Categorical(logits=fill((4,), 1)), D.Independent(D.Normal(fill(s, 2), positive(s, 3)), 1)),
    fill((5, 3), 5))
t = D.transforms
for name, list_, at in (
        ("Affine", [t.AffineTransform(0.5, fill((3,), 4))], fill(s, 5)),
        ("Exp", [t.ExpTransform()], positive(s, 5)),
        ("Power", [t.ExpTransform(), t.PowerTransform(torch.tensor(-1.5))], positive(s, 5)),
        ("Sigmoid", [t.SigmoidTransform()], u),
        ("Softplus", [t.SoftplusTransform()], positive(s, 5)),
        ("Tanh", [t.TanhTransform(), t.AffineTransform(0.5, torch.tensor(-2.0))], fill(s, 5))):
    figures("Transformed" + name, D.TransformedDistribution(
        D.Normal(fill(s, 1), positive(s, 2)), list_), at)
figures("TransformedVector", D.TransformedDistribution(
    D.Independent(D.Normal(fill(s, 1), positive(s, 2)), 1), [t.TanhTransform()]), fill(s, 5) * 0.9)


def rates(name, make, n, lr=1.0):
    p = torch.zeros(1, requires_grad=True)
    o = torch.optim.SGD([p], lr=lr, momentum=0.9)
    schedule = make(o)
    values = []
    for _ in range(n):
        values += [o.param_groups[0]["lr"]]
        o.step()
        schedule.step()
    emit(name, values)


def momenta(name, make, n, adam=False):
    p = torch.zeros(1, requires_grad=True)
    o = torch.optim.Adam([p]) if adam else torch.optim.SGD([p], lr=1, momentum=0.9)
    schedule = make(o)
    values = []
    for _ in range(n):
        group = o.param_groups[0]
        values += [group["betas"][0] if adam else group["momentum"]]
        o.step()
        schedule.step()
    emit(name, values)


s = torch.optim.lr_scheduler
for mode in ("triangular", "triangular2", "exp_range"):
    rates("cyclic_" + mode, lambda o: s.CyclicLR(
        o, base_lr=0.1, max_lr=1, step_size_up=3, step_size_down=2, mode=mode, gamma=0.9), 13)
rates("cyclic_even", lambda o: s.CyclicLR(o, base_lr=0.25, max_lr=1, step_size_up=2), 9)
rates("constant", lambda o: s.ConstantLR(o, factor=0.25, total_iters=3), 6)
rates("sequential", lambda o: s.SequentialLR(o, [
    s.LinearLR(o, start_factor=0.25, end_factor=1, total_iters=3), s.ExponentialLR(o, 0.5),
    s.StepLR(o, 2, 0.1)], milestones=[3, 6]), 11)
rates("chained", lambda o: s.ChainedScheduler([
    s.ConstantLR(o, factor=0.25, total_iters=3), s.ExponentialLR(o, 0.5)]), 6)
momenta("cyclic_momentum", lambda o: s.CyclicLR(
    o, base_lr=0.1, max_lr=1, step_size_up=3, step_size_down=2), 7)
momenta("one_cycle_momentum", lambda o: s.OneCycleLR(o, 1, total_steps=10), 10)
momenta("one_cycle_beta", lambda o: s.OneCycleLR(o, 1, total_steps=10), 10, adam=True)
print("}")
