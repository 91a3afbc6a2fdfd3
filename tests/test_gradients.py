"""Every op's gradient: against finite differences to second order, and against PyTorch."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import HealthCheck, assume, given, settings, strategies as st

from tests.torch_ops import torch_twin
from tinytorch.autograd import grad, gradcheck
from tinytorch.dispatch import apply
from tinytorch.gradients import gradient
from tinytorch.op import OPS
from tinytorch.state import using_backend
from tinytorch.tensor import Tensor
from tinytorch.testing.op_samples import draw_sample

DIFFERENTIABLE = [op for op in OPS.values() if op.vjps is not None or op.decomposition is not None]
OF_KERNELS = [op for op in DIFFERENTIABLE if op.decomposition is not None and op.vjps is not None]
# compared in test_creation.py and test_random.py; as the gradient of ctc_loss, since PyTorch has no
# derivative of it
ON_THEIR_OWN = ("arange", "uniform", "ctc_loss_backward")

randoms = st.randoms(use_true_random=False)
sampled = settings(max_examples=10, suppress_health_check=[HealthCheck.too_slow])


@pytest.fixture(autouse=True)
def _numpy_backend():
    with using_backend("numpy"):
        yield


@pytest.mark.parametrize("op", DIFFERENTIABLE, ids=lambda op: op.name)
@sampled
@given(random=randoms)
def test_first_and_second_derivative_by_finite_differences(op, random):
    sample = draw_sample(op.name, random, "smooth")
    inputs = sample.tensors(requires_grad=True)
    out = apply(op, *inputs, **sample.params)
    if not out.requires_grad or not out.numel():
        return
    gradcheck(lambda *xs: apply(op, *xs, **sample.params), inputs, order=2)


@pytest.mark.parametrize("backend", ["blocked", "optimized"])
@pytest.mark.parametrize("op", OF_KERNELS, ids=lambda op: op.name)
@sampled
@given(random=randoms)
def test_a_kernel_has_the_gradients_of_what_it_is_made_of(op, backend, random):
    sample = draw_sample(op.name, random, "smooth")
    found = []
    for name in ("numpy", backend):  # NumPy runs the decomposition
        with using_backend(name):
            inputs = sample.tensors(requires_grad=True)
            out = apply(op, *inputs, **sample.params)
            if not out.requires_grad or not out.numel():
                return
            leaves = [x for x in inputs if isinstance(x, Tensor) and x.requires_grad]
            seed = Tensor(np.arange(1.0, out.numel() + 1).reshape(out.shape))
            found.append([g.numpy() for g in grad(out, leaves, seed)])
    for decomposed, own in zip(*found, strict=True):
        assert decomposed.shape == own.shape
        np.testing.assert_allclose(own, decomposed, rtol=1e-7, atol=1e-7)


@pytest.mark.parametrize("op", DIFFERENTIABLE, ids=lambda op: op.name)
@sampled
@given(random=randoms)
def test_gradient_needs_only_the_inputs_it_declares(op, random):
    sample = draw_sample(op.name, random, "smooth")
    inputs = sample.tensors(requires_grad=True)
    out = apply(op, *inputs, **sample.params)
    if out.history is None or out.history.op is not op:
        return  # it ran in parts, which are checked on their own
    leaves = [x for x in inputs if x.requires_grad]
    seed = Tensor(np.ones(out.shape))
    expected = grad(out, leaves, seed, retain_graph=True, allow_unused=True)
    kept = out.history.inputs
    for position, x in enumerate(inputs):
        if position not in op.saved_inputs:
            assert not kept or kept[position] is None
            x._data[...] = np.nan if x.is_floating_point() else 0  # past the write clock
    if not op.saves_output and not op.view:
        out._data[...] = np.nan
    for g, e in zip(grad(out, leaves, seed, allow_unused=True), expected, strict=True):
        assert (g is None) == (e is None)
        if g is not None:
            np.testing.assert_array_equal(g.numpy(), e.numpy())


# -- against PyTorch -------------------------------------------------------------------------------


def to_torch(x: Any, dtype: str) -> Any:
    if isinstance(x, np.ndarray):
        # a copy: torch has no negative strides
        return torch.from_numpy(np.array(x)).requires_grad_(x.dtype.kind == "f")
    return torch.tensor(x, dtype=getattr(torch, dtype))  # several functions take no numbers


def assert_same(ours: Any, theirs: Any, what: str) -> None:
    theirs = theirs.detach().numpy()
    assert ours.shape == theirs.shape, f"{what}: shape {ours.shape}, PyTorch {theirs.shape}"
    assert ours.dtype == theirs.dtype, f"{what}: dtype {ours.dtype}, PyTorch {theirs.dtype}"
    scale = np.max(np.abs(theirs), where=np.isfinite(theirs), initial=1) if theirs.size else 1
    np.testing.assert_allclose(ours, theirs, rtol=1e-9, atol=1e-12 * scale, err_msg=what)


def _needs_no_twin(op: Any) -> bool:
    """An elementwise op that PyTorch has not is its own definition; see test_conformance.py."""
    return op.kind == "elementwise" and torch_twin(op.name) is None


@pytest.mark.parametrize(
    "name", [n for n, op in OPS.items() if n not in ON_THEIR_OWN and not _needs_no_twin(op)]
)
@settings(max_examples=40, suppress_health_check=[HealthCheck.too_slow])
@given(random=randoms)
def test_agrees_with_pytorch_forward_and_backward(name, random):
    op = OPS[name]
    # second derivatives of gelu at infinity are inf * 0 in one library or the other, and so are
    # products of infinities with what is before and after them
    is_finite = op.name in ("gelu_backward", "prod", "cumprod", "cumprod_backward")
    style = "finite" if is_finite else "edges"
    dtype = {"logical": "bool", "bitwise": "int64"}.get(op.name.partition("_")[0], "float64")
    sample = draw_sample(op.name, random, style, dtype)
    assume(op.kind != "pooling" or sample.inputs[-1].shape[1])  # PyTorch refuses zero channels
    if op.name.startswith("max_pool2d"):
        sample.inputs = tuple(map(_one_nan, sample.inputs))
    inputs = sample.tensors(requires_grad=True)
    theirs_in = [to_torch(x, dtype) for x in sample.inputs]
    out = apply(op, *inputs, **sample.params)
    twin = torch_twin(name)
    assert twin, (
        f"{name} is compared with nothing: add torch=lambda torch, {', '.join(op.inputs)}: ... to "
        f"its line @samples in tinytorch/testing/op_samples.py"
    )
    theirs = twin(*theirs_in, **sample.params)
    assert_same(out.detach().numpy(), theirs, op.name)
    assert out.requires_grad == theirs.requires_grad
    if out.requires_grad:
        _assert_same_gradients(op, inputs, out, theirs_in, theirs)


def _one_nan(x: Any) -> Any:
    """At most one NaN in a plane: of several in a window PyTorch takes the last, we the first."""
    x = np.array(x, order="C")  # so that the planes below are views
    for plane in x.reshape(-1, math.prod(x.shape[2:])) if x.size else ():
        plane[np.flatnonzero(np.isnan(plane))[1:]] = 7.0
    return x


def _assert_same_gradients(op, inputs, out, theirs_in, theirs):
    rng = np.random.default_rng(0)
    seed = np.asarray(rng.standard_normal(out.shape)).astype(out.dtype.dtype)
    pairs = [(a, b) for a, b in zip(inputs, theirs_in, strict=True) if isinstance(a, Tensor)]
    pairs = [(a, b) for a, b in pairs if a.requires_grad]
    ours = grad(out, [a for a, _ in pairs], Tensor(seed), allow_unused=True)
    theirs = torch.autograd.grad(
        theirs, [b for _, b in pairs], torch.from_numpy(seed), allow_unused=True
    )
    for i, (g, t, (a, _)) in enumerate(zip(ours, theirs, pairs, strict=True)):
        zero = np.zeros(a.shape)
        g = zero if g is None else g.numpy()
        assert_same(g, torch.from_numpy(zero) if t is None else t, f"gradient {i} of {op.name}")


# -- the table -------------------------------------------------------------------------------------


@pytest.mark.parametrize("op", OPS.values(), ids=OPS)
def test_op_has_a_gradient_or_cannot_have_one(op):
    answers_whole = op.name in ("argmax", "argmin", "argsort", "eq", "ne", "lt", "le")
    logical = op.name.startswith(("logical_", "bitwise_"))
    without = op.kind == "creation" or op.name == "detach" or answers_whole or logical
    line = f'gradient("{op.name}", {", ".join(f"{i}=lambda g, ...: ..." for i in op.inputs)})'
    assert without == (op not in DIFFERENTIABLE), (
        f"{op.name} has no gradient: add the line {line} to tinytorch/gradients.py"
    )


def test_a_gradient_must_name_every_input():
    with pytest.raises(TypeError, match="gradient of mul needs a formula for each of"):
        gradient("mul", a=lambda g, b: g * b)
    with pytest.raises(KeyError, match="there is no op 'nosuch'; the table has "):
        gradient("nosuch", a=lambda g: g)


def test_the_gradient_of_a_cycle_of_three_dimensions_is_the_other_cycle():
    """Drawn permutations are rarely other ones than their inverse."""
    x = Tensor(np.zeros((2, 3, 4)), requires_grad=True)
    weight = np.arange(24.0).reshape(4, 2, 3)
    (x.permute(2, 0, 1) * Tensor(weight)).sum().backward()
    np.testing.assert_array_equal(x.grad.numpy(), weight.transpose(1, 2, 0))
