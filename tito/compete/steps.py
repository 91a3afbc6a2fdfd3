"""Events whose work is TinyTorch's own: its functions on an entry's kernels.

Such an event's work is a function `step(from_array, functional, inputs)`, written once for
TinyTorch and PyTorch, which have the same names. It returns the outputs as arrays.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import cache
from typing import Any

import numpy as np

import tinytorch
from tinytorch.backends import ComputeBackend, register_backend
from tinytorch.backends.numpy import NumpyBackend
from tinytorch.creation import from_numpy
from tinytorch.nn import functional as F
from tito.compete.event import Array

NAME = "measured"
Step = Callable[[Any, Any, Sequence[Array]], list[Array]]


class Torch:
    """PyTorch in an entry's place: the same step with its own tensors."""


def run_step(step: Step, entry: Any, inputs: Sequence[Array]) -> list[Array]:
    """The step's outputs, computed on the entry's kernels, or by PyTorch."""
    if isinstance(entry, Torch):
        import torch

        return step(torch.from_numpy, torch.nn.functional, inputs)
    with running_on(entry):
        return step(from_numpy, F, inputs)


def step_reference(
    step: Step, inputs: Sequence[Array], tolerance: float
) -> list[tuple[Array, Array]]:
    """In float64 on the NumPy backend; a share of the largest of each tensor may be off."""
    exact = [a.astype(np.float64) if a.dtype == np.float32 else a for a in inputs]
    with tinytorch.using_backend("numpy"):
        found = step(from_numpy, F, exact)
    return [(a, np.full(a.shape, tolerance * np.abs(a).max())) for a in found]


@contextmanager
def running_on(entry: Any) -> Iterator[None]:
    """Run TinyTorch on a backend, or on an entry's methods and NumPy's for what it does not have.

    Example:
        >>> class Entry:
        ...     def exp(self, x):
        ...         return x * 0
        >>> with running_on(Entry()):
        ...     (tinytorch.tensor([1.0]).exp() + 1).tolist()
        [1.0]
    """
    backend = entry if isinstance(entry, ComputeBackend) else _completed(type(entry))
    register_backend(NAME, lambda: backend, replace=True)
    with tinytorch.using_backend(NAME):
        yield


@cache
def _completed(own: type) -> ComputeBackend:
    """A backend with the entry's methods first, and NumPy's for the rest."""
    backend: ComputeBackend = type(own.__name__, (own, NumpyBackend), {})()
    return backend
