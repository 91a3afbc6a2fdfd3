"""Backends for tests, by name."""

from __future__ import annotations

import pytest

from tinytorch.backends import ComputeBackend, find_backend
from tinytorch.errors import MissingExtraError


def load(name: str) -> ComputeBackend:
    """The backend; a test that needs one whose package is not installed is skipped."""
    try:
        return find_backend(name)
    except MissingExtraError as error:
        pytest.skip(str(error))
