from __future__ import annotations

from collections.abc import Iterator

import pytest
import torch

import tinytorch.fx.passes  # noqa: F401  (a pass is known by its name once this is imported)


@pytest.fixture(autouse=True)
def _one_thread() -> Iterator[None]:
    """Tests run side by side; and with one thread sums come in one order."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)
