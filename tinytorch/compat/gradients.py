"""Names of `torch.autograd` that gradients of any order make trivial."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

from tinytorch.autograd import no_grad
from tinytorch.autograd.function import Context as FunctionCtx


def once_differentiable(function: Callable[..., Any]) -> Callable[..., Any]:
    """A `backward` whose result cannot be differentiated again: it runs without recording."""

    @functools.wraps(function)
    def wrapper(ctx: FunctionCtx, *gradients: Any) -> Any:
        with no_grad():
            return function(ctx, *gradients)

    return wrapper


class set_detect_anomaly:
    """Accept the setting without effect; `with detect_anomaly():` as well.

    TinyTorch's own check of every op is `tinytorch.graph` and `bench`, and errors of backward name
    the op.
    """

    def __init__(self, mode: bool = True, check_nan: bool = True) -> None:
        self.mode = mode

    def __enter__(self) -> None:
        """Nothing is switched on."""

    def __exit__(self, *error: Any) -> None:
        """Nothing was switched on."""


detect_anomaly = set_detect_anomaly
