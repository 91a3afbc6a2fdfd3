"""A fixture for tests of all compiled code."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tinytorch.state import using_backend


@pytest.fixture(params=["numpy", "optimized"])
def backend(request: pytest.FixtureRequest) -> Iterator[None]:
    with using_backend(request.param):
        yield
