"""Functions made of ops: the same call in both libraries gives the same values and gradients."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch

import tinytorch
from tests.torch_compare import assert_like_torch
from tinytorch.graph import trace
from tinytorch.graph.interpret import Interpreter

UNARY = [
    *("tan", "atan", "sinh", "cosh", "asinh", "log10", "exp2", "erfc", "frac", "trunc", "deg2rad"),
    *("rad2deg", "sinc", "signbit", "nan_to_num", "sign", "isfinite", "isinf", "square", "fix"),
]
WITHIN_ONE = ["asin", "acos", "atanh", "arcsin", "arccos", "erfinv"]


@pytest.mark.parametrize("name", UNARY)
def test_unary(name: str, rng: np.random.Generator) -> None:
    x = rng.standard_normal((3, 4)) * 2
    assert_like_torch(lambda t: getattr(t, name)(), None, x)
    assert_like_torch(getattr(tinytorch, name), getattr(torch, name), x)


@pytest.mark.parametrize("name", WITHIN_ONE)
def test_within_one(name: str, rng: np.random.Generator) -> None:
    assert_like_torch(lambda t: getattr(t, name)(), None, rng.uniform(-0.95, 0.95, 7))
    assert_like_torch(lambda t: getattr(t, name)(), None, rng.uniform(1.1, 2, 3))


def test_acosh(rng: np.random.Generator) -> None:
    assert_like_torch(lambda t: t.acosh(), None, rng.uniform(1.01, 5e4, 9))


BINARY = ["atan2", "hypot", "logaddexp", "fmod", "copysign", "xlogy", "isclose", "dist"]


@pytest.mark.parametrize("name", BINARY)
def test_binary(name: str, rng: np.random.Generator) -> None:
    x, y = rng.uniform(0.1, 3, (3, 4)), rng.uniform(0.1, 3, (4,))
    assert_like_torch(lambda a, b: getattr(a, name)(b), None, x, y)


@pytest.mark.parametrize("mode", [None, "floor", "trunc"])
@pytest.mark.parametrize("dtype", ["int32", "float64"])
def test_division_rounds(mode: str | None, dtype: str) -> None:
    x, y = np.array([7, -7, 7, -7], dtype), np.array([2, 2, -2, -2], dtype)
    assert_like_torch(lambda a, b: a.div(b, rounding_mode=mode), None, x, y)
    assert_like_torch(lambda a: a.div(-3, rounding_mode=mode), None, x)


#: Arguments by the names that PyTorch has for them.
NAMED: list[Callable[[Any, Any], Any]] = [
    lambda lib, x: lib.reshape(x, shape=(6, 4)), lambda lib, x: x.reshape(shape=(-1, 2)),
    lambda lib, x: x.view(size=(6, 4)), lambda lib, x: lib.permute(x, dims=(2, 0, 1)),
    lambda lib, x: x.permute(dims=(0, 2, 1)), lambda lib, x: x.expand(size=(5, 2, 3, 4)),
    lambda lib, x: x.repeat(repeats=(1, 1, 2)), lambda lib, x: x.tile(dims=(2,)),
    lambda lib, x: lib.broadcast_to(x, size=(5, 2, 3, 4)),
    lambda lib, x: lib.cat(lib.split(x, split_size_or_sections=2, dim=1), dim=1),
    lambda lib, x: lib.where(condition=x > 0, input=x, other=-x),
    lambda lib, x: x * lib.isclose(x, other=x, rtol=0.1), lambda lib, x: lib.xlogy(x, other=3.0),
    lambda lib, x: x * (x > 0).bitwise_or(other=x < -1),
    lambda lib, x: x * lib.allclose(x, other=x),
    lambda lib, x: lib.add(x, other=x, alpha=2), lambda lib, x: lib.mul(x, other=3.0),
    lambda lib, x: lib.matmul(x, other=x.mT), lambda lib, x: x.matmul(other=x[0].mT),
    lambda lib, x: lib.bmm(x, mat2=x.mT), lambda lib, x: lib.mm(x[0], mat2=x[1].mT),
    lambda lib, x: lib.mv(x[0], vec=x[1, 0]), lambda lib, x: lib.dot(x[0, 0], tensor=x[1, 0]),
    lambda lib, x: lib.outer(x[0, 0], vec2=x[1, 0]), lambda lib, x: lib.maximum(x, other=-x),
    lambda lib, x: lib.addmm(x[0], mat1=x[0] @ x[0].mT, mat2=x[1], beta=0.5),
    lambda lib, x: lib.baddbmm(x, batch1=x @ x.mT, batch2=x, alpha=0.5),
    lambda lib, x: lib.addmv(x[0, :, 0], mat=x[0], vec=x[1, 0]),
    lambda lib, x: lib.addr(x[0], vec1=x[0, :, 0], vec2=x[1, 0]),
]  # fmt: skip


@pytest.mark.parametrize("call", NAMED)
def test_arguments_have_the_names_that_they_have_in_pytorch(
    call: Callable[[Any, Any], Any], rng: np.random.Generator
) -> None:
    x = rng.standard_normal((2, 3, 4))
    assert_like_torch(lambda t: call(tinytorch, t), lambda t: call(torch, t), x)


BITS: list[Callable[[Any, Any], Any]] = [
    lambda a, b: a & b, lambda a, b: a | b, lambda a, b: a ^ b, lambda a, b: ~a,
    lambda a, b: a << b, lambda a, b: a >> b, lambda a, b: a & 5, lambda a, b: a >> 1,
]  # fmt: skip


@pytest.mark.parametrize("dtype", ["uint8", "int8", "int16", "int32", "int64"])
@pytest.mark.parametrize("call", BITS)
def test_bits_of_integers(call: Any, dtype: str, rng: np.random.Generator) -> None:
    low = 0 if dtype == "uint8" else -50
    assert_like_torch(call, None, rng.integers(low, 50, 9).astype(dtype),
                      rng.integers(0, 7, 9).astype(dtype))  # fmt: skip


X = np.random.default_rng(0).standard_normal((3, 4, 5))
INDEX = np.array([[0, 2, 1, 0], [2, 2, 0, 1]])
INDICES = [(3, 4), (4, 3, -2), (3, 4, 2), (3, 4, 9), (3, 4, -9), (0, 4), (4, 0), (5, 90, -3)]
CALLS: dict[str, Callable[[Any], Any]] = {
    "axis": lambda x: x.sum(axis=1, keepdims=True),
    "dim of none": lambda x: x.sum(dim=()),
    "mean of none": lambda x: x.mean(()),
    "dtype": lambda x: x.sum(1, dtype=_of(x).float32),
    "var unbiased": lambda x: x.var(1, unbiased=False),
    "var bool": lambda x: x.var(False),
    "std": lambda x: x.std(0, False),
    "norm 0": lambda x: x.detach().norm(0, 1),
    "norm -inf": lambda x: x.norm(-float("inf"), 1),
    "norm fro": lambda x: x.norm("fro"),
    "nansum": lambda x: x.nansum(1),
    "nanmean": lambda x: x.nanmean(1),
    "count_nonzero": lambda x: (x > 0).count_nonzero(1),
    "aminmax": lambda x: x.aminmax(dim=1),
    "cumprod": lambda x: x.cumprod(1),
    "cummax": lambda x: x.cummax(1),
    "cummin": lambda x: x.cummin(2),
    "logcumsumexp": lambda x: x.logcumsumexp(2),
    "diff": lambda x: x.diff(2, 1),
    "median": lambda x: x.median(1),
    "median of all": lambda x: x.median(),
    "kthvalue": lambda x: x.kthvalue(2, 1),
    "topk": lambda x: x.topk(2, 1, False),
    "sort": lambda x: x.sort(dim=1, stable=True),
    "round": lambda x: (x * 10).round(decimals=1),
    "roll": lambda x: x.roll((1, 2), (0, 2)),
    "roll flat": lambda x: x.roll(7),
    "movedim": lambda x: x.movedim((0, 1), (2, 0)),
    "swapaxes": lambda x: x.swapaxes(0, 2),
    "tile": lambda x: x.tile(2, 3),
    "ravel": lambda x: x.ravel(),
    "rot90": lambda x: x.rot90(3, (1, 2)),
    "rot90 once": lambda x: x.rot90(1, (-1, 0)),
    "rot90 of a turned one": lambda x: x.transpose(0, 2).rot90(1, (0, 2)),
    "tril_indices": lambda x: [_of(x).tril_indices(*a) for a in INDICES],
    "triu_indices": lambda x: [_of(x).triu_indices(*a) for a in INDICES],
    "fliplr": lambda x: x.fliplr(),
    "select": lambda x: x.select(1, -2),
    "tensor_split": lambda x: x.tensor_split(3, 2),
    "tensor_split at": lambda x: x.tensor_split((1, 3), 1),
    "repeat_interleave": lambda x: x.repeat_interleave(2, 1),
    "repeat each": lambda x: x.repeat_interleave(_int(x, [2, 0, 1, 3]), dim=1),
    "diagonal": lambda x: x.diagonal(1, 1, 2),
    "diag": lambda x: x[0].diag(-1),
    "diag of a vector": lambda x: x[0, 0].diag(1),
    "diag_embed": lambda x: x.diag_embed(1, 0, 2),
    "trace": lambda x: x[0].trace(),
    "index_add": lambda x: x.index_add(1, _int(x, [0, 3, 0]), x[:, :3], alpha=2),
    "index_copy": lambda x: x.index_copy(1, _int(x, [0, 3]), x[:, 1:3] * 2),
    "index_fill": lambda x: x.index_fill(2, _int(x, [0, 3]), 7.0),
    "index_put": lambda x: x.index_put((_int(x, [0, 1]), _int(x, [1, 1])), x[:2, 0] * 3),
    "scatter": lambda x: x[0].scatter(0, _int(x, INDEX[:1]), x[1, :1, :4] * 2),
    "scatter value": lambda x: x[0].scatter(1, _int(x, INDEX), 2.0),
    "masked_select": lambda x: x.masked_select(x > 0),
    "masked_scatter": lambda x: x.masked_scatter(x > 0, x * 2),
    "take": lambda x: x.take(_int(x, [[0, 5], [-1, 7]])),
    "nonzero": lambda x: (x > 0).nonzero(),
    "where": lambda x: _of(x).where(x > 0),
    "where of a tensor": lambda x: x.where(x > 0, x * 2),
    "where of a tensor, a number": lambda x: x.where(x > 0, other=0.5),
    "lerp": lambda x: x.lerp(x * x, 0.3),
    "addcmul": lambda x: x.addcmul(x, x, value=0.5),
    "addcdiv": lambda x: x.addcdiv(x, x * x + 1, value=2),
    "bmm": lambda x: x.bmm(x.transpose(1, 2)),
    "mv": lambda x: x[0].mv(x[0, 0]),
    "inner": lambda x: x.inner(x[0]),
    "kron": lambda x: x[0].kron(x[1]),
    "addmm": lambda x: x[0, :, :4].addmm(x[0], x[1].t(), beta=0.5, alpha=2),
    "cdist": lambda x: _of(x).cdist(x, x * 2 + 1),
    "tensordot": lambda x: _of(x).tensordot(x, x, dims=([0, 2], [0, 2])),
    "meshgrid": lambda x: _of(x).meshgrid(x[0, 0], x[0, :, 0], indexing="ij"),
    "vstack": lambda x: _of(x).vstack([x[0, 0], x[0, 1]]),
    "hstack": lambda x: _of(x).hstack([x[0], x[1]]),
    "concat": lambda x: _of(x).concat((x, x), dim=1),
    "matrix_power": lambda x: x[0, :4, :4].matrix_power(3),
    "lists as indices": lambda x: x[[0, 1], [1, 2]],
}  # fmt: skip


def _of(x: Any) -> Any:
    return torch if isinstance(x, torch.Tensor) else tinytorch


def _int(x: Any, values: Any) -> Any:
    return _of(x).tensor(np.array(values))


@pytest.mark.parametrize("name", CALLS)
def test_same_call(name: str) -> None:
    assert_like_torch(CALLS[name], None, X)


def test_zero_has_no_nan_gradient() -> None:
    for call in (
        lambda x: x.norm(), lambda x: x.norm(dim=1), lambda x: x.std(0), lambda x: x.norm(3),
        lambda x: x.norm(0.5),
    ):  # fmt: skip
        assert_like_torch(call, None, np.zeros((3, 2)))
        assert_like_torch(call, None, np.array([[0.0, 0], [1, 2], [0, 3]]))


@pytest.mark.parametrize(
    ("call", "error"),
    [
        (lambda: tinytorch.arange(3)[[True, False]], IndexError),
        (lambda: tinytorch.ones(3).sum(True), TypeError),
        (lambda: tinytorch.ones(3).softmax(True), TypeError),
        (lambda: tinytorch.tensor(1.0).cumsum(1), IndexError),
        (lambda: tinytorch.ones(3).index_select(0, tinytorch.tensor([-1])), IndexError),
        (lambda: tinytorch.arange(0, -3, 2), ValueError),
        (lambda: tinytorch.linspace(0, 1, 3, dtype="bool"), TypeError),
    ],
)
def test_refused_as_in_pytorch(call: Callable[[], Any], error: type[Exception]) -> None:
    with pytest.raises(error):
        call()


def test_zero_dimensions_like_pytorch() -> None:
    x = np.array(5.0)
    for call in (
        lambda x: x.gather(0, _int(x, 0)), lambda x: x.gather(0, _int(x, [0, 0])),
        lambda x: x.topk(1), lambda x: x.unfold(0, 1, 1), lambda x: x.cummax(0),
        lambda x: x.scatter_add(0, _int(x, 0), x * 2), lambda x: x.median(0),
    ):  # fmt: skip
        assert_like_torch(call, None, x)


def test_dtypes_of_bool_like_pytorch() -> None:
    mask = np.array([[True, False], [True, True]])
    for call in (
        lambda x: x.tril(), lambda x: x.triu(1), lambda x: x.square(), lambda x: x.sign(),
        lambda x: x.masked_fill(x, 0), lambda x: x.isinf(), lambda x: x.isfinite(),
    ):  # fmt: skip
        assert_like_torch(call, None, mask)
    assert_like_torch(lambda x: x.masked_fill(x > 1, 1.5), None, np.array([1, 2]))


def test_counting() -> None:
    x = np.array([3, 1, 3, 0])
    assert_like_torch(lambda x: x.bincount(minlength=6), None, x)
    assert_like_torch(lambda x: x.unique(return_inverse=True, return_counts=True), None, x)
    assert_like_torch(lambda x: x.unique_consecutive(return_counts=True), None, x)
    values = np.random.default_rng(0).standard_normal(50).astype(np.float32)
    assert_like_torch(lambda x: x.histc(7, -1, 1), None, values)
    assert_like_torch(lambda x: _of(x).isin(x, x[:3]), None, x)
    edges = np.array([0.0, 1.0, 2.0])
    assert_like_torch(lambda e, v: _of(e).searchsorted(e, v), None, edges, np.array([0.5, 1, 3]))
    rows, each = np.sort(values.reshape(5, 10)), np.full((5, 3), [-0.1, np.nan, np.inf], np.float32)
    each[2] = rows[2, :3]
    for right in (False, True):
        assert_like_torch(lambda e, v: _of(e).searchsorted(e, v, right=right), None, rows, each)  # noqa: B023
        found = tinytorch.searchsorted(tinytorch.tensor(rows), tinytorch.tensor(each), right=right)
        graph = trace(
            lambda e, v: tinytorch.searchsorted(e, v, right=right),  # noqa: B023
            tinytorch.tensor(rows), tinytorch.tensor(each),
        )  # fmt: skip
        (traced,) = Interpreter(graph.graph).run(tinytorch.tensor(rows), tinytorch.tensor(each))
        np.testing.assert_array_equal(found.numpy(), np.asarray(traced.numpy()))
    ours = tinytorch.histogram(tinytorch.tensor(values), 5)
    theirs = torch.histogram(torch.from_numpy(values), 5)
    np.testing.assert_array_equal(ours.hist.numpy(), theirs.hist.numpy())
    np.testing.assert_allclose(ours.bin_edges.numpy(), theirs.bin_edges.numpy(), rtol=1e-5)
