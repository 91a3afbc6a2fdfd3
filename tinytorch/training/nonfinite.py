"""Where a NaN or an infinity comes from: the batch, or the first layer that gives one."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from tinytorch.autograd import no_grad
from tinytorch.nn import Module
from tinytorch.tensor import Tensor


def is_finite(value: Any) -> bool:
    """Whether a tensor, or each tensor in a tuple or list, has neither NaN nor infinity."""
    if isinstance(value, tuple | list):
        return all(is_finite(each) for each in value)
    return not isinstance(value, Tensor) or bool(np.isfinite(value.detach().numpy()).all())


def first_nonfinite(model: Module, run: Callable[[], Any]) -> str | None:
    """The name of the first module whose result is not finite when `run()` calls the model.

    A module has its result after the modules in it have theirs, so the first name is that of the
    innermost one. Each module gets a forward hook, `register_forward_hook(hook)`, called as
    `hook(module, args, out)`; the hooks are removed at the end, after an error too. Nothing is
    recorded for gradients.

    Args:
        model: its `named_modules()` have the names, "" for the model itself.
        run: calls the model.

    Returns:
        The name, or None if all results are finite (`is_finite`).

    >>> from tinytorch import nn, tensor
    >>> model = nn.Sequential(nn.Linear(2, 2), nn.Sigmoid())
    >>> first_nonfinite(model, lambda: model(tensor([[1.0, float("inf")]])))
    '0'
    """
    found: list[str] = []

    def watch(name: str) -> Callable[..., None]:
        def hook(module: Module, args: Any, out: Any) -> None:
            if not is_finite(out):
                found.append(name)

        return hook

    handles = [m.register_forward_hook(watch(name)) for name, m in model.named_modules()]
    try:
        with no_grad():
            run()
    finally:
        for handle in handles:
            handle.remove()
    return found[0] if found else None


def blame(model: Module, batch: Any, run: Callable[[], Any]) -> str:
    """The origin of a result that is not finite, as the end of a sentence about it.

    `run()` calls the model with the batch again. Where that shows nothing, "".
    """
    fields = list(batch.values()) if isinstance(batch, dict) else batch
    if not is_finite(fields):
        return ", as the batch itself has NaN or infinity in it,"
    name = first_nonfinite(model, run)
    if name is None:
        return ""
    module = dict(model.named_modules())[name]
    return f", first in the result of {name or 'the model'} ({type(module).__name__}),"
