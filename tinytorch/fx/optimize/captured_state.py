"""What a model was like when its graphs were made: they refuse to run for another."""

from __future__ import annotations

from collections.abc import Sequence
from operator import is_
from weakref import ref

from torch import Tensor, nn

from tinytorch.errors import TinyTorchError


class OptimizedModuleError(TinyTorchError, RuntimeError):
    """An optimized module that is used as it was not captured."""


class ModelParts:
    """The layers, parameters and buffers that a model had; none is kept for being watched."""

    def __init__(self, model: nn.Module) -> None:
        self._parts = [
            (ref(module), kind, [ref(x) if x is not None else _nothing for x in parts.values()])
            for module in model.modules()
            for kind in ("_modules", "_parameters", "_buffers")
            if (parts := getattr(module, kind))
        ]

    def check(self) -> None:
        """Raise OptimizedModuleError if one of them is another object now."""
        for reference, kind, parts in self._parts:
            module = reference()
            if module is None:
                continue
            now, then = module.__dict__[kind], [part() for part in parts]
            if len(now) == len(then) and all(map(is_, now.values(), then)):
                continue
            what = "has more or fewer layers, parameters or buffers"
            if len(now) == len(then):
                pairs = zip(now, then, strict=True)
                what = f"has another {next(name for name, old in pairs if now[name] is not old)!r}"
            raise OptimizedModuleError(
                f"a {type(module).__name__} of the model {what} than when this module was made of "
                "it (an assignment, load_state_dict(assign=True), to(dtype), ...), and the graph "
                "would use the old ones: optimize the model again"
            )


def _nothing() -> None:
    """What a reference to a part that is None gives."""


class Modes:
    """Which parts of a model are in training mode."""

    def __init__(self, model: nn.Module) -> None:
        self._modes = [(name, module, module.training) for name, module in model.named_modules()]

    def check(self) -> None:
        """Raise OptimizedModuleError if a part is in the other mode now."""
        for name, module, training in self._modes:
            if module.training is not training:
                now, then = ("training", "evaluation")[:: -1 if training else 1]
                which = f"{name!r} of the model" if name else "the model"
                raise OptimizedModuleError(
                    f"{which} is in {now} mode, and was captured in {then} mode: call train() or "
                    "eval() of the optimized module, which switches all parts, and then of those "
                    "that are to differ; or optimize the model again"
                )


class FrozenState:
    """The weights and buffers that a frozen module was made of, as they were then.

    Args:
        tensors: their versions count the writes.
    """

    def __init__(self, tensors: Sequence[Tensor]) -> None:
        # those of inference mode have no version; no tensor is kept for being watched
        self._versions = [(ref(t), t._version) for t in tensors if not t.is_inference()]

    def check(self) -> None:
        """Raise OptimizedModuleError if one of them was written since."""
        for reference, version in self._versions:
            tensor = reference()
            if tensor is not None and tensor._version != version:
                raise OptimizedModuleError(
                    "the model's weights have changed (an optimizer's step, load_state_dict, ...) "
                    "since this module was frozen with them: optimize the model again"
                )
