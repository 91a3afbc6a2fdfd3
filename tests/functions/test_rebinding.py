"""Parts of computed tensors that are written, and the gradients of them."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, strategies as st

import tinytorch
from tinytorch import ops
from tinytorch.errors import AutogradError, ShapeError
from tinytorch.history import Record
from tinytorch.tensor import Tensor

SHAPE = (3, 4, 2)


@st.composite
def entries(draw: Any, n: int) -> Any:
    """An int or a slice, perhaps of nothing, for a dimension."""
    if draw(st.booleans()):
        return draw(st.integers(-n, n - 1))
    edge = st.none() | st.integers(-n - 1, n + 1)
    return slice(draw(edge), draw(edge), draw(st.sampled_from([None, 1, 2])))


@st.composite
def indices(draw: Any) -> Any:
    count = draw(st.integers(0, 3))
    index = [draw(entries(n)) for n in SHAPE[:count]]
    if draw(st.booleans()):
        index.insert(draw(st.integers(0, len(index))), None)
    return (*index, ...) if draw(st.booleans()) or count == 0 else tuple(index)


VALUES = ["number", "constant", "leaf", "row", "other dtype"]


def run(lib: Any, writes: list[tuple[Any, str]], start: str) -> list[Any]:
    """The tensor after the writes, and the gradients of all that went into it."""
    x = np.arange(1.0, 1 + np.prod(SHAPE)).reshape(SHAPE)
    leaf = lib.tensor(x, requires_grad=True)
    out = {"computed": lambda: leaf * 2.0, "kept": lambda: (leaf / 9).exp(),
           "new": lambda: lib.zeros(*SHAPE, dtype=leaf.dtype)}[start]()  # fmt: skip
    leaves = [leaf]
    for at, (index, kind) in enumerate(writes):
        shape = x[index].shape
        values = np.cos(np.arange(np.prod(shape)).reshape(shape) + at)
        if kind == "number":
            out[index] = 0.5 + at
            continue
        if kind == "row" and shape:  # it broadcasts
            values = values[..., :1]
        value = lib.tensor(values.astype("float32") if kind == "other dtype" else values)
        if kind != "constant":
            leaves.append(value.requires_grad_())
        out[index] = value * 1.0
    if out.requires_grad:
        (out * out).sum().backward()
    # of nothing that was written PyTorch's gradient is nothing, ours none
    gradients = [np.zeros(tuple(t.shape)) if t.grad is None else t.grad.numpy() for t in leaves]
    return [out.detach().numpy(), *gradients]


@given(st.lists(st.tuples(indices(), st.sampled_from(VALUES)), min_size=1, max_size=4),
       st.sampled_from(["computed", "new"]), st.sampled_from(["numpy", "naive"]))  # fmt: skip
def test_writes_one_after_the_other(
    writes: list[tuple[Any, str]], start: str, backend: str
) -> None:
    with tinytorch.using_backend(backend):
        found = run(tinytorch, writes, start)
    for a, b in zip(found, run(torch, writes, start), strict=True):
        np.testing.assert_allclose(a, b)


def test_a_slice_alone_is_written() -> None:
    x = tinytorch.ones(4, 3, requires_grad=True)
    with tinytorch.using_backend("numpy"):
        out = x * 2.0
        memory = id(out._data)
        out[1] = 5.0
        out[:, 2] = x[:, 0]
    assert id(out._data) == memory
    assert type(out.history) is Record and out.history.op is ops.dynamic_update_slice


def test_values_that_a_gradient_keeps_stay() -> None:
    """PyTorch refuses the backward; here exp's result is another array."""
    x = tinytorch.ones(4, requires_grad=True)
    with tinytorch.using_backend("numpy"):
        out = x.exp()
        out[0] = 0.0
        out.sum().backward()
    assert isinstance(x.grad, Tensor)
    np.testing.assert_allclose(x.grad.numpy(), [0.0, np.e, np.e, np.e], rtol=1e-6)


def test_all_of_a_tensor_becomes_itself() -> None:
    x = tinytorch.tensor([1.0, 2.0], requires_grad=True)
    with tinytorch.using_backend("numpy"):
        out = x * 3.0
        out[:] = out
        out.sum().backward()
    assert out.tolist() == [3.0, 6.0]
    assert x.grad is not None and x.grad.tolist() == [3.0, 3.0]


def test_values_that_were_read_are_noticed() -> None:
    x = tinytorch.ones(4, requires_grad=True)
    with tinytorch.using_backend("numpy"):
        out = x * 2.0
        square = out * out
        out[0] = 0.0
        with pytest.raises(AutogradError):
            square.sum().backward()


@pytest.fixture
def on_numpy() -> Iterator[None]:
    """Slices are written in the memory of the whole: on the default backend they are not."""
    with tinytorch.using_backend("numpy"):
        yield


@pytest.mark.usefixtures("on_numpy")
def test_what_cannot_be_written_leaves_all_as_it_was() -> None:
    x = tinytorch.ones(4, 3, requires_grad=True)
    out = x * 2.0
    before, history = out.tolist(), out.history
    with pytest.raises(ShapeError):
        out[0] = tinytorch.ones(2)
    with pytest.raises(IndexError):
        out[9] = 0.0
    view = out[1:]
    with pytest.raises(AutogradError, match="shares memory"):
        out[0] = 0.0
    with pytest.raises(AutogradError, match="leaf"):
        x[0] = 0.0
    assert view.shape == (3, 3) and out.tolist() == before and out.history is history


def test_retain_grad_is_of_the_new_value() -> None:
    x = tinytorch.ones(3, requires_grad=True)
    with tinytorch.using_backend("numpy"):
        out = x * 2.0
        out.retain_grad()
        out[0] = 7.0
        (out * 3.0).sum().backward()
    assert out.grad is not None and out.grad.tolist() == [3.0, 3.0, 3.0]
    assert x.grad is not None and x.grad.tolist() == [0.0, 6.0, 6.0]


@pytest.mark.parametrize("index", [(), ..., None])
def test_all_of_a_number(index: Any) -> None:
    value = tinytorch.tensor(2.0, requires_grad=True)
    out = tinytorch.zeros(())
    out[index] = value * 3.0
    out.backward()
    assert out.item() == 6.0 and value.grad is not None and value.grad.item() == 3.0
