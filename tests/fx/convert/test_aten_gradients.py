"""The gradients of ATen operators as Tensor code, against PyTorch's own."""

from __future__ import annotations

import warnings
from collections import Counter
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn
from torch.nn import functional as F
from torch.utils import _pytree as pytree

import tinytorch
from tests.fx.convert.test_aten import REFUSALS, calls_of_samples, overload_of
from tests.torch_ops import pytorchs_own_samples
from tinytorch.fx.convert.aten import ATEN
from tinytorch.fx.convert.aten_module import _converted
from tinytorch.fx.convert.exchange import tensor_from_torch
from tinytorch.fx.convert.from_torch import from_torch
from tinytorch.tensor import Tensor

#: PyTorch adds up its gradient by logarithms, with errors as large as those of the arguments.
BY_LOGARITHMS = {"logcumsumexp"}


def _floats(leaves: list[Any]) -> list[int]:
    return [i for i, a in enumerate(leaves) if torch.is_tensor(a) and a.dtype == torch.float32]


def _pytorchs(name: str, args: Any, kwargs: Any) -> tuple[list[Any], list[Any]] | None:
    """Cotangents of the results, None where one has no gradient, and gradients of the arguments."""
    operator = overload_of(name)
    leaves, spec = pytree.tree_flatten((args, kwargs))
    places = _floats(leaves)
    if operator._schema.is_mutable or not places:
        return None
    for i in places:
        leaves[i] = leaves[i].detach().clone().requires_grad_()
    given, named = pytree.tree_unflatten(leaves, spec)
    try:
        results = [y for y in pytree.tree_leaves(operator(*given, **named)) if torch.is_tensor(y)]
        cotangents = [torch.randn_like(y) if y.requires_grad else None for y in results]
        roots = [y for y in results if y.requires_grad]
        if not roots:
            return cotangents, [None] * len(places)
        wanted = [leaves[i] for i in places]
        seeds = [c for c in cotangents if c is not None]
        return cotangents, list(torch.autograd.grad(roots, wanted, seeds, allow_unused=True))
    except (RuntimeError, NotImplementedError):  # PyTorch has no gradient of it
        return None


def _ours(name: str, args: Any, kwargs: Any, cotangents: list[Any]) -> list[Any] | None:
    leaves, spec = pytree.tree_flatten((args, kwargs))
    places = _floats(leaves)
    leaves = [tensor_from_torch(a.clone()) if torch.is_tensor(a) else a for a in leaves]
    for i in places:
        leaves[i].requires_grad_()
    given, named = pytree.tree_unflatten(leaves, spec)
    try:
        results = ATEN[name](*_converted(given), **_converted(named))
    except REFUSALS:
        return None
    tensors = [y for y in pytree.tree_leaves(results) if isinstance(y, Tensor)]
    terms = [
        (y * tensor_from_torch(c)).sum()
        for y, c in zip(tensors, cotangents, strict=True)
        if c is not None and y.requires_grad
    ]
    if terms:
        tinytorch.stack(terms).sum().backward()
    return [leaves[i].grad for i in places]


def compare_gradients(name: str, args: Any, kwargs: Any) -> bool:
    """Whether there were gradients to compare."""
    theirs = _pytorchs(name, args, kwargs)
    if theirs is None:
        return False
    with np.errstate(all="ignore"):
        found = _ours(name, args, kwargs, theirs[0])
    if found is None:
        return False
    for mine, wanted in zip(found, theirs[1], strict=True):
        if mine is None and wanted is None:
            continue
        a = np.zeros(()) if mine is None else mine.numpy()
        b = np.zeros(()) if wanted is None else wanted.numpy()
        size = max(1.0, float(np.abs(b, where=np.isfinite(b), out=np.zeros_like(b)).max(initial=0)))
        if name in BY_LOGARITHMS:
            size *= max(1.0, float(args[0].abs().max()) * 1e-2)
        np.testing.assert_allclose(
            a, np.broadcast_to(b, a.shape) if wanted is None else b, rtol=2e-3, atol=1e-4 * size,
            err_msg=f"{name}{args}{kwargs}",
        )  # fmt: skip
    return True


@pytest.mark.slow(seconds=20)
def test_gradients_agree_with_pytorch_on_its_own_samples() -> None:
    counts: Counter[str] = Counter()
    compared: Counter[str] = Counter()
    torch.manual_seed(0)
    with warnings.catch_warnings(), tinytorch.using_backend("numpy"):
        warnings.simplefilter("ignore")  # of PyTorch's own test utilities
        for info in pytorchs_own_samples():
            if torch.float32 not in info.dtypes:
                continue
            for name, args, kwargs, _ in calls_of_samples(info, torch.float32, counts):
                compared[name] += compare_gradients(name, args, kwargs)
    assert len(compared) > 120
    assert compared.total() > 1200


@pytest.mark.parametrize("options", [{"padding_idx": 1}, {"scale_grad_by_freq": True}], ids=str)
def test_embeddings_have_the_gradients_of_their_options(options: dict[str, Any]) -> None:
    model, index = nn.Embedding(4, 3, **options), torch.tensor([[1, 2], [2, 3]])
    module = from_torch(model, (index,))
    model(index).square().sum().backward()
    (y,) = module(tensor_from_torch(index))
    (y * y).sum().backward()
    (weight,) = module.parameters()
    assert weight.grad is not None
    assert model.weight.grad is not None
    np.testing.assert_allclose(weight.grad.numpy(), model.weight.grad.numpy(), rtol=1e-5)


def test_statistics_of_a_layer_norm_have_no_gradient() -> None:
    x = torch.randn(3, 4)
    assert compare_gradients("native_layer_norm", (x, [4], torch.ones(4), torch.zeros(4), 1e-5), {})
    ours = ATEN["native_layer_norm"](tinytorch.ones(3, 4, requires_grad=True), [4], None, None, 0.1)
    assert [y.requires_grad for y in ours] == [True, False, False]


BENT = {
    "relu6": F.relu6,
    "hardtanh": lambda x: F.hardtanh(x, -3.0, 3.0),
    "hardsigmoid": F.hardsigmoid,
    "hardswish": F.hardswish,
    "elu": F.elu,
    "selu": F.selu,
    "celu": lambda x: F.celu(x, 0.5),
    "sinc": torch.sinc,
    "std": lambda x: x.std(0),
    "std_mean": lambda x: torch.std_mean(x, 0, correction=0.5)[0],
}


@pytest.mark.parametrize("name", BENT)
def test_where_a_piece_ends_and_a_deviation_is_0_gradients_are_pytorchs(name: str) -> None:
    class Model(nn.Module):
        def forward(self, x: Any) -> Any:
            return BENT[name](x)

    x = torch.tensor([[-3.0, 0.0, 3.0, 6.0, 1.0], [-3.0, 0.0, 3.0, 6.0, -1.0]])
    given = tensor_from_torch(x.clone()).requires_grad_()
    from_torch(Model(), (x,))(given)[0].sum().backward()
    x.requires_grad_()
    Model()(x).sum().backward()
    np.testing.assert_allclose(given.grad.numpy(), x.grad, atol=1e-6)
