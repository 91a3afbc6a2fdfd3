"""Hooks: functions that a module calls before and after its `forward`, and in backward."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from tinytorch.autograd import Function
from tinytorch.functions.movement import cat, narrow, reshape
from tinytorch.history import structure
from tinytorch.tensor import Tensor

if TYPE_CHECKING:
    from tinytorch.nn.module import Module

Hook = Callable[..., Any]
Gradients = tuple[Tensor | None, ...]


class RemovableHandle:
    """Removes a hook: by `remove()`, or at the end of a `with`."""

    def __init__(self, hooks: dict[RemovableHandle, Any], hook: Any) -> None:
        self._hooks = hooks
        hooks[self] = hook
        structure.count()

    def remove(self) -> None:
        """Take the hook away; a second time does nothing."""
        self._hooks.pop(self, None)
        structure.count()

    def __enter__(self) -> RemovableHandle:
        return self

    def __exit__(self, *error: object) -> None:
        self.remove()


class HookList(dict[RemovableHandle, tuple[Hook, bool]]):
    """Hooks, each with whether it takes keyword arguments, in the order in which they run."""

    def add(self, hook: Hook, prepend: bool = False, with_kwargs: bool = False) -> RemovableHandle:
        """Register a hook, behind the others or before them."""
        others = list(self.items()) if prepend else []
        handle = RemovableHandle(self, (hook, with_kwargs))
        for other, entry in others:
            del self[other]
            self[other] = entry
        return handle


class AttributeHook:
    """A hook before `forward` that sets an attribute of its module to what it computes.

    Attributes:
        name: of the attribute.
        for_traces: what computes it, and does not leave it behind in the module.
    """

    for_traces: str

    def __init__(self, name: str) -> None:
        self.name = name

    def __call__(self, module: Module, args: Any) -> None:
        setattr(module, self.name, self.compute(module))

    def compute(self, module: Module) -> Tensor:
        """The attribute. Override."""
        raise NotImplementedError


class Hooks:
    """The hooks of one module, in the order in which they were registered."""

    def __init__(self) -> None:
        self.before, self.after = HookList(), HookList()
        self.before_backward, self.backward = HookList(), HookList()

    def call(self, module: Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """`module.forward`, with what the hooks make of its arguments and of its result."""
        for before, with_kwargs in list(self.before.values()):
            replaced = before(module, args, kwargs) if with_kwargs else before(module, args)
            if replaced is not None and with_kwargs:
                args, kwargs = replaced
            elif replaced is not None:
                args = replaced if isinstance(replaced, tuple) else (replaced,)
        if self.backward or self.before_backward:
            return self._call_with_gradients(module, args, kwargs)
        return self._forward(module, args, kwargs)

    def _forward(self, module: Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """`forward`, with what the hooks make of its result."""
        out = module.forward(*args, **kwargs)
        for after, with_kwargs in list(self.after.values()):
            given = (args, kwargs) if with_kwargs else (args,)
            replaced = after(module, *given, out)
            if replaced is not None:
                out = replaced
        return out

    def _call_with_gradients(
        self, module: Module, args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> Any:
        """`_forward` between two identities, whose gradients are what the backward hooks see."""
        seen: list[Gradients] = []

        def at_outputs(gradients: Gradients) -> Gradients:
            for hook, _ in list(self.before_backward.values()):
                gradients = _replaced(hook(module, gradients), gradients)
            seen.append(gradients)
            if not any_input:
                at_inputs((None,) * len(args))
            return gradients

        def at_inputs(gradients: Gradients) -> Gradients:
            grad_output = seen.pop()
            for hook, _ in list(self.backward.values()):
                gradients = _replaced(hook(module, gradients, grad_output), gradients)
            return gradients

        any_input = any(isinstance(a, Tensor) and a.requires_grad for a in args)
        out = self._forward(module, _watched(args, at_inputs), kwargs)
        if isinstance(out, Tensor):
            return _watched((out,), at_outputs)[0]
        if not isinstance(out, (tuple, list)):
            return out
        watched = _watched(tuple(out), at_outputs)
        return type(out)(*watched) if "_fields" in dir(out) else type(out)(watched)


def _replaced(new: Any, gradients: Gradients) -> Gradients:
    if new is None:
        return gradients
    return new if isinstance(new, tuple) else (new,)


def _watched(values: tuple[Any, ...], hook: Callable[[Gradients], Gradients]) -> tuple[Any, ...]:
    """The values, through one identity whose backward shows all their gradients to `hook`."""
    positions = [i for i, v in enumerate(values) if isinstance(v, Tensor) and v.requires_grad]
    if not positions:
        return values

    def all_of(gradients: Gradients) -> Gradients:
        full: list[Tensor | None] = [None] * len(values)
        for i, gradient in zip(positions, gradients, strict=True):
            full[i] = gradient
        replaced = hook(tuple(full))
        return tuple(replaced[i] for i in positions)

    packed = _Pack.apply(*(values[i] for i in positions), hook=all_of)
    result, start = list(values), 0
    for i in positions:
        size = values[i].numel()
        result[i] = reshape(narrow(packed, 0, start, size), values[i].shape)
        start += size
    return tuple(result)


class _Pack(Function):
    """All elements of several tensors in one row; its backward asks a hook for the gradients."""

    @staticmethod
    def forward(ctx: Any, *tensors: Tensor, hook: Callable[[Gradients], Gradients]) -> Tensor:
        ctx.hook, ctx.metas = hook, [t.meta for t in tensors]
        return cat([reshape(t, (t.numel(),)) for t in tensors])

    @staticmethod
    def backward(ctx: Any, g: Tensor) -> tuple[Any, ...]:
        parts, start = [], 0
        for meta in ctx.metas:
            parts.append(reshape(narrow(g, 0, start, meta.size), meta.shape))
            start += meta.size
        return ctx.hook(tuple(parts))  # type: ignore[no-any-return]
