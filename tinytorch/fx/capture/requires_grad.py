"""Which parameters require gradients: a captured step trains those that did, and no others."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any
from weakref import ref

from torch import nn

from tinytorch.fx.capture.slots import CaptureError

CHANGES = {
    True: (
        "parameter {!r} was trained in the capture, and is frozen now: capture the step again, or "
        "let it require gradients as before, requires_grad_()"
    ),
    False: (
        "parameter {!r} was frozen in the capture, and requires a gradient now: capture the step "
        "again, or freeze it as before, requires_grad_(False)"
    ),
}


class RequiresGrad:
    """Which parameters of a model required gradients in a capture.

    A copy of it, and one that is loaded, watches no model until `watch` is called.

    Args:
        names: those whose change would matter; None: all.
    """

    def __init__(self, model: nn.Module, names: Collection[str] | None = None) -> None:
        self._captured = {
            name: p.requires_grad for name, p in model.named_parameters()
            if names is None or name in names
        }  # fmt: skip
        self.watch(model)

    def watch(self, model: nn.Module) -> None:
        """Check this model from now on, instead of the one before; none is kept for that."""
        self._watched = [
            (ref(p), self._captured[name], name) for name, p in model.named_parameters()
            if name in self._captured
        ]  # fmt: skip

    def check(self) -> None:
        """Check the model that is watched.

        Raises:
            CaptureError: a parameter requires a gradient and did not, or the other way round.
        """
        for reference, was, name in self._watched:
            parameter = reference()
            if parameter is not None and parameter.requires_grad is not was:
                raise CaptureError(CHANGES[was].format(name))

    def __getstate__(self) -> dict[str, Any]:
        return {"_captured": self._captured, "_watched": []}
