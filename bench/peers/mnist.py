"""The recipe of examples/mnist.lua in PyTorch: 9,000 digits to learn from, 1,000
held out, Adam 1e-3, batches of 128.

    python mnist.py IMAGES LABELS mlp|cnn SEED THREADS
"""

import gzip
import sys

import torch
import torch.nn as nn
import torch.nn.functional as F

images, labels, kind, seed, threads = sys.argv[1:6]
torch.set_num_threads(int(threads))
torch.manual_seed(int(seed))


def read(path, skip):
    opened = gzip.open(path) if path.endswith(".gz") else open(path, "rb")
    with opened as file:
        return torch.frombuffer(bytearray(file.read()[skip:]), dtype=torch.uint8)


x = read(images, 16).view(-1, 1, 28, 28).float() / 255
y = read(labels, 8).long()
order = torch.randperm(len(x))
x, y = x[order], y[order]
if kind == "mlp":
    epochs = 20
    model = nn.Sequential(nn.Flatten(), nn.Linear(784, 256), nn.ReLU(), nn.Linear(256, 128),
                          nn.ReLU(), nn.Linear(128, 10))
else:
    epochs = 15
    model = nn.Sequential(nn.Conv2d(1, 32, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2),
                          nn.Conv2d(32, 64, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2),
                          nn.Flatten(), nn.Linear(64 * 49, 128), nn.ReLU(), nn.Dropout(0.3),
                          nn.Linear(128, 10))
optimizer = torch.optim.Adam(model.parameters(), 1e-3)
for _ in range(epochs):
    model.train()
    order = torch.randperm(len(x) - 1000)
    for i in range(0, len(order), 128):
        rows = order[i:i + 128]
        optimizer.zero_grad()
        F.cross_entropy(model(x[rows]), y[rows]).backward()
        optimizer.step()
model.eval()
with torch.no_grad():
    right = (model(x[-1000:]).argmax(1) == y[-1000:]).float().mean().item()
print(f"accuracy {right:.4f}")
