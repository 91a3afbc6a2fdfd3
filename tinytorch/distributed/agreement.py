"""Do all ranks call the same collective? Asked before each, since gloo does not ask.

Without it a tensor of another size ends a process (gloo aborts where a message is longer than its
buffer), or is filled in part, and nobody is told.
"""

from __future__ import annotations

import zlib
from typing import Any

import torch
import torch.distributed as dist

from tinytorch.distributed.deadlock import DeadlockDetector, differing
from tinytorch.errors import ProcessGroupError
from tinytorch.tensor import Tensor


def describe(name: str, tensor: Tensor, options: str = "") -> str:
    """A collective, or a message, in words: the same on all ranks that take part.

    >>> import tinytorch
    >>> describe("all_reduce", tinytorch.ones(2, 3), " (mean)")
    'all_reduce of float32[2, 3] (mean)'
    """
    return f"{name} of {tensor.dtype.name}{list(tensor.shape)}{options}"


def tag_of(tensor: Tensor) -> int:
    """A tag by which gloo hands a message only to a rank that waits for its shape and dtype."""
    return _digest(describe("message", tensor))


def ask(call: str, detector: DeadlockDetector) -> None:
    """Ask all ranks whether they are about to make this call, by a message of 16 bytes.

    Raises:
        ProcessGroupError: on every rank: what each is about to do.
        RuntimeError: of PyTorch, say as a rank has gone.
    """
    own, questions = _digest(call), detector.questions
    bounds = torch.tensor([own, -own])
    detector.wait(questions.all_reduce(bounds, dist.ReduceOp.MAX), call, questions)
    if bounds.tolist() != [own, -own]:
        calls: list[Any] = [None] * dist.get_world_size()
        dist.all_gather_object(calls, call)
        raise ProcessGroupError(differing(calls))


def _digest(text: str) -> int:
    return zlib.crc32(text.encode()) >> 1  # fits gloo's tags
