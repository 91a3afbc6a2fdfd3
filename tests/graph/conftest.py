from __future__ import annotations

from collections.abc import Iterator

import pytest

from tinytorch.state import using_backend


@pytest.fixture
def numpy_backend() -> Iterator[None]:
    with using_backend("numpy"):
        yield
