"""Layers that `torch.utils.checkpoint` runs again in the backward: a graph does not follow it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch.utils.checkpoint
from torch.overrides import TorchFunctionMode

from tinytorch.fx.diagnosis.reasons import CHECKPOINT_OFF, Line, Reason, line_that_calls

RUN_AGAIN = (
    "torch.utils.checkpoint runs layers again in the backward, where the graph draws other numbers "
    "for them (dropout)"
)


def checkpoint_reason(run: Callable[[], Any], why: str) -> Reason | None:
    """The reason, if a model that a graph differs from checkpoints layers; None if it does not.

    Args:
        run: calls the model.
        why: how the graph differs.
    """
    with _Checkpoints() as seen:
        run()
    if seen.line is None:
        return None
    return Reason(f"{RUN_AGAIN}: {why}", CHECKPOINT_OFF, seen.line)


class _Checkpoints(TorchFunctionMode):
    """Looks which line calls `torch.utils.checkpoint`."""

    line: Line | None = None

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        self.line = self.line or line_that_calls(torch.utils.checkpoint.__file__)
        return func(*args, **(kwargs or {}))
