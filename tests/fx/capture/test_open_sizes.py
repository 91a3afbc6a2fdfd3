"""Sizes that stay open: a graph does what the model does for each, or says that it does not."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from tinytorch.fx import GraphOptimizer
from tinytorch.fx.capture.forward import capture_forward
from tinytorch.fx.capture.guards import GuardError
from tinytorch.fx.optimize.optimized import OptimizedModuleError

OTHER = r"something else for inputs of these sizes"


class Of(nn.Module):
    """A model of one function."""

    def __init__(self, function: Callable[..., Any]) -> None:
        super().__init__()
        self.function = function

    def forward(self, x: Tensor) -> Any:
        return self.function(x)


def one_row(x: Tensor) -> Tensor:
    return x * 2 if x.shape[0] == 1 else x * 3


def few_rows(x: Tensor) -> Tensor:
    return x * 2 if x.shape[0] < 2 else x * 3


def a_row_among_others(x: Tensor) -> Tensor:
    return x * 2 if x.shape[0] in (1, 7) else x * 3


def a_shape(x: Tensor) -> Tensor:
    return x * 2 if x.shape == (1, 2) else x * 3


def a_rank(x: Tensor) -> Tensor:
    """Asks nothing about a size, and does something else for one row."""
    y = x.squeeze()
    return y * 2 if y.ndim == 1 else y * 3


def a_bound_that_no_example_meets(x: Tensor) -> Tensor:
    return x.clamp(max=100) if x.shape[0] == 1 else x


def no_rows(x: Tensor) -> Tensor:
    return x.new_zeros(1, 2) if x.numel() == 0 else x * 3


def two_rows(x: Tensor) -> Tensor:
    """For an example of two rows no other size than 2 is left."""
    return x * 2 if x.shape[0] < 3 else x * 3


def every_row(x: Tensor) -> Tensor:
    return x.transpose(0, 1).reshape(-1) * 2


def an_expansion(x: Tensor) -> Tensor:
    """Asks for one row, and computes the same for it."""
    rows = torch.arange(2.0)[None]
    if x.shape[0] != rows.shape[0]:
        rows = rows.expand(x.shape[0], -1)
    return x + rows


@pytest.mark.parametrize(
    ("function", "refused"),
    [
        (one_row, {1}),
        (few_rows, {0, 1}),
        (a_row_among_others, {1, 7}),
        (a_shape, {1}),
        (a_rank, {1}),
        (a_bound_that_no_example_meets, {1}),
        (no_rows, {0}),
        (every_row, set()),
        (an_expansion, set()),
        (nn.BatchNorm1d(2), {1}),
        (nn.BatchNorm1d(2).eval(), set()),
    ],
    ids=lambda each: getattr(each, "__name__", None),
)
def test_each_size_is_right_or_refused(function: Any, refused: set[int]) -> None:
    model = Of(function).train(getattr(function, "training", False))
    example = (torch.randn(4, 2),)
    captured = capture_forward(model, example, dynamic_dims=(0,))
    optimized = GraphOptimizer(
        copy.deepcopy(model), example, device="cpu", dynamic_dims=(0,), keep_slower=True
    ).optimize()
    for size in (0, 1, 2, 5, 7):
        x = torch.randn(size, 2) * 1000
        if size in refused:
            with pytest.raises(GuardError, match=OTHER):
                captured(x)
            with pytest.raises(OptimizedModuleError, match=OTHER):
                optimized(x)
        else:
            torch.testing.assert_close(captured(x), model(x))
            torch.testing.assert_close(optimized(x), model(x))


def test_a_size_of_which_one_value_is_left_is_fixed() -> None:
    for dims in ((0,), (0, 1)):
        captured = capture_forward(Of(two_rows), (torch.ones(2, 2),), dynamic_dims=dims)
        assert captured(torch.ones(2, 2)).equal(torch.full((2, 2), 2.0))
        for size in (0, 1, 3):
            with pytest.raises((GuardError, RuntimeError)):
                captured(torch.ones(size, 2))
        optimized = GraphOptimizer(
            Of(two_rows), (torch.ones(2, 2),), device="cpu", dynamic_dims=dims, keep_slower=True
        ).optimize()
        for size in (0, 1, 3):
            with pytest.raises(OptimizedModuleError, match=OTHER):
                optimized(torch.ones(size, 2))


def test_the_line_that_asks_is_named() -> None:
    captured = capture_forward(Of(one_row), (torch.randn(3, 2),), dynamic_dims=(0,))
    with pytest.raises(GuardError, match=r"test_open_sizes.py:\d+: .*if x.shape\[0\] == 1"):
        captured(torch.randn(1, 2))


def test_a_captured_forward_checks_what_was_asked_of_larger_sizes() -> None:
    model = Of(lambda x: x * 2 if x.shape[0] % 2 == 0 else x * 3)
    captured = capture_forward(model, {"x": torch.randn(4, 2)}, dynamic_dims=(0,))
    assert captured(x=torch.ones(6, 2)).equal(torch.full((6, 2), 2.0))
    with pytest.raises(GuardError, match=OTHER):
        captured(x=torch.ones(5, 2))


def test_sizes_of_two_dimensions() -> None:
    """What is asked of both is refused where it may be meant, for inputs that no run has seen."""

    def function(x: Tensor) -> Tensor:
        return x * 2 if x.shape[0] == 1 and x.shape[1] > 7 else x * 3

    captured = capture_forward(Of(function), (torch.randn(3, 4),), dynamic_dims=(0, 1))
    assert captured(torch.ones(2, 9)).equal(torch.full((2, 9), 3.0))
    with pytest.raises(GuardError, match=OTHER):
        captured(torch.ones(1, 9))

    def elements(x: Tensor) -> Tensor:
        return x * 2 if x.numel() == 2 else x * 3

    captured = capture_forward(Of(elements), (torch.randn(3, 4),), dynamic_dims=(0, 1))
    assert captured(torch.ones(3, 1)).equal(torch.full((3, 1), 3.0))
    with pytest.raises(GuardError, match=OTHER):
        captured(torch.ones(2, 1))

    def together(x: Tensor) -> Tensor:
        return x.squeeze() * (2 if x.squeeze().ndim == 0 else 3)

    captured = capture_forward(Of(together), (torch.randn(3, 4),), dynamic_dims=(0, 1))
    assert captured(torch.ones(1, 9)).equal(torch.full((9,), 3.0))
    with pytest.raises(GuardError, match="of a size of 1 the graph differs"):
        captured(torch.ones(1, 1))


def test_one_small_size_of_two_is_refused_only_where_it_matters() -> None:
    def expanded(x: Tensor) -> Tensor:
        rows = torch.arange(2.0)[None, None]
        if x.shape[:2] != rows.shape[:2]:
            rows = rows.expand(x.shape[0], x.shape[1], -1)
        return x + rows

    model = Of(expanded)
    captured = capture_forward(model, (torch.randn(3, 4, 2),), dynamic_dims=(0, 1))
    optimized = GraphOptimizer(
        model.eval(), (torch.randn(3, 4, 2),), device="cpu", dynamic_dims=(0, 1), keep_slower=True
    ).optimize()
    for sizes in ((1, 1), (1, 4), (1, 7), (3, 1), (5, 1), (5, 7)):
        x = torch.randn(*sizes, 2)
        torch.testing.assert_close(captured(x), model(x))
        torch.testing.assert_close(optimized(x), model(x))

    def otherwise(x: Tensor) -> Tensor:
        few = x.shape[0] == 1 and x.shape[1] < 4
        return x * 2 if few else x * 3

    captured = capture_forward(Of(otherwise), (torch.randn(3, 5),), dynamic_dims=(0, 1))
    for sizes in ((1, 5), (1, 8), (3, 2), (3, 1)):
        assert captured(torch.ones(sizes)).equal(torch.full(sizes, 3.0))
    for sizes in ((1, 3), (1, 2), (1, 1)):
        with pytest.raises(GuardError, match=OTHER):
            captured(torch.ones(sizes))


def test_small_sizes_leave_state_and_generator() -> None:
    torch.manual_seed(0)
    model = nn.Sequential(nn.BatchNorm1d(2), nn.Dropout(0.5))
    before, generator = copy.deepcopy(model.state_dict()), torch.get_rng_state()
    capture_forward(model, (torch.randn(3, 2),), dynamic_dims=(0,))
    generator_after = torch.get_rng_state()
    assert all(value.equal(before[name]) for name, value in model.state_dict().items())
    torch.set_rng_state(generator)
    torch.randn(3, 2)
    assert torch.get_rng_state().equal(generator_after)


def test_a_model_that_does_not_take_larger_sizes_is_optimized() -> None:
    model = Of(lambda x: x[:, torch.arange(x.shape[0])])
    optimizer = GraphOptimizer(
        model, torch.ones(3, 4), device="cpu", dynamic_dims=(0,), keep_slower=True
    )
    module = optimizer.optimize()
    assert module(torch.ones(2, 4)).equal(torch.ones(2, 2))
    assert any("not compared on other sizes" in note for note in optimizer.report().notes)
    with pytest.raises(IndexError):
        module(torch.ones(6, 4))


def test_a_slice_that_is_everything_of_the_example_only_stays() -> None:
    """A batch of twice the size is refused, so nothing but the pass itself can know."""
    model = Of(lambda x: (x if x.shape[0] == 6 else x[:3]) * 2)
    module = GraphOptimizer(
        model, torch.ones(3, 4), device="cpu", dynamic_dims=(0,), keep_slower=True
    ).optimize()
    for size in (3, 5, 9):
        assert module(torch.ones(size, 4)).equal(torch.full((3, 4), 2.0))
