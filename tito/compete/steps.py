"""Events whose work is TinyTorch's own: its functions on an entry's kernels."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from typing import Any

import tinytorch
from tinytorch.backends import ComputeBackend, register_backend
from tinytorch.backends.numpy import NumpyBackend

NAME = "measured"


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
