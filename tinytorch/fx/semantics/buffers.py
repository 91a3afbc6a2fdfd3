"""Buffers as they were before a run."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import torch
from torch import Tensor


@contextmanager
def buffers_kept(buffers: Sequence[Tensor]) -> Iterator[None]:
    """Restore the values of these tensors after the block.

    What has not changed is not written: a buffer may be expanded, and then cannot be.
    """
    before = [b.detach().clone() for b in buffers]
    try:
        yield
    finally:
        with torch.no_grad():
            for buffer, old in zip(buffers, before, strict=True):
                if not buffer.equal(old):
                    buffer.copy_(old)
