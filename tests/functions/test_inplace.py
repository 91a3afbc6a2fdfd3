"""In-place writes that autograd follows, against PyTorch's; and what is refused."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch

import tinytorch
from tests.backends.loading import load
from tinytorch.errors import AutogradError, DTypeError


def _rnn(lib: Any, w: Any, steps: int = 4) -> Any:
    """A recurrent network by hand: each state is written into the output."""
    out = lib.zeros(steps, 3)
    h = lib.ones(3)
    for t in range(steps):
        h = lib.tanh(h * w)
        out[t] = h
    return out


WRITES: dict[str, Callable[[Any, Any], Any]] = {
    "rnn": _rnn,
    "item": lambda lib, w: _set(w * 2, 0, 5.0) * w,
    "items": lambda lib, w: _set(w * 2, [0, 2], w[:2] * 3) * w,
    "mask": lambda lib, w: _set(w * 2, (w > 0).detach(), 0.0) * w,
    "add": lambda lib, w: (w * 2).add_(w, alpha=3) * w,
    "mul": lambda lib, w: (w * 2).mul_(w),
    "exp": lambda lib, w: (w * 2).exp_() * w,
    "zero": lambda lib, w: (w * 2).zero_() + w,
    "copy": lambda lib, w: (w * 2).copy_(w * w) * w,
    "copy of what needs no gradient": lambda lib, w: (w * 2).copy_(lib.ones(3)),
    "copy of another dtype": lambda lib, w: (w * 2).copy_(lib.tensor([1, 2, 3])) * w,
    "clamp": lambda lib, w: (w * 2).clamp_(0, 1) * w,
    "masked_fill": lambda lib, w: (w * 2).masked_fill_(w > 0, 1.0) * w,
    "index_add": lambda lib, w: (w * 2).index_add_(0, lib.tensor([0, 0]), w[1:]) * w,
    "index_fill": lambda lib, w: (w * 2).index_fill_(0, lib.tensor([1]), 4.0) * w,
    "addcmul": lambda lib, w: (w * 2).addcmul_(w, w, value=2) * w,
    "addcdiv": lambda lib, w: (w * 2).addcdiv_(w, w * w + 1) * w,
    "scatter": lambda lib, w: (w * 2).scatter_(0, lib.tensor([1]), w[:1] * 5) * w,
}


def _set(y: Any, index: Any, value: Any) -> Any:
    y[index] = value
    return y


@pytest.mark.parametrize("name", WRITES)
def test_gradients_follow_writes(name: str, rng: np.random.Generator) -> None:
    values = rng.standard_normal(3)
    ours = tinytorch.tensor(values, dtype="float32", requires_grad=True)
    theirs = torch.tensor(values, dtype=torch.float32, requires_grad=True)
    out, wanted = WRITES[name](tinytorch, ours), WRITES[name](torch, theirs)
    np.testing.assert_allclose(out.detach().numpy(), wanted.detach().numpy(), rtol=1e-5)
    (g,) = tinytorch.autograd.grad(out.sum(), ours, create_graph=True)
    (e,) = torch.autograd.grad(wanted.sum(), theirs, create_graph=True)
    np.testing.assert_allclose(g.detach().numpy(), e.detach().numpy(), rtol=1e-5)
    if g.requires_grad and e.requires_grad:
        (g,) = tinytorch.autograd.grad(g.sum(), ours)
        (e,) = torch.autograd.grad(e.sum(), theirs)
        np.testing.assert_allclose(g.numpy(), e.numpy(), rtol=1e-4, atol=1e-6)


DRAWN: dict[str, Callable[[Any, Any], Any]] = {
    "uniform_": lambda lib, w: (w * 2).uniform_(),
    "normal_": lambda lib, w: (w * 2).normal_(),
    "exponential_": lambda lib, w: (w * 2).exponential_(),
    "bernoulli_": lambda lib, w: (w * 2).bernoulli_(0.5),
    "bernoulli": lambda lib, w: lib.bernoulli(w),
    "poisson": lambda lib, w: lib.poisson(w),
    "normal": lambda lib, w: lib.normal(w, w.detach()),
    "normal, of both": lambda lib, w: lib.normal(w[:, None], w),
}


@pytest.mark.parametrize("name", DRAWN)
def test_what_is_drawn_is_recorded_with_a_gradient_of_0(name: str) -> None:
    for lib in (tinytorch, torch):
        w = lib.tensor([0.25, 0.5, 0.75], requires_grad=True)
        out = DRAWN[name](lib, w)
        assert out.requires_grad
        out.sum().backward()
        assert w.grad.tolist() == [0, 0, 0]
    with tinytorch.no_grad():
        assert not DRAWN[name](tinytorch, tinytorch.ones(3, requires_grad=True)).requires_grad


def test_another_name_sees_the_write() -> None:
    w = tinytorch.ones(2, requires_grad=True)
    y = w * 2
    alias = y
    y += 1
    assert alias is y and alias.tolist() == [3, 3]


@pytest.mark.parametrize(
    "write",
    [
        lambda w: _set(w, 0, 1.0),
        lambda w: w.add_(1.0),
        lambda w: _with_view(w * 2),
        lambda w: _base_held(w * 2),
    ],
)
def test_what_others_would_not_see_is_refused(write: Any) -> None:
    with pytest.raises(AutogradError, match=r"leaf that requires a gradient|shares memory"):
        write(tinytorch.ones(2, requires_grad=True))


def _with_view(y: Any) -> Any:
    view = y[:1]
    y[0] = 3.0
    return view


def _base_held(base: Any) -> Any:
    base[:1].mul_(2.0)
    return base


KEPT: dict[str, Callable[[Any, Any], Any]] = {
    "result": lambda x, w: (x * w).clamp(-3.0, 3.0).exp().sub_(x),
    "result, viewed": lambda x, w: (x * w).exp().T.sub_(x),
    "result, viewed twice": lambda x, w: (x * w).relu().unsqueeze(0)[:, :1].add_(x[:1]),
}
"""The gradient keeps the result that is written; nothing else does."""


@pytest.mark.parametrize("mode", ["eager", "python", "auto"])
@pytest.mark.parametrize("name", KEPT)
def test_what_only_a_gradient_keeps_is_written_eager_and_compiled(
    name: str, mode: str, rng: np.random.Generator
) -> None:
    x = tinytorch.tensor(rng.standard_normal((2, 2)))
    w = tinytorch.tensor(rng.standard_normal((2, 2)), requires_grad=True)

    def step(x: Any) -> Any:
        return KEPT[name](x, w)

    run = step if mode == "eager" else tinytorch.compile(step, mode=mode)
    same = {
        "result": lambda: (x * w).clamp(-3.0, 3.0).exp() - x,
        "result, viewed": lambda: (x * w).exp().T - x,
        "result, viewed twice": lambda: (x * w).relu()[None, :1] + x[:1],
    }[name]()
    for _ in range(2):
        out = run(x)
        np.testing.assert_allclose(out.detach().numpy(), same.detach().numpy(), rtol=1e-6)


def test_a_view_of_what_a_gradient_keeps_is_another_holder() -> None:
    w = tinytorch.ones(2, 2, requires_grad=True)

    def base_held(x: Any) -> Any:
        e = (x * w).exp()
        e.T.sub_(x)
        return e

    def view_held(x: Any) -> Any:
        e = (x * w).exp()
        rows = e[:1]
        e.sub_(x)
        return rows

    for step in (base_held, view_held):
        for run in (step, tinytorch.compile(step)):
            with pytest.raises(AutogradError, match="shares memory"):
                run(tinytorch.ones(2, 2))


def test_a_gradient_that_read_the_old_value_notices() -> None:
    w = tinytorch.ones(2, requires_grad=True)
    y = w * 2
    z = y * y
    y[0] = 5.0
    with pytest.raises(AutogradError, match="was overwritten in place after it was used"):
        z.sum().backward()


@pytest.mark.parametrize(
    ("write", "slope"),
    [
        (lambda y: y.mul_(y), lambda y: 2 * y),
        (lambda y: y.addcmul_(y, y), lambda y: 1 + 2 * y),
        (lambda y: y.div_(y), lambda y: 0 * y),
        (lambda y: y.add_(y), lambda y: 2 + 0 * y),
    ],
)
def test_an_operand_that_is_the_tensor_itself_is_its_old_value(write: Any, slope: Any) -> None:
    values = np.array([3.0, -2.0])
    w = tinytorch.tensor(values, requires_grad=True)
    write(w * 1.0).sum().backward()
    assert w.grad is not None
    np.testing.assert_allclose(w.grad.numpy(), slope(values))


def test_data_can_be_written_and_set() -> None:
    w = tinytorch.ones(2, requires_grad=True)
    (w * 3).sum().backward()
    w.data -= 0.1 * w.grad
    np.testing.assert_allclose(w.detach().numpy(), [0.7, 0.7], rtol=1e-6)
    w.data = tinytorch.zeros(2)
    assert w.tolist() == [0, 0] and w.requires_grad and w.grad is not None


def test_a_gradient_accumulates_in_place() -> None:
    w = tinytorch.ones(2, requires_grad=True)
    (w * 3).sum().backward()
    alias = w.grad
    (w * 3).sum().backward()
    assert w.grad is alias and alias.tolist() == [6, 6]
    alias.zero_()
    assert w.grad.tolist() == [0, 0]


def test_computed_tensors_keep_their_history() -> None:
    y = tinytorch.ones(2, requires_grad=True) * 2
    with pytest.raises(AutogradError, match=r"use t\.detach\(\)"):
        y.requires_grad = False
    assert y.requires_grad


def test_a_view_of_the_same_shape_is_another_tensor() -> None:
    x = tinytorch.ones(3)
    for view in (x.view(3), x.reshape(3), x.squeeze(), x.expand(3)):
        view.requires_grad_()
        assert view is not x and not x.requires_grad


@pytest.mark.parametrize("size", [10, 40_000])  # of memory of its own, and of the pool's
@pytest.mark.parametrize("backend", ["numpy", "optimized"])
def test_the_pool_of_buffers_is_no_other_tensor(backend: str, size: int) -> None:
    with tinytorch.using_backend(load(backend)):
        x = tinytorch.ones(size, requires_grad=True)
        y = x * 2
        y += x
        y.sum().backward()
        assert x.grad is not None and x.grad[0].item() == 3
        z = x * 2
        part = z[1:]
        with pytest.raises(AutogradError, match="shares memory"):
            z += x
        assert part[0].item() == 2


def _parts_written(library):
    a = library.arange(12.0, dtype=library.float32).reshape(3, 4).requires_grad_()
    w = library.tensor(2.0, requires_grad=True)
    y = a * 3
    y[1:3] *= 2
    y[0] += 1.5
    y[:, 1] -= a[:, 0]
    y[2, 2:] /= w
    (y * y).sum().backward()
    return [t.detach().numpy() for t in (y, a.grad, w.grad)]


def test_operators_write_into_a_part_of_a_computed_tensor():
    for ours, theirs in zip(_parts_written(tinytorch), _parts_written(torch), strict=True):
        np.testing.assert_allclose(ours, theirs, rtol=1e-6)


@pytest.mark.parametrize("operator", ["//=", "%=", "**=", "&=", "|=", "^=", "<<=", ">>="])
def test_operators_write_the_tensor_and_all_its_names(operator: str) -> None:
    seen = []
    for library in (tinytorch, torch):
        x = library.arange(6).reshape(2, 3)
        names = {"column": x[:, 1]}
        exec(f"column {operator} 2", names)
        seen.append(x.tolist())
    assert seen[0] == seen[1]


def test_operators_of_masks_write_them() -> None:
    mask = other = tinytorch.tensor([True, False])
    mask &= tinytorch.tensor([False, True])
    other |= tinytorch.tensor([False, True])
    mask ^= True
    assert other.tolist() == [True, False]
    with pytest.raises(DTypeError, match="does not fit into a bool tensor"):
        mask &= tinytorch.tensor([3, 3])
    leaf = tinytorch.ones(2, requires_grad=True)
    with pytest.raises(AutogradError, match="in-place pow on a leaf"):
        leaf **= 2


def test_a_view_with_a_name_is_not_written_where_that_is_recorded():
    y = tinytorch.ones(4, requires_grad=True) * 3
    part = y[1:3]
    with pytest.raises(AutogradError, match="shares memory"):
        part *= 2
    views = [y[1:3]]
    with pytest.raises(AutogradError, match="shares memory"):
        views[0] *= 2
    assert y.tolist() == [3.0, 3.0, 3.0, 3.0]


@pytest.mark.parametrize("mode", ["floor", "trunc"])
def test_quotients_rounded_in_place(mode):
    for dtype in ("float32", "int64"):
        ours = tinytorch.tensor([-7, 7, 5]).to(dtype)
        theirs = torch.tensor([-7, 7, 5], dtype=getattr(torch, dtype))
        same = ours.div_(2, rounding_mode=mode)
        assert same is ours and ours.dtype.name == dtype
        assert ours.tolist() == theirs.div_(2, rounding_mode=mode).tolist()
        assert (
            ours.divide_(3, rounding_mode=mode).tolist()
            == theirs.divide_(3, rounding_mode=mode).tolist()
        )


@pytest.mark.parametrize("name", ["mul_", "div_"])
def test_only_sums_take_alpha(name):
    with pytest.raises(TypeError, match="unexpected keyword argument 'alpha'"):
        getattr(tinytorch.ones(2), name)(2, alpha=3)


NOTHING: dict[str, Callable[[Any], Any]] = {
    "rows": lambda t: (t.ones(4, 3), slice(2, 2), (0, 3)),
    "beyond": lambda t: (t.ones(4), slice(5, 9), (0,)),
    "columns": lambda t: (t.ones(4, 3), (slice(None), slice(1, 1)), (4, 0)),
    "one value": lambda t: (t.ones(4, 3), (slice(None), slice(1, 1)), ()),
    "a row": lambda t: (t.ones(4, 3), slice(2, 2), (3,)),
    "places": lambda t: (t.ones(4), t.zeros(0, dtype=t.int64), (0,)),
    "mask": lambda t: (t.ones(4), t.zeros(4, dtype=t.bool), (0,)),
    "all of none": lambda t: (t.ones(0, 3), slice(None), (0, 3)),
}


@pytest.mark.parametrize("backend", ["naive", "numpy", "optimized"])
@pytest.mark.parametrize("needs", [(True, True), (True, False), (False, True)])
@pytest.mark.parametrize("which", NOTHING)
def test_what_is_written_nowhere_has_a_gradient(which: str, needs: Any, backend: str) -> None:
    found = []
    with tinytorch.using_backend(backend):
        for t in (tinytorch, torch):
            x, index, shape = NOTHING[which](t)
            y = t.full(shape, 2.0).requires_grad_(needs[1])
            x.requires_grad_(needs[0])
            out = x.clone()
            out[index] = y
            assert out.requires_grad
            out.sum().backward()
            found.append([None if p.grad is None else p.grad.tolist() for p in (x, y)])
    assert found[0] == found[1]


@pytest.mark.parametrize(
    "shape", [(3, 3), (7, 3), (9, 4), (6, 1), (3, 7), (3, 0), (0, 3), (2, 2, 2)]
)
@pytest.mark.parametrize("wrap", [False, True])
def test_fill_diagonal(shape: Any, wrap: bool) -> None:
    ours = tinytorch.zeros(shape).fill_diagonal_(fill_value=2.0, wrap=wrap)
    theirs = torch.zeros(shape).fill_diagonal_(fill_value=2.0, wrap=wrap)
    assert ours.tolist() == theirs.tolist()


@pytest.mark.parametrize("shape", [(3,), (3, 3, 4), ()])
def test_what_has_no_diagonal_to_fill(shape: Any) -> None:
    with pytest.raises(tinytorch.ShapeError, match="a matrix, or dimensions of one size"):
        tinytorch.zeros(shape).fill_diagonal_(1.0)
    with pytest.raises(RuntimeError):
        torch.zeros(shape).fill_diagonal_(1.0)


def test_uniform_from_to() -> None:
    x = tinytorch.zeros(100).uniform_(3.0, to=4.0)
    assert 3 <= x.min().item() <= x.max().item() <= 4
    with pytest.raises(ValueError, match=r"nothing from 1.0 to below 0.5"):
        x.uniform_(1.0, 0.5)


@pytest.mark.parametrize("backend", ["numpy", "optimized"])
@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("step", [1, 2, 3, 4, 8])
def test_neg_of_what_is_not_together_in_memory(step: int, dtype: str, backend: str) -> None:
    """np.negative takes four numbers of float32, eight of float64, for the next one."""
    array = np.arange(60.0).astype(dtype)
    expected = array.copy()
    expected[::step] *= -1
    with tinytorch.using_backend(backend):
        tinytorch.from_numpy(array)[::step].neg_()
    np.testing.assert_array_equal(array, expected)
