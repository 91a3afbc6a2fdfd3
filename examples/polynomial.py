"""Fitting a sine by a cubic in the usual steps: tensors, autograd, nn, optim, a module of one's own."""

import math

import numpy as np
import torch

# 1. NumPy
x = np.linspace(-math.pi, math.pi, 200)
y = np.sin(x)
a, b, c, d = 0.1, -0.2, 0.3, -0.1
for t in range(5):
    y_pred = a + b * x + c * x**2 + d * x**3
    grad = 2.0 * (y_pred - y)
    print("numpy", t, "%.4f" % np.square(y_pred - y).sum())
    a, b, c, d = (v - 1e-6 * (grad * x**k).sum() for k, v in enumerate((a, b, c, d)))

# 2. tensors
dtype = torch.float
device = torch.device("cpu")
x = torch.linspace(-math.pi, math.pi, 200, device=device, dtype=dtype)
y = torch.sin(x)
a, b, c, d = (
    torch.full((), v, device=device, dtype=dtype, requires_grad=True)
    for v in (0.1, -0.2, 0.3, -0.1)
)
for t in range(5):
    y_pred = a + b * x + c * x**2 + d * x**3
    loss = (y_pred - y).pow(2).sum()
    print("autograd", t, "%.4f" % loss.item())
    loss.backward()
    with torch.no_grad():
        for p in (a, b, c, d):
            p -= 1e-6 * p.grad
            p.grad.zero_()

# 3. nn and optim
p = torch.tensor([1, 2, 3])
xx = x.unsqueeze(-1).pow(p)
model = torch.nn.Sequential(torch.nn.Linear(3, 1), torch.nn.Flatten(0, 1))
with torch.no_grad():
    model[0].weight.copy_(torch.tensor([[0.1, -0.2, 0.3]]))
    model[0].bias.fill_(0.05)
loss_fn = torch.nn.MSELoss(reduction="sum")
optimizer = torch.optim.RMSprop(model.parameters(), lr=1e-3)
for t in range(5):
    y_pred = model(xx)
    loss = loss_fn(y_pred, y)
    print("nn", t, "%.4f" % loss.item())
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
linear_layer = model[0]
print(f"Result: y = {linear_layer.bias.item():.4f} + {linear_layer.weight[:, 0].item():.4f} x")


# 4. a module whose graph changes from call to call
class DynamicNet(torch.nn.Module):
    def __init__(self):
        super().__init__()
        for name, value in zip("abcde", (0.1, 0.5, 0.01, -0.05, 0.001)):
            setattr(self, name, torch.nn.Parameter(torch.tensor(value)))
        self.calls = 0

    def forward(self, x):
        y = self.a + self.b * x + self.c * x**2 + self.d * x**3
        self.calls += 1
        for exp in range(4, 4 + self.calls % 3):
            y = y + self.e * x**exp
        return y

    def string(self):
        return f"y = {self.a.item():.4f} + {self.b.item():.4f} x + {self.c.item():.4f} x^2 + ?"


model = DynamicNet()
optimizer = torch.optim.SGD(model.parameters(), lr=1e-8, momentum=0.9)
for t in range(6):
    loss = torch.nn.functional.mse_loss(model(x), y, reduction="sum")
    print("dynamic", t, "%.4f" % loss.item())
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
print(model.string())
