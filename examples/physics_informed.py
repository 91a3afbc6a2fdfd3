"""A network that solves u'' = -u by the derivatives of its own output."""

import math

import torch
import torch.nn as nn

import draws

torch.set_default_dtype(torch.float32)


class Net(nn.Module):
    def __init__(self, layers):
        super().__init__()
        self.depth = len(layers) - 1
        self.layers = nn.Sequential()
        for i in range(self.depth - 1):
            self.layers.add_module("layer_%d" % i, nn.Linear(layers[i], layers[i + 1]))
            self.layers.add_module("activation_%d" % i, nn.Tanh())
        self.layers.add_module("layer_%d" % (self.depth - 1), nn.Linear(layers[-2], layers[-1]))

    def forward(self, x):
        return self.layers(x)


def gradients(y, x):
    return torch.autograd.grad(
        y, x, grad_outputs=torch.ones_like(y), create_graph=True, retain_graph=True
    )[0]


net = draws.init_(Net([1, 16, 16, 1]))
optimizer = torch.optim.Adam(net.parameters(), lr=5e-3)
x = torch.linspace(0, math.pi, 24).view(-1, 1).requires_grad_(True)
x0 = torch.zeros(1, 1, requires_grad=True)
for it in range(6):
    u = net(x)
    u_x = gradients(u, x)
    u_xx = gradients(u_x, x)
    residual = torch.mean((u_xx + u) ** 2)
    u0 = net(x0)
    boundary = (u0**2 + (gradients(u0, x0) - 1.0) ** 2).squeeze()
    loss = residual + 10 * boundary
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    print("It: %d, Loss: %.4e, residual: %.6f" % (it, loss.item(), residual.item()))
with torch.no_grad():
    error = torch.linalg.norm(net(x) - torch.sin(x)) / torch.linalg.norm(torch.sin(x))
print(f"relative error {error.item():.5f}")
hessian = torch.autograd.functional.hessian(lambda v: (v**3).sum(), torch.tensor([1.0, 2.0]))
jacobian = torch.autograd.functional.jacobian(lambda v: v**2, torch.tensor([1.0, 2.0, 3.0]))
print(hessian.tolist(), torch.diagonal(jacobian).tolist())
