import torch
import torch.nn as nn
from torch.utils.checkpoint import checkpoint

import draws


class Residual(nn.Module):
    def __init__(self, dim):
        super().__init__()
        self.norm = nn.LayerNorm(dim)
        self.fc1, self.fc2 = nn.Linear(dim, 2 * dim), nn.Linear(2 * dim, dim)

    def forward(self, x):
        return x + self.fc2(nn.functional.gelu(self.fc1(self.norm(x))))


class Model(nn.Module):
    def __init__(self, dim=16, depth=3, use_checkpoint=False):
        super().__init__()
        self.layers = nn.ModuleList([Residual(dim) for _ in range(depth)])
        self.out = nn.Linear(dim, 1)
        self.use_checkpoint = use_checkpoint

    def forward(self, x):
        for layer in self.layers:
            x = checkpoint(layer, x, use_reentrant=False) if self.use_checkpoint else layer(x)
        return self.out(x).squeeze(-1)


def gradients(accumulate, use_checkpoint):
    draws.seed(5)
    model = draws.init_(Model(use_checkpoint=use_checkpoint))
    x, y = draws.randn(32, 16).requires_grad_(), draws.randn(32)
    for xb, yb in zip(x.chunk(accumulate), y.chunk(accumulate)):
        loss = nn.functional.mse_loss(model(xb), yb) / accumulate
        loss.backward()
    return [p.grad.clone() for p in model.parameters()], loss.item() * accumulate


whole, _ = gradients(1, False)
for accumulate, use_checkpoint in [(4, False), (1, True), (4, True)]:
    parts, loss = gradients(accumulate, use_checkpoint)
    same = all(torch.allclose(a, b, atol=1e-5) for a, b in zip(whole, parts))
    print(accumulate, use_checkpoint, same, f"{loss:.6f}")

draws.seed(6)
model = draws.init_(Model())
optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)
accumulation_steps, running = 2, 0.0
x, y = draws.randn(96, 16), draws.randn(96)
for i, (inputs, labels) in enumerate(zip(x.split(8), y.split(8))):
    loss = nn.functional.mse_loss(model(inputs), labels)
    running += loss.item()
    loss = loss / accumulation_steps
    loss.backward()
    if (i + 1) % accumulation_steps == 0:
        total_norm = nn.utils.clip_grad_norm_(model.parameters(), max_norm=1.0)
        optimizer.step()
        optimizer.zero_grad()
        print(
            f"step {i // accumulation_steps} loss {running / accumulation_steps:.6f} norm {float(total_norm):.5f}"
        )
        running = 0.0
