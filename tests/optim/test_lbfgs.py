"""L-BFGS beside PyTorch's, on functions with curved valleys, and on a network."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

import tinytorch
from tinytorch.optim import LBFGS
from tinytorch.optim.line_search import Point, cubic_minimum, strong_wolfe


def rosenbrock(p: Any) -> Any:
    return (100 * (p[1:] - p[:-1] ** 2) ** 2 + (1 - p[:-1]) ** 2).sum()


def path(library: Any, steps: int, **options: Any) -> list[list[float]]:
    """The parameters after each step, and the losses that the steps returned."""
    p = library.tensor([-1.2, 1.0, 0.5, 2.0], dtype=library.float64, requires_grad=True)
    q = library.tensor(0.5, dtype=library.float64, requires_grad=True)
    unused = library.zeros(2, dtype=library.float64, requires_grad=True)
    optimizer = library.optim.LBFGS([p, unused, q], **options)
    seen = []

    def closure() -> Any:
        optimizer.zero_grad()
        loss = rosenbrock(p) + (q - 2) ** 4
        loss.backward()
        return loss

    for _ in range(steps):
        loss = optimizer.step(closure)
        seen.append([*p.tolist(), q.item(), loss.item()])
    return seen


@pytest.mark.slow_beyond(3)
@pytest.mark.parametrize(
    "options",
    [
        {"line_search_fn": "strong_wolfe"},
        {"line_search_fn": "strong_wolfe", "max_iter": 4, "history_size": 2},
        {"line_search_fn": "strong_wolfe", "lr": 0.1, "max_iter": 3, "max_eval": 5},
        {"lr": 1e-3},
        {"lr": 1e-2, "max_iter": 5, "history_size": 3},
        {"lr": 1e-3, "max_iter": 1},
        {"lr": 1e-3, "tolerance_grad": 50.0},
        {"lr": 1e-3, "tolerance_change": 1.0},
    ],
)
def test_it_goes_where_pytorch_goes(options: dict[str, Any]) -> None:
    ours, theirs = path(tinytorch, 6, **options), path(torch, 6, **options)
    np.testing.assert_allclose(ours, theirs, rtol=1e-6, atol=1e-9)


def test_without_a_history_it_goes_along_the_gradient() -> None:
    """Where PyTorch ends in an IndexError."""
    p = tinytorch.tensor([1.5, 2.0], requires_grad=True)
    optimizer = LBFGS([p], history_size=0, line_search_fn="strong_wolfe")

    def closure() -> Any:
        optimizer.zero_grad()
        loss = ((p - 3) ** 2 * tinytorch.tensor([1.0, 4.0])).sum()
        loss.backward()
        return loss

    for _ in range(5):
        optimizer.step(closure)
    np.testing.assert_allclose(p.detach().numpy(), [3.0, 3.0], atol=1e-3)


def test_it_finds_the_minimum_of_a_network(rng: np.random.Generator) -> None:
    from tinytorch import nn

    x = tinytorch.tensor(rng.normal(size=(20, 3)).astype(np.float32))
    y = x.sum(dim=1, keepdim=True).tanh()
    model = nn.Sequential(nn.Linear(3, 4), nn.Tanh(), nn.Linear(4, 1))
    optimizer = LBFGS(model.parameters(), line_search_fn="strong_wolfe")

    def closure() -> Any:
        optimizer.zero_grad()
        loss = ((model(x) - y) ** 2).mean()
        loss.backward()
        return loss

    with tinytorch.no_grad():  # the closure records all the same
        first = optimizer.step(closure).item()
    for _ in range(4):
        last = optimizer.step(closure).item()
    assert last < 1e-3 * first


def test_a_saved_state_continues() -> None:
    p = tinytorch.tensor([-1.2, 1.0], dtype="float64", requires_grad=True)
    q = p.detach().clone().requires_grad_()
    options: dict[str, Any] = {"max_iter": 3, "line_search_fn": "strong_wolfe"}
    one, two = LBFGS([p], **options), LBFGS([q], **options)

    def closure(optimizer: LBFGS, x: Any) -> Any:
        optimizer.zero_grad()
        loss = rosenbrock(x)
        loss.backward()
        return loss

    one.step(lambda: closure(one, p))
    with tinytorch.no_grad():
        q.copy_(p)
    two.load_state_dict(one.state_dict())
    for _ in range(2):
        one.step(lambda: closure(one, p))
        two.step(lambda: closure(two, q))
    assert p.tolist() == q.tolist()
    counts = [o.state_dict()["state"][0]["n_iter"] for o in (one, two)]
    assert counts[0] == counts[1] > 3


def test_what_it_refuses() -> None:
    p, q = (tinytorch.zeros(1, requires_grad=True) for _ in range(2))
    with pytest.raises(TypeError, match=r"write step\(closure\)"):
        LBFGS([p]).step()
    with pytest.raises(ValueError, match="line_search_fn must be None or 'strong_wolfe', got 'ar"):
        LBFGS([p], line_search_fn="armijo")
    with pytest.raises(ValueError, match="LBFGS takes one group of parameters, got 2"):
        LBFGS([{"params": [p]}, {"params": [q]}])


def point(t: float, f: Any, slope: Any) -> Point:
    return Point(t, f(t), tinytorch.tensor(0.0), slope(t))


def test_the_cubic_through_two_points_of_a_cubic_is_that_cubic() -> None:
    def f(t: float) -> float:
        return t**3 - 3 * t  # its minimum is at 1

    def slope(t: float) -> float:
        return 3 * t * t - 3

    a, b = point(0.5, f, slope), point(2.0, f, slope)
    assert cubic_minimum(a, b) == pytest.approx(1.0)
    assert cubic_minimum(b, a) == pytest.approx(1.0)
    assert cubic_minimum(a, b, (1.5, 2.0)) == 1.5


@pytest.mark.parametrize("first", [1e-3, 0.5, 30.0])
def test_the_strong_wolfe_conditions_hold(first: float) -> None:
    def f(t: float) -> float:
        return (t - 3) ** 4 - t

    def slope(t: float) -> float:
        return 4 * (t - 3) ** 3 - 1

    start = point(0.0, f, slope)
    found, count = strong_wolfe(lambda t: point(t, f, slope), start, first, 1.0)
    assert found.loss <= start.loss + 1e-4 * found.t * start.slope
    assert abs(found.slope) <= 0.9 * abs(start.slope)
    assert count <= 25
