"""What a model was like when its graphs were made: they refuse to run for another."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import chain
from operator import attrgetter, call, is_
from typing import Any
from weakref import ref

import torch
from torch import Tensor, nn

from tinytorch.errors import TinyTorchError


class OptimizedModuleError(TinyTorchError, RuntimeError):
    """An optimized module that is used as it was not captured."""


KINDS = ("_modules", "_parameters", "_buffers")


class ModelParts:
    """The layers, parameters and buffers that a model had; none is kept for being watched.

    Each call of an optimized module asks for a change. As long as all parts live, equal addresses
    mean the same parts, and are compared without a step of Python for each.
    """

    def __init__(self, model: nn.Module) -> None:
        self._gone: list[Any] = []  # references to what is no longer there
        watched = [m for m in model.modules() if not isinstance(m, torch.jit.ScriptModule)]
        self._parts = [
            (kind, [(self._ref(m), [*map(self._ref, getattr(m, kind).values())]) for m in modules])
            for kind in KINDS
            # what has no layers may get some: an empty nn.Sequential
            if (modules := [m for m in watched if getattr(m, kind) or kind == KINDS[0]])
        ]
        self._owners = [(attrgetter(k), [m for m, _ in found]) for k, found in self._parts]
        self._addresses = self._present_addresses()

    def _ref(self, part: Any) -> Callable[[], Any]:
        return ref(part, self._gone.append) if part is not None else _nothing

    def _present_addresses(self) -> tuple[list[int], list[int]]:
        """How many parts there are of each kind in each module, and the addresses of all."""
        tables = [*chain.from_iterable(map(get, map(call, own)) for get, own in self._owners)]
        parts = chain.from_iterable(map(dict.values, tables))
        return list(map(len, tables)), list(map(id, parts))

    def check(self) -> None:
        """Raise OptimizedModuleError if one of them is another object now."""
        if self._gone or self._present_addresses() != self._addresses:
            for kind, owners in self._parts:
                for reference, parts in owners:
                    if (module := reference()) is not None:
                        _check_parts(module, getattr(module, kind), [part() for part in parts])


def _check_parts(module: nn.Module, now: dict[str, Any], then: list[Any]) -> None:
    """Raise OptimizedModuleError if a module has other parts of a kind."""
    if len(now) == len(then) and all(map(is_, now.values(), then)):
        return
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
