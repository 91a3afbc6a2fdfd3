"""Gradient hooks: functions that `backward` calls with the gradient of one tensor."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING

from tinytorch.dispatch import active_modes
from tinytorch.errors import AutogradError
from tinytorch.history import KeepGradient, keeps_gradient, structure

if TYPE_CHECKING:
    from tinytorch.tensor import Tensor

Hook = Callable[["Tensor"], "Tensor | None"]


class HookHandle:
    """Removes a hook: `handle.remove()`, or `handle()`. A second time does nothing."""

    def __init__(self, hooks: list[Hook], hook: Hook) -> None:
        if hook in hooks:
            hook = partial(hook)  # each handle removes its own
        self._hooks, self._hook = hooks, hook
        # what keeps the gradient stays last: it keeps what the others made of it
        hooks.insert(len(hooks) - keeps_gradient(hooks), hook)
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
    """Keep the gradient of a computed tensor in `.grad`, as leaves do, after all hooks.

    Raises:
        AutogradError: the tensor does not require a gradient.
    """
    if not self.requires_grad:
        raise AutogradError("retain_grad: this tensor does not require a gradient")
    record = self.history
    if record is not None and not keeps_gradient(record.hooks):
        register_hook(self, KeepGradient(self))
