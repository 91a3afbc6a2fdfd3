"""Optimizers are tested on the NumPy backend, but for what is about a backend's fused kernels."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

import tinytorch


@pytest.fixture(autouse=True)
def _numpy_backend() -> Iterator[None]:
    with tinytorch.using_backend("numpy"):
        yield
