"""Hooks of an optimizer: functions that are called before and after each step."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

from tinytorch.nn.hooks import HookList

Step = Callable[..., Any]


class StepHooks:
    """The hooks of one optimizer, in the order in which they run.

    Attributes:
        are_running: a step is under way: one that it calls, of the class above, has no hooks.
    """

    def __init__(self) -> None:
        self.before, self.after = HookList(), HookList()
        self.are_running = False

    def call(self, step: Step, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """`step(*args, **kwargs)`, with what the hooks make of the arguments.

        Raises:
            TypeError: a hook returns something else than both of them.
        """
        optimizer = args[0]
        self.are_running = True
        try:
            for hook, _ in list(self.before.values()):
                replaced = hook(optimizer, args, kwargs)
                if replaced is not None:
                    if not isinstance(replaced, tuple) or len(replaced) != 2:
                        raise TypeError(
                            f"a hook before a step returns None or (args, kwargs), not {replaced!r}"
                        )
                    args, kwargs = replaced
            result = step(*args, **kwargs)
            for hook, _ in list(self.after.values()):
                hook(optimizer, args, kwargs)
            return result
        finally:
            self.are_running = False


def with_hooks(step: Step) -> Step:
    """The method `step` of an optimizer, which calls its hooks."""

    @functools.wraps(step)
    def hooked(self: Any, *args: Any, **kwargs: Any) -> Any:
        hooks: StepHooks | None = self._step_hooks
        if hooks is None or hooks.are_running:
            return step(self, *args, **kwargs)
        return hooks.call(step, (self, *args), kwargs)

    return hooked
