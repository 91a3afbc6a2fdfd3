"""An exponential moving average of weights, self-training with it, and swapping it in."""

import copy
from contextlib import contextmanager

import torch
from torch import nn

import draws


class EMA:
    def __init__(self, model, decay=0.9):
        self.decay = decay
        self.shadow = copy.deepcopy(model).eval().requires_grad_(False)
        self.backup = {}

    @torch.no_grad()
    def update(self, model):
        for s, p in zip(self.shadow.parameters(), model.parameters()):
            s.lerp_(p, 1 - self.decay)
        for s, b in zip(self.shadow.buffers(), model.buffers()):
            s.copy_(b)

    @contextmanager
    def applied(self, model):
        self.backup = {n: p.data.clone() for n, p in model.named_parameters()}
        for (n, p), s in zip(model.named_parameters(), self.shadow.parameters()):
            p.data.copy_(s.data)
        try:
            yield model
        finally:
            for n, p in model.named_parameters():
                p.data.copy_(self.backup[n])


model = draws.init_(
    nn.Sequential(nn.Linear(6, 16), nn.BatchNorm1d(16), nn.Tanh(), nn.Linear(16, 1))
)
ema = EMA(model)
optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)
w = draws.randn(6, 1)
for step in range(6):
    x = draws.randn(32, 6)
    y = torch.sin(x @ w)
    unlabeled = draws.randn(16, 6)
    with torch.no_grad():
        pseudo = ema.shadow(unlabeled)
    loss = nn.functional.mse_loss(model(x), y) + 0.1 * nn.functional.mse_loss(
        model(unlabeled), pseudo
    )
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    ema.update(model)
    distance = sum(
        (p - s).pow(2).sum() for p, s in zip(model.parameters(), ema.shadow.parameters())
    ).sqrt()
    print("step {} loss {:.6f} distance {:.6f}".format(step, loss.item(), distance.item()))

model.eval()
x = draws.randn(64, 6)
now = nn.functional.mse_loss(model(x), torch.sin(x @ w)).item()
with ema.applied(model):
    averaged = nn.functional.mse_loss(model(x), torch.sin(x @ w)).item()
again = nn.functional.mse_loss(model(x), torch.sin(x @ w)).item()
print(f"{now:.6f} {averaged:.6f}", now == again)
print(
    all(not p.requires_grad for p in ema.shadow.parameters()),
    ema.shadow[1].num_batches_tracked.item(),
)
