"""Hooks: functions that a module calls before and after its `forward`."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from tinytorch.nn.module import Module

PreHook = Callable[["Module", tuple[Any, ...]], Any]
ForwardHook = Callable[["Module", tuple[Any, ...], Any], Any]


class RemovableHandle:
    """Removes a hook: by `remove()`, or at the end of a `with`."""

    def __init__(self, hooks: dict[RemovableHandle, Any], hook: Any) -> None:
        self._hooks = hooks
        hooks[self] = hook

    def remove(self) -> None:
        """Take the hook away; a second time does nothing."""
        self._hooks.pop(self, None)

    def __enter__(self) -> RemovableHandle:
        return self

    def __exit__(self, *error: object) -> None:
        self.remove()


class Hooks:
    """The hooks of one module, in the order in which they were registered."""

    def __init__(self) -> None:
        self.before: dict[RemovableHandle, PreHook] = {}
        self.after: dict[RemovableHandle, ForwardHook] = {}

    def call(self, module: Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """`module.forward`, with what the hooks make of its arguments and of its result."""
        for before in list(self.before.values()):
            replaced = before(module, args)
            if replaced is not None:
                args = replaced if isinstance(replaced, tuple) else (replaced,)
        out = module.forward(*args, **kwargs)
        for after in list(self.after.values()):
            replaced = after(module, args, out)
            if replaced is not None:
                out = replaced
        return out
