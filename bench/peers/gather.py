# The functions of bench/gpu/gather.lua in PyTorch, eager and by torch.compile, on a GPU:
# microseconds a call, the best of five times ten.
import time

import torch
import torch.nn.functional as F

torch.manual_seed(1)
torch.set_default_device("cuda")


def measure(f):
    for _ in range(5):
        f()
    torch.cuda.synchronize()
    best = float("inf")
    for _ in range(5):
        start = time.perf_counter()
        for _ in range(10):
            f()
        torch.cuda.synchronize()
        best = min(best, (time.perf_counter() - start) / 10)
    return best * 1e6


nodes, edges, heads, size = 65536, 1048576, 4, 64
width = heads * size
source, target = torch.randint(nodes, (edges,)), torch.randint(nodes, (edges,))
h, score = torch.randn(nodes, width), torch.randn(edges, heads)
total, dy = torch.rand(nodes, heads) + 1, torch.randn(nodes, width)
by_head, by_width = target[:, None].expand(edges, heads), target[:, None].expand(edges, width)
rows, batch, bag = 100000, 8192, 32
tables, words = torch.randn(rows, 128), torch.randint(rows, (batch, bag))
grads = torch.randn(batch, bag, 128)
experts, tokens = 16384, 32768
slots = torch.randint(experts, (tokens,))
x, gate = torch.randn(experts, 1024), torch.rand(tokens, 1)
logits, label = torch.randn(experts, 1024), torch.randint(1024, (experts, 1))


def messages_to_nodes():
    weight = score.exp() / (total.gather(0, by_head) + 1e-16)
    message = h.index_select(0, source).view(edges, heads, size) * weight[:, :, None]
    return torch.zeros(nodes, width).scatter_add(0, by_width, message.view(edges, width))


def gradients_of_messages():
    d = dy.gather(0, by_width).view(edges, heads, size)
    return (d * h.index_select(0, source).view(edges, heads, size)).sum(2)


def sums_of_gradients():
    d = dy.gather(0, by_width).view(edges, heads, size)
    return torch.zeros(nodes, width).index_add(0, source, (d * score[:, :, None]).view(edges, width))


def softmax_of_segments():
    e = (score - 1).exp()
    return e / (torch.zeros(nodes, heads).scatter_add(0, by_head, e).gather(0, by_head) + 1e-16)


def mean_of_embeddings():
    return F.embedding(words, tables).mean(1)


def gradient_of_a_table():
    t = tables.detach().requires_grad_()
    return torch.autograd.grad((F.embedding(words, t) * grads).sum(), t)[0]


def routing_to_experts():
    return x.index_select(0, slots) * gate


def routing_back():
    return torch.zeros(experts, 1024).index_add(0, slots, x.index_select(0, slots) * 2 * gate)


def loss_of_labels():
    return -F.log_softmax(logits, 1).gather(1, label).mean()


for f in (messages_to_nodes, gradients_of_messages, sums_of_gradients, softmax_of_segments, mean_of_embeddings,
          gradient_of_a_table, routing_to_experts, routing_back, loss_of_labels):
    c = torch.compile(f)
    print(f"{f.__name__.replace('_', ' '):22s} eager {measure(f):9.1f} us  compiled {measure(c):9.1f} us", flush=True)
