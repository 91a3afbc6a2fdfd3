"""Our layer and PyTorch's of the same name, with the same parameters."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch

import tinytorch
from tinytorch import nn


def make_twins(name: str, *args: Any, **options: Any) -> tuple[nn.Module, Any]:
    """Both in float64; ours has the other's parameters, by the same names in the same order."""
    generator = torch.Generator().manual_seed(0)
    theirs = getattr(torch.nn, name)(*args, **options).double()
    ours = getattr(nn, name)(*args, **options).double()
    with torch.no_grad():
        for parameter in theirs.parameters():
            parameter.copy_(0.5 * torch.randn(parameter.shape, generator=generator))
    assert [n for n, _ in ours.named_parameters()] == [n for n, _ in theirs.named_parameters()]
    ours.load_state_dict({k: v.numpy() for k, v in theirs.state_dict().items()})
    return ours, theirs


def tensors(value: Any, library: Any) -> Any:
    """Arrays, in nests of tuples and dicts too, as tensors of ours or of PyTorch's."""
    if isinstance(value, np.ndarray):
        made = (tinytorch if library is nn else torch).tensor(value)
        return made.requires_grad_(value.dtype.kind == "f")
    if isinstance(value, (tuple, list)):
        return tuple(tensors(v, library) for v in value)
    if isinstance(value, dict):
        return {k: tensors(v, library) for k, v in value.items()}
    return value


def flat(value: Any) -> list[Any]:
    """The tensors in a nest of tuples and dicts."""
    if isinstance(value, (tuple, list)):
        return [t for v in value for t in flat(v)]
    if isinstance(value, dict):
        return flat(list(value.values()))
    return [value] if hasattr(value, "numpy") else []


def assert_twins_agree(ours: nn.Module, theirs: Any, *args: Any, **options: Any) -> None:
    """Results, gradients of floating-point inputs and gradients of parameters are equal."""
    seen = []
    for layer, library in ((ours, nn), (theirs, torch.nn)):
        given, named = tensors(args, library), tensors(options, library)
        results = [r for r in flat(layer(*given, **named)) if r.requires_grad]
        weights = [np.random.default_rng(i).standard_normal(r.shape) for i, r in enumerate(results)]
        total = sum((r * r * tensors(w, library).detach()).sum()
                    for r, w in zip(results, weights, strict=True))  # fmt: skip
        layer.zero_grad()
        total.backward()
        inputs = [x for x in flat((given, named)) if x.requires_grad]
        seen.append((results, [x.grad for x in inputs], [p.grad for p in layer.parameters()]))
    for mine, wanted in zip(*seen, strict=True):
        for a, b in zip(mine, wanted, strict=True):
            a, b = (np.zeros(1) if v is None else v.detach().numpy() for v in (a, b))
            np.testing.assert_allclose(a + np.zeros(b.shape), b, rtol=1e-8, atol=1e-9)
