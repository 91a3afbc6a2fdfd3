"""Modules that a model exchanges in its forward."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from torch import nn
from torch.nn.modules.module import register_module_module_registration_hook

from tinytorch.fx.capture.slots import CaptureError
from tinytorch.fx.diagnosis.reasons import Line, Reason, calling_line

FIX = "make the module in __init__, or before the capture"


@contextmanager
def modules_unreplaced(model: nn.Module) -> Iterator[None]:
    """Refuse a forward in this block that takes parameters or buffers of a model out of it.

    New modules are accepted, as long as what was there stays. A refused model is as it was before.

    Raises:
        CaptureError: names what is gone, and the line that assigns the module.
    """
    before = [(m, dict(m._modules), dict(m._parameters), dict(m._buffers)) for m in model.modules()]
    known = {id(module) for module, *_ in before}
    names = _state_names(model)
    lines: list[Line | None] = []

    def remember(module: nn.Module, name: str, new: nn.Module | None) -> None:
        if id(module) in known:
            lines.append(calling_line())

    hook = register_module_module_registration_hook(remember)
    try:
        yield
    finally:
        hook.remove()
    gone = names - _state_names(model)
    if not gone:
        return
    for module, modules, parameters, buffers in before:
        for mapping in (module._modules, module._parameters, module._buffers):
            mapping.clear()
        module._modules.update(modules)
        module._parameters.update(parameters)
        module._buffers.update(buffers)
    text = f"the forward replaces modules, and {min(gone)!r} is no longer in the model"
    raise CaptureError.because(Reason(text, FIX, next(iter(lines), None)))


def _state_names(model: nn.Module) -> set[str]:
    named = (*model.named_parameters(), *model.named_buffers())
    return {name for name, _ in named}
