"""What NumPy writes without ops is what the ops write, and where somebody looks on, ops do it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest

import tinytorch
from tinytorch.backends.optimized import OptimizedBackend
from tinytorch.dispatch import Mode
from tinytorch.errors import AutogradError, DTypeError, ShapeError
from tinytorch.functions import direct
from tinytorch.tensor import Tensor

WRITES: dict[str, Callable[[Tensor, Tensor], Any]] = {
    "add a number": lambda x, y: x.add_(2.5),
    "add a whole number": lambda x, y: x.add_(3),
    "add": lambda x, y: x.add_(y),
    "itself": lambda x, y: x.add_(x),
    "subtract": lambda x, y: x.sub_(y),
    "multiply": lambda x, y: x.mul_(y),
    "divide": lambda x, y: x.div_(y),
    "divide by 0": lambda x, y: x.div_(0),
    "scaled": lambda x, y: x.add_(y, alpha=-0.3),
    "scaled by a whole number": lambda x, y: x.sub_(y, alpha=2),
    "itself, scaled": lambda x, y: x.add_(x, alpha=0.5),
    "scaled, of an overlapping part": lambda x, y: x[1:].add_(x[:-1], alpha=0.5),
    "an overlapping part": lambda x, y: x[1:].mul_(x[:-1]),
    "a transposed part": lambda x, y: x.t().add_(y.t(), alpha=0.1),
    "copy": lambda x, y: x.copy_(y),
    "copy an overlapping part": lambda x, y: x[1:].copy_(x[:-1]),
    "fill": lambda x, y: x.fill_(0.1),
    "zero": lambda x, y: x[0].zero_(),
    "clamp": lambda x, y: x.clamp_(-0.5, 0.5),
    "clamp from 0 on": lambda x, y: x.clamp_(min=0),
    "clamp up to a number": lambda x, y: x.clamp_(max=1),
    "clamp to nothing": lambda x, y: x.clamp_(1.0, -1.0),
    "clamp to NaN": lambda x, y: x.clamp_(float("nan"), 1.0),
    "clamp a transposed part": lambda x, y: x.t()[1:].clamp_(-0.5, 0.5),
    **{
        name: lambda x, y, name=name: getattr(x, f"{name}_")()
        for name in ("neg", "abs", "sqrt", "square", "floor", "ceil", "trunc", "round")
    },
    "reciprocal": lambda x, y: x.reciprocal_(),
    "round to decimals": lambda x, y: x.round_(decimals=1),
    "exp": lambda x, y: x.exp_(),
    "lerp": lambda x, y: x.lerp_(y, 0.1),
    "addcmul": lambda x, y: x.addcmul_(y, y, value=0.5),
    "set a row": lambda x, y: x.__setitem__(0, y[1]),
    "set a number": lambda x, y: x.__setitem__((..., 1), 7),
    "set a part": lambda x, y: x.__setitem__((slice(1, 3), None, 0), y[1:3, 1:2]),
    "set columns": lambda x, y: x.__setitem__((..., slice(1, None)), y[:, 1:]),
    "set columns to those of a row": lambda x, y: x.__setitem__((..., slice(1, None)), y[:1, 1:]),
    "set overlapping columns": lambda x, y: x.__setitem__((..., slice(1, None)), x[:, :-1]),
    "copy overlapping columns": lambda x, y: x[:, :-1].copy_(x[:, 1:]),
    "set an overlapping part": lambda x, y: x.__setitem__(slice(1, None), x[:-1]),
}


@pytest.fixture(autouse=True, params=["numpy", "optimized"])
def _backend(request: pytest.FixtureRequest) -> Iterator[None]:
    """One of those where writes are direct: on the default one, ops do all of them."""
    with tinytorch.using_backend(request.param):
        yield


def operands(dtype: str, rows: int = 4) -> tuple[Tensor, Tensor]:
    rng = np.random.default_rng(0)
    x, y = (3 * rng.standard_normal((rows, 3)).astype(dtype) for _ in range(2))
    x[0], y[1, 1] = (np.nan, -0.0, np.inf), 0.0
    return tinytorch.from_numpy(x), tinytorch.from_numpy(y)


@pytest.mark.parametrize("name", WRITES)
@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("rows", [4, direct._BLOCK // 2])  # the latter: a block and a half
def test_like_the_ops(name: str, dtype: str, rows: int, monkeypatch: pytest.MonkeyPatch) -> None:
    found, expected = operands(dtype, rows), operands(dtype, rows)
    WRITES[name](*found)
    monkeypatch.setattr(direct, "is_unseen", lambda *_: False)
    WRITES[name](*expected)
    for a, b in zip(found, expected, strict=True):
        np.testing.assert_array_equal(a.numpy(), b.numpy())
        is_nan = np.isnan(a.numpy())
        np.testing.assert_array_equal(
            np.signbit(a.numpy()) | is_nan, np.signbit(b.numpy()) | is_nan
        )


class Writes(Mode):
    """Counts the writes that it sees."""

    count = 0

    def write(self, target: Tensor, data: Any) -> None:
        self.count += 1
        super().write(target, data)


@pytest.mark.parametrize("name", [n for n in WRITES if not n.startswith("set")])
def test_a_mode_sees_the_write(name: str) -> None:
    x, y = operands("float32")
    with Writes() as mode:
        WRITES[name](x, y)
    assert mode.count == 1


def test_many_values_of_another_shape_are_refused() -> None:
    x, y = operands("float32", 5000)
    for index in ((0, 0), 0, (..., slice(1, None))):
        with pytest.raises(ShapeError):
            x[index] = y


def test_a_users_backend_adds() -> None:
    class Mine(OptimizedBackend):
        def add(self, a: Any, b: Any) -> Any:
            return np.add(a, b) + np.float32(100)

    x = tinytorch.ones(2)
    with tinytorch.using_backend(Mine()):
        x.add_(1.0)
    assert x.tolist() == [102.0, 102.0]


WHOLE: dict[str, Callable[[Tensor, Tensor], Any]] = {
    "add a number": lambda x, y: x.add_(3),
    "add beyond the last number": lambda x, y: x.add_(2**63 - 1),
    "a number beyond the last one": lambda x, y: x.add_(2**63),
    "subtract": lambda x, y: x.sub_(y),
    "multiply": lambda x, y: x.mul_(y),
    "scaled": lambda x, y: x.add_(y, alpha=-2),
}


@pytest.mark.parametrize("name", WHOLE)
def test_whole_numbers_like_the_ops(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    found, expected = (tinytorch.tensor([[3, -1], [2**62, 7]]) for _ in range(2))
    other = tinytorch.tensor([[5, 2], [3, -9]])
    WHOLE[name](found, other)
    monkeypatch.setattr(direct, "is_unseen", lambda *_: False)
    WHOLE[name](expected, other)
    assert found.tolist() == expected.tolist()
    for refused in (lambda: found.div_(2), lambda: found.mul_(0.5)):
        with pytest.raises((DTypeError, OverflowError)):
            refused()
    assert found.tolist() == expected.tolist()


@pytest.mark.parametrize("name", WRITES)
def test_a_gradient_notices_the_write(name: str) -> None:
    x, y = operands("float32")
    w = tinytorch.ones(4, 3, requires_grad=True)
    loss = (w * x).sum()
    WRITES[name](x, y)
    with pytest.raises(AutogradError):
        loss.backward()


@pytest.mark.parametrize("name", [n for n in WRITES if "part" not in n and n != "zero"])
def test_a_leaf_is_refused_and_a_read_only_view_too(name: str) -> None:
    x, y = operands("float32")
    before = x.tolist()
    leaf = x.clone().requires_grad_()
    with pytest.raises(AutogradError):
        WRITES[name](leaf, y)
    with pytest.raises(AutogradError, match="read-only"):
        WRITES[name](x[:1].expand(4, 3), y)
    assert str(x.tolist()) == str(before)
    with tinytorch.no_grad():
        WRITES[name](leaf, y)  # an optimizer's


def test_what_does_not_fit_is_said_by_the_ops() -> None:
    x, y = operands("float32")
    with pytest.raises(ShapeError, match=r"does not fit into a tensor of shape \(4, 3\)"):
        x.add_(tinytorch.ones(5, 4, 3))
    with pytest.raises(ShapeError):
        x[0] = y
    with pytest.raises(IndexError):
        x[7] = 0.0
    before = str(x.tolist())
    for index in (slice(None, None, -1), (0, slice(2, None, -1)), (..., slice(None, None, 0))):
        for value in (0.0, y[0, 0], 1):
            with pytest.raises(ValueError, match="step must be positive"):
                x[index] = value
    assert str(x.tolist()) == before
    x[0] = True
    assert x[0].tolist() == [1.0, 1.0, 1.0]
    counts = tinytorch.zeros(3, dtype="int64")
    with pytest.raises(DTypeError):
        counts.add_(0.5)
    with pytest.raises(TypeError, match="unexpected keyword argument 'alpha'"):
        x.mul_(y, alpha=2)
    counts[0] = 2.7  # rounded down, as in PyTorch
    assert counts.tolist() == [2, 0, 0]


def test_one_element_becomes_that_of_a_tensor_of_one() -> None:
    """As in PyTorch, and as where it is recorded: `predictions[i] = model(x[i])`."""
    x = tinytorch.zeros(2, 2)
    x[1, 0] = tinytorch.tensor([9.0])
    x[0, 1] = tinytorch.tensor([[7.0]])
    with pytest.raises(ShapeError):
        x[0, 0] = tinytorch.ones(2)
    assert x.tolist() == [[0.0, 7.0], [9.0, 0.0]]
