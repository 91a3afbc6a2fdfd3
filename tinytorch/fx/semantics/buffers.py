"""Buffers as they were before a run."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
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


def assigned_buffers(model: nn.Module) -> Callable[[], None]:
    """A function that has a model whose calls assign its buffers write to those of now instead.

    So does its graph, which has no others; and whoever holds the buffers sees what is written.
    """
    before = [(module._buffers, name, buffer) for module in model.modules()
              for name, buffer in module._buffers.items() if buffer is not None]  # fmt: skip

    def write() -> None:
        for own, name, buffer in before:
            assigned = own.get(name)
            if assigned is not buffer:
                own[name] = buffer
                if assigned is not None:
                    with torch.no_grad():
                        buffer.copy_(assigned)

    return write


@contextmanager
def assigned_in_place(model: nn.Module) -> Iterator[None]:
    """`assigned_buffers` when the block ends: a backward in it may need the old values."""
    write = assigned_buffers(model)
    try:
        yield
    finally:
        write()


@contextmanager
def model_buffers_kept(model: nn.Module) -> Iterator[None]:
    """Restore a model's buffers after the block, whether it writes to them or assigns others."""
    with buffers_kept(list(model.buffers())), assigned_in_place(model):
        yield
