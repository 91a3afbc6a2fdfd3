"""The flag that libraries ask whether they are traced."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import torch


@contextmanager
def compiling() -> Iterator[None]:
    """Make `torch.compiler.is_compiling()` true inside the block, as torch.export does: libraries
    then choose code that can be traced, such as a loop in place of a kernel without a fake form."""
    before = torch.compiler._is_compiling_flag
    torch.compiler._is_compiling_flag = True
    try:
        yield
    finally:
        torch.compiler._is_compiling_flag = before
