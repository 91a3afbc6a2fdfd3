from __future__ import annotations

from collections.abc import Iterator

import pytest

import tinytorch


@pytest.fixture(autouse=True)
def _on_numpy() -> Iterator[None]:
    with tinytorch.using_backend("numpy"):
        yield
