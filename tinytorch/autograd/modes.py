"""`no_grad` and `enable_grad`: contexts, and decorators too."""

from __future__ import annotations

from contextlib import ContextDecorator
from typing import Any

from tinytorch.state import StateContext, grad_mode, is_grad_enabled


class set_grad_enabled(ContextDecorator):
    """Record history inside the block, or do not."""

    def __init__(self, mode: bool) -> None:
        self.mode = mode
        self._open: list[StateContext] = []

    def _recreate_cm(self) -> set_grad_enabled:
        # a decorated function may run in several threads at once: each call has its own
        return set_grad_enabled(self.mode)

    def __enter__(self) -> None:
        context = grad_mode(self.mode)
        context.__enter__()
        self._open.append(context)

    def __exit__(self, *error: Any) -> None:
        self._open.pop().__exit__(*error)


class no_grad(set_grad_enabled):
    """Do not record history inside the block.

    with tinytorch.no_grad():
        w -= lr * w.grad
    """

    def __new__(cls, function: Any = None) -> Any:
        """A context; or, as `@no_grad` without a call, the function that runs in one."""
        return super().__new__(cls) if function is None else cls()(function)

    def __init__(self, function: Any = None) -> None:
        super().__init__(False)


class inference_mode(set_grad_enabled):
    """`no_grad`, under the name that PyTorch has for it where results are never differentiated."""

    def __new__(cls, mode: Any = True) -> Any:
        """A context; or, as `@inference_mode` without a call, the function that runs in one."""
        return super().__new__(cls) if isinstance(mode, bool) else cls()(mode)

    def __init__(self, mode: bool = True) -> None:
        super().__init__(not mode and is_grad_enabled())


class enable_grad(set_grad_enabled):
    """Record history inside the block, although it is in a `no_grad`."""

    def __init__(self) -> None:
        super().__init__(True)
