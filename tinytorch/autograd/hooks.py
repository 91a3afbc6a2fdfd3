"""Gradient hooks: functions that `backward` calls with the gradient of one tensor."""

from __future__ import annotations

import weakref
from collections.abc import Callable
from typing import TYPE_CHECKING

from tinytorch.dispatch import active_modes
from tinytorch.errors import AutogradError
from tinytorch.history import structure

if TYPE_CHECKING:
    from tinytorch.tensor import Tensor

Hook = Callable[["Tensor"], "Tensor | None"]


class HookHandle:
    """Removes a hook: `handle.remove()`, or `handle()`. A second time does nothing."""

    def __init__(self, hooks: list[Hook], hook: Hook) -> None:
        self._hooks, self._hook = hooks, hook
        hooks.append(hook)
        structure.count()

    def remove(self) -> None:
        """Take the hook away."""
        if self._hook in self._hooks:
            self._hooks.remove(self._hook)
            structure.count()

    __call__ = remove


def register_hook(self: Tensor, hook: Hook) -> HookHandle:
    """Call `hook(gradient)` when this tensor's gradient is known; what it returns replaces it.

    Returns:
        A handle whose `remove()` removes the hook.

    Raises:
        AutogradError: the tensor does not require a gradient.

    >>> import tinytorch
    >>> x = tinytorch.tensor([1.0], requires_grad=True)
    >>> handle = x.register_hook(lambda gradient: 10 * gradient)
    >>> x.sum().backward()
    >>> x.grad
    tensor([10.])
    """
    if not self.requires_grad:
        raise AutogradError("register_hook: this tensor does not require a gradient")
    for mode in active_modes():
        mode.hook_registered(self)
    holder = self if self.history is None else self.history
    if holder.hooks is None:
        holder.hooks = []
    return HookHandle(holder.hooks, hook)


def retain_grad(self: Tensor) -> None:
    """Keep the gradient of a computed tensor in `.grad`, as leaves do."""
    if self.history is None:
        return
    this = weakref.ref(self)  # the history must not hold its own result

    def keep(g: Tensor) -> None:
        tensor = this()
        if tensor is not None:
            tensor.grad = g.clone() if tensor.grad is None else tensor.grad + g

    register_hook(self, keep)
