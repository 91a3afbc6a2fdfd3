"""Names of `torch.autograd` that gradients of any order make trivial."""

from __future__ import annotations

import functools
import warnings
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
    """Accept the setting without effect, with a warning; `with detect_anomaly():` as well."""

    def __init__(self, mode: bool = True, check_nan: bool = True) -> None:
        self.mode = mode
        if mode:
            warnings.warn(
                "detect_anomaly finds nothing here: no gradient is searched for NaN. To find where "
                "one begins, look by x.register_hook(print) at the gradients of tensors on the way",
                stacklevel=2,
            )

    def __enter__(self) -> None:
        """Nothing is switched on."""

    def __exit__(self, *error: Any) -> None:
        """Nothing was switched on."""


detect_anomaly = set_detect_anomaly
