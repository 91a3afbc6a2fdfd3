"""What can be seen of a model from outside: results, gradients, buffers, inputs, randomness.

Two models that cannot be told apart by this on several inputs do the same.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
import torch
from torch import Tensor, nn
from torch._subclasses.fake_tensor import FakeTensor
from torch.utils._pytree import tree_flatten, tree_leaves, tree_map

from tinytorch.errors import TinyTorchError
from tinytorch.fx.models import Batch, call

RTOL, ATOL = 1e-4, 1e-5
SKETCH = 16_384  # elements that are kept of a gradient: there are many, of many calls


class LeakedError(TinyTorchError, RuntimeError):
    """A traced model works with what is left of the trace."""


class Subject(Protocol):
    """Something that is called like a model and has its parameters and buffers."""

    def __call__(self, batch: Batch) -> Any: ...

    def parameters(self) -> Mapping[str, Tensor]: ...

    def buffers(self) -> Mapping[str, Tensor]: ...


class ModelSubject:
    """A module as it is."""

    def __init__(self, model: nn.Module) -> None:
        self.model = model

    def __call__(self, batch: Batch) -> Any:
        return call(self.model, batch)

    def parameters(self) -> Mapping[str, Tensor]:
        return dict(self.model.named_parameters())

    def buffers(self) -> Mapping[str, Tensor]:
        return dict(self.model.named_buffers())


@dataclass
class Trial:
    """Inputs to compare on.

    Attributes:
        name: what is special about them.
        batch: the inputs.
        seed: of all generators, torch's, NumPy's and Python's.
    """

    name: str
    batch: Batch
    seed: int


@dataclass
class Observation:
    """The observable effects of one call: named tensors and other values."""

    outputs: list[Any]
    gradients: dict[str, Tensor | None]
    buffers: dict[str, Tensor]
    inputs: list[Any]
    generator: Tensor


def observe(subject: Subject, trial: Trial, with_gradients: bool) -> Observation:
    """Call a subject once and look at everything it did."""
    torch.manual_seed(trial.seed)
    np.random.seed(trial.seed)
    random.seed(trial.seed)
    leaves: dict[str, Tensor] = {}

    def own(value: Any) -> Any:
        if not isinstance(value, Tensor):
            return value
        copy = value.detach().clone()
        if not (with_gradients and copy.is_floating_point()):
            return copy
        leaves[f"input {len(leaves)}"] = copy.requires_grad_()
        return copy * 1  # not a leaf: the model may write to it

    batch = tree_map(own, trial.batch)
    result = subject(batch)
    generator = torch.get_rng_state()
    outputs = tree_leaves(result)
    if any(isinstance(x, FakeTensor) for x in (*outputs, *subject.buffers().values())):
        raise LeakedError("a fake tensor of the trace has been kept, in a result or a buffer")
    parameters = {n: p for n, p in subject.parameters().items() if p.requires_grad}
    return Observation(
        [_frozen(x) for x in outputs],
        _gradients(outputs, {**leaves, **parameters}, trial.seed),
        {name: b.detach().clone() for name, b in subject.buffers().items()},
        [_frozen(x) for x in tree_leaves(batch)],
        generator,
    )


def _frozen(value: Any) -> Any:
    return value.detach().clone() if isinstance(value, Tensor) else value


def _gradients(
    outputs: Sequence[Any], leaves: dict[str, Tensor], seed: int
) -> dict[str, Tensor | None]:
    sources = [x for x in outputs if isinstance(x, Tensor) and x.requires_grad]
    if not sources or not leaves:
        return dict.fromkeys(leaves)
    generator = torch.Generator().manual_seed(seed)
    weights = [torch.randn(x.shape, generator=generator).to(x) for x in sources]
    found = torch.autograd.grad(sources, list(leaves.values()), weights, allow_unused=True)
    return {n: None if g is None else _sketch(g) for n, g in zip(leaves, found, strict=True)}


def _sketch(tensor: Tensor) -> Tensor:
    """Enough of a large tensor to tell it from another: its norm, and elements from all over it."""
    if tensor.numel() <= SKETCH:
        return tensor
    flat = tensor.flatten()
    return torch.cat([flat.norm().reshape(1), flat[:: flat.numel() // SKETCH + 1]])


def difference(found: Observation, expected: Observation) -> str | None:
    """The difference of two observations, in words; None if nothing is."""
    if len(found.outputs) != len(expected.outputs):
        return f"{len(found.outputs)} outputs instead of {len(expected.outputs)}"
    for i, (a, b) in enumerate(zip(found.outputs, expected.outputs, strict=True)):
        if not _same(a, b):
            return f"output {i} {_how(a, b)}"
    for name, b in expected.buffers.items():
        if not _same(found.buffers.get(name), b):
            return f"buffer {name} after the call"
    for i, (a, b) in enumerate(zip(found.inputs, expected.inputs, strict=True)):
        if not _same(a, b):
            return f"input {i} after the call"
    for name, gradient in expected.gradients.items():
        if not _same_gradient(found.gradients.get(name), gradient):
            return f"gradient of {name}"
    if not torch.equal(found.generator, expected.generator):
        return "state of the random generator after the call"
    return None


def _same(a: Any, b: Any) -> bool:
    if not isinstance(a, Tensor) or not isinstance(b, Tensor):
        return type(a) is type(b) and bool(a == b)
    if a.shape != b.shape or a.dtype != b.dtype:
        return False
    if not b.is_floating_point():
        return torch.equal(a, b)
    finite = b[b.isfinite()].abs()
    scale = max(1.0, float(finite.max())) if finite.numel() else 1.0
    return torch.allclose(a, b, RTOL, ATOL * scale, equal_nan=True)


def _same_gradient(a: Tensor | None, b: Tensor | None) -> bool:
    """No gradient is the same as one of zeros."""
    if a is None or b is None:
        given = a if a is not None else b
        return given is None or not bool(given.any())
    return _same(a, b)


def _how(a: Any, b: Any) -> str:
    if isinstance(a, Tensor) and isinstance(b, Tensor) and a.shape != b.shape:
        return f"has shape {list(a.shape)} instead of {list(b.shape)}"
    return "has other values"


def trials(inputs: Batch, subject: Callable[[], Subject]) -> tuple[list[Trial], bool]:
    """Inputs to tell models apart by, of those that the model itself takes.

    The example; other values of other signs and sizes; other sizes of the batch; the example again,
    which tells whether a call leaves something behind.

    Args:
        subject: makes a fresh copy of the model, in which calls leave nothing behind.

    Returns:
        The trials, and whether gradients can be taken.

    Raises:
        Exception: whatever the model raises on its own example.
    """
    example = Trial("the example", inputs, 1)
    with_gradients = True
    try:
        observe(subject(), example, True)
    except Exception:  # it does not take inputs that require gradients
        with_gradients = False
        observe(subject(), example, False)
    rng = torch.Generator().manual_seed(2)
    size = _batch_size(inputs)
    candidates = [
        Trial("other values", _changed(inputs, lambda x: _random(x, rng)), 3),
        Trial("values of the other sign", _changed(inputs, torch.neg), 4),
        Trial("large values", _changed(inputs, lambda x: x.abs() * 10 + 1), 5),
        Trial("small values", _changed(inputs, lambda x: x * 1e-3), 6),
    ]
    for n in (1, 2 * size + 3) if size else ():
        name = f"a batch of {n} instead of {size}"
        candidates.append(Trial(name, _changed(_resized(inputs, size, n), torch.neg), 7))
    taken = [t for t in candidates if _accepts(subject(), t)]
    return [example, *taken, Trial("the example again", inputs, 8)], with_gradients


def _accepts(subject: Subject, trial: Trial) -> bool:
    try:
        observe(subject, trial, False)
    except Exception:  # then there is nothing to compare with
        return False
    return True


def _batch_size(inputs: Batch) -> int:
    """Size of the first dimension of the first tensor that has one; 0 if none has."""
    sizes = [x.shape[0] for x in tree_leaves(inputs) if isinstance(x, Tensor) and x.ndim]
    return sizes[0] if sizes else 0


def _resized(inputs: Batch, size: int, n: int) -> Batch:
    """Tensors whose first dimension is the batch, with n samples: those that there are, in turn."""

    def of_leaf(x: Any) -> Any:
        if not isinstance(x, Tensor) or not x.ndim or x.shape[0] != size:
            return x
        return x[torch.arange(n) % size]

    return tree_map(of_leaf, inputs)


def _changed(inputs: Batch, function: Callable[[Tensor], Tensor]) -> Batch:
    """Floats by the function; integers, which may be indices, in another order; masks flipped."""

    def of_leaf(x: Any) -> Any:
        if not isinstance(x, Tensor):
            return x
        if x.is_floating_point():
            return function(x)
        if x.numel() and x.ndim and int(x.min()) >= 0 and int(x.max()) <= 1:
            flipped = x.clone()
            flipped[..., x.shape[-1] // 2 :] = (~x.bool()).to(x.dtype)[..., x.shape[-1] // 2 :]
            return flipped
        return x.flatten().flip(0).reshape(x.shape)

    leaves, spec = tree_flatten(inputs)
    return torch.utils._pytree.tree_unflatten([of_leaf(x) for x in leaves], spec)


def _random(x: Tensor, generator: torch.Generator) -> Tensor:
    return torch.randn(x.shape, generator=generator).to(x)
