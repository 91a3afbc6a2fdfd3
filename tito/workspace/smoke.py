"""That the framework works as a whole: run against each package a student is about to get."""

import numpy as np

import tinytorch
from tinytorch import nn, optim


def test_gradients() -> None:
    """the gradients of a small network are those that the chain rule gives by hand"""
    rng = np.random.default_rng(0)
    x, w = rng.standard_normal((4, 3)), rng.standard_normal((3, 2))
    inputs, weight = tinytorch.from_numpy(x), tinytorch.from_numpy(w).requires_grad_()
    ((inputs @ weight).tanh() * 2.0 - 1.0).exp().sum().backward()
    hidden = np.tanh(x @ w)
    expected = x.T @ (np.exp(2 * hidden - 1) * 2 * (1 - hidden**2))
    assert weight.grad is not None, "backward() has left no gradient"
    assert np.allclose(weight.grad.numpy(), expected), f"{weight.grad} instead of\n{expected}"


def test_training() -> None:
    """a network with a hidden layer learns exclusive or"""
    tinytorch.manual_seed(0)
    x = tinytorch.tensor([[0.0, 0.0], [0.0, 1.0], [1.0, 0.0], [1.0, 1.0]])
    y = tinytorch.tensor([[0.0], [1.0], [1.0], [0.0]])
    model = nn.Sequential(nn.Linear(2, 8), nn.Tanh(), nn.Linear(8, 1))
    optimizer = optim.SGD(model.parameters(), lr=0.2, momentum=0.9)
    loss_function = nn.MSELoss()
    for _ in range(100):
        loss = loss_function(model(x), y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    assert loss.item() < 0.02, f"the loss after 100 steps is {loss.item():.3g}"
