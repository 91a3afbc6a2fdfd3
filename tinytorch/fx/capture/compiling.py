"""The flag that libraries ask whether they are traced."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import torch

from tinytorch.fx.diagnosis.reasons import Line, calling_line


@contextmanager
def compiling() -> Iterator[None]:
    """Make `torch.compiler.is_compiling()` true inside the block, as torch.export does: libraries
    then choose code that can be traced, such as a loop in place of a kernel without a fake form."""
    with _replaced("_is_compiling_flag", True):
        yield


@contextmanager
def compiling_at(line: Line | None, asked: list[Line]) -> Iterator[None]:
    """Let `torch.compiler.is_compiling()` be true for one line of the user's, and false elsewhere.

    Args:
        asked: gets the lines that ask; of helpers such as `is_tracing()` the line that calls them.
    """

    def answer() -> bool:
        now = calling_line(beyond="is_")
        if now is not None and now not in asked:
            asked.append(now)
        return now is not None and now == line

    with _replaced("is_compiling", answer):
        yield


@contextmanager
def _replaced(name: str, value: object) -> Iterator[None]:
    """Give an attribute of `torch.compiler` another value inside the block."""
    before = getattr(torch.compiler, name)
    setattr(torch.compiler, name, value)
    try:
        yield
    finally:
        setattr(torch.compiler, name, before)
