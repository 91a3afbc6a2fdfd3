"""Training is tested on the NumPy backend."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

import tinytorch


@pytest.fixture(autouse=True)
def _numpy_backend() -> Iterator[None]:
    with tinytorch.using_backend("numpy"):
        yield
