"""Buffers as they were before a run."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import torch
from torch import Tensor, nn


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


@contextmanager
def assigned_in_place(model: nn.Module) -> Iterator[None]:
    """Where the model assigns a buffer in this block, have it write to the one it had instead.

    So does its graph, which has no other; and whoever holds the buffers sees what is written. It is
    done when the block ends: a backward in it may need the old values.
    """
    before = [(module, name, buffer) for module in model.modules()
              for name, buffer in module._buffers.items() if buffer is not None]  # fmt: skip
    try:
        yield
    finally:
        with torch.no_grad():
            for module, name, buffer in before:
                assigned = module._buffers.get(name)
                module._buffers[name] = buffer
                if assigned is not buffer and assigned is not None:
                    buffer.copy_(assigned)


@contextmanager
def model_buffers_kept(model: nn.Module) -> Iterator[None]:
    """Restore a model's buffers after the block, whether it writes to them or assigns others."""
    with buffers_kept(list(model.buffers())), assigned_in_place(model):
        yield
