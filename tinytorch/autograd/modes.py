"""`no_grad` and `enable_grad`: contexts, and decorators too."""

from __future__ import annotations

import functools
from collections.abc import Generator
from contextlib import ContextDecorator
from inspect import isgeneratorfunction
from typing import Any

from tinytorch.state import STATE, UNRECORDED, GradState, StateContext, grad_mode, is_inference


class GradMode(ContextDecorator):
    """Record history inside the block, or do not; None: do not, and let nobody turn it on."""

    def __init__(self, mode: bool | None) -> None:
        self.mode = mode
        self._open: list[StateContext] = []

    def _recreate_cm(self) -> GradMode:
        # a decorated function may run in several threads at once: each call has its own
        return GradMode(self.mode)

    def __call__(self, function: Any) -> Any:
        if not isgeneratorfunction(function):
            return super().__call__(function)

        @functools.wraps(function)
        def steps(*args: Any, **kwargs: Any) -> Generator[Any, Any, Any]:
            generator = function(*args, **kwargs)
            resume, value = generator.send, None
            while True:
                try:
                    with self._recreate_cm():  # and not in what is done between two steps
                        item = resume(value)
                except StopIteration as end:
                    return end.value
                try:
                    resume, value = generator.send, (yield item)
                except BaseException as error:
                    resume, value = generator.throw, error

        return steps

    def __enter__(self) -> None:
        context = grad_mode(self.mode)
        context.__enter__()
        self._open.append(context)

    def __exit__(self, *error: Any) -> None:
        self._open.pop().__exit__(*error)


class _NotInInference(GradMode):
    """As `GradMode`, but without an effect in an `inference_mode`."""

    def __init__(self, mode: bool) -> None:
        super().__init__(mode)
        self.asked = mode

    def _recreate_cm(self) -> _NotInInference:
        return _NotInInference(self.asked)

    def __enter__(self) -> None:
        self.mode = self._mode_here()  # type: ignore[assignment]  # what lessons quote says bool
        super().__enter__()

    def _mode_here(self) -> GradState:
        return UNRECORDED if self.asked and is_inference(STATE.get().grad) else self.asked


class set_grad_enabled(_NotInInference):
    """Record history inside the block, or do not. As a call, from here on.

    What a call sets ends with the block of TinyTorch's that it is in.

    >>> import tinytorch
    >>> with tinytorch.set_grad_enabled(False):
    ...     tinytorch.is_grad_enabled()
    False
    """

    def __init__(self, mode: bool) -> None:
        super().__init__(mode)
        before = STATE.get().grad
        self._before: GradState = False if before is None else before
        STATE.set(grad_mode(self._mode_here()).state)

    def _only_a_context(self) -> None:
        """It is no plain call: undo what that would have set."""
        if self._before is not None:
            STATE.set(grad_mode(self._before).state)
            self._before = None

    def __call__(self, function: Any) -> Any:
        self._only_a_context()
        return super().__call__(function)

    def __enter__(self) -> None:
        self._only_a_context()
        super().__enter__()


class no_grad(GradMode):
    """Do not record history inside the block.

    with tinytorch.no_grad():
        w -= lr * w.grad
    """

    def __new__(cls, function: Any = None) -> Any:
        """A context; or, as `@no_grad` without a call, the function that runs in one."""
        return super().__new__(cls) if function is None else cls()(function)

    def __init__(self, function: Any = None) -> None:
        super().__init__(False)


class inference_mode(GradMode):
    """`no_grad`, and no `enable_grad` inside has an effect. With False: record history again.

    >>> import tinytorch
    >>> x = tinytorch.ones(2, requires_grad=True)
    >>> with tinytorch.inference_mode(), tinytorch.enable_grad():
    ...     (x * 2).requires_grad
    False
    """

    def __new__(cls, mode: Any = True) -> Any:
        """A context; or, as `@inference_mode` without a call, the function that runs in one."""
        return super().__new__(cls) if isinstance(mode, bool) else cls()(mode)

    def __init__(self, mode: bool = True) -> None:
        super().__init__(None if mode else True)


class enable_grad(_NotInInference):
    """Record history inside the block, although it is in a `no_grad` (not in `inference_mode`)."""

    def __init__(self) -> None:
        super().__init__(True)
