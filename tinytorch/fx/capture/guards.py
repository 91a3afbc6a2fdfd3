"""Values that Python asks for, guarded: the graph is of those of the example, and checks them.

A trace has no values, so an `if` on one cannot be followed. What a tracing compiler does then is to
follow the branch that the example takes, and to *guard* it: the graph computes the value that
Python has asked for and stops where it is another one. Nothing is ever computed by the wrong
branch; for the other one a graph of its own is captured (`branches.py`).

1. The function runs once eagerly, and each value that Python asks for is written down, with the
   user's line.
2. While it is traced, the same line gets the same value, and the graph an assertion.

The same for shapes that depend on values: of `x[mask]` the number of True elements is guarded, and
their positions have a fixed shape then (`torch.nonzero_static`).

Source: Gal et al., "Trace-based Just-in-Time Type Specialization for Dynamic Languages", PLDI 2009.
"""

from __future__ import annotations

import functools
from collections import defaultdict, deque
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import Any

import torch
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode

from tinytorch.fx.capture.slots import CaptureError
from tinytorch.fx.diagnosis.reasons import Line, calling_line

MARK = "the graph is guarded"
FAILED = (
    MARK + ": Python asks for a value, which was {value} in the capture, and is another one now, "
    "at {line}\n  fix: capture again, or let tinytorch.fx.capture.branches.Branches do so"
)

#: What is asked of a tensor, as a tensor of the answers: a guard compares these.
ASKED: dict[Any, Callable[..., Tensor]] = {
    Tensor.item: lambda x: x,
    Tensor.__float__: lambda x: x,
    Tensor.__bool__: lambda x: x != 0,
    Tensor.is_nonzero: lambda x: x != 0,
    torch.is_nonzero: lambda x: x != 0,
    Tensor.__int__: lambda x: x.to(torch.int64),
    Tensor.__index__: lambda x: x.to(torch.int64),
    Tensor.__contains__: lambda x, element: (element == x).any(),
    torch.equal: lambda a, b: (a == b).all(),
    Tensor.equal: lambda a, b: (a == b).all(),
    torch.allclose: lambda a, b, **options: torch.isclose(a, b, **options).all(),
    Tensor.allclose: lambda a, b, **options: torch.isclose(a, b, **options).all(),
}  # fmt: skip
POSITIONS = (torch.nonzero, Tensor.nonzero, torch.argwhere, Tensor.argwhere)
SELECTED = (torch.masked_select, Tensor.masked_select)


class GuardError(CaptureError):
    """A graph is of other values than those that it has met."""


@contextmanager
def guard_errors() -> Iterator[None]:
    """Raise what the assertions of a guarded graph say in this block as a GuardError."""
    try:
        yield
    except RuntimeError as error:
        if not str(error).startswith(MARK):
            raise
        raise GuardError(str(error)) from error


@contextmanager
def forward_within(
    model: nn.Module, context: Callable[[], AbstractContextManager[Any]]
) -> Iterator[None]:
    """Run each forward of a model, inside the block, within a context of its own."""
    original, before = model.forward, model.__dict__.get("forward")

    @functools.wraps(original)
    def forward(*args: Any, **kwargs: Any) -> Any:
        with context():
            return original(*args, **kwargs)

    model.forward = forward
    try:
        yield
    finally:
        del model.forward
        if before is not None:
            model.forward = before


class AskedValues:
    """The values that Python has asked for in a run, by the lines that asked, in order."""

    def __init__(self) -> None:
        self._kept: dict[Any, list[Any]] = defaultdict(list)

    @contextmanager
    def recorded(self) -> Iterator[None]:
        """Write down what is asked for in this block, which runs on real tensors."""
        self._kept.clear()
        with _Recorded(self._kept):
            yield

    @contextmanager
    def guarded(self) -> Iterator[None]:
        """Answer in this block, which is traced, with what was written down."""
        with _Guarded({key: deque(values) for key, values in self._kept.items()}):
            yield


class _Asking(TorchFunctionMode):
    """Sees what asks for values: a number or a bool, or the number of True elements of a mask."""

    def answer(self, func: Any, ask: Callable[[], Any], asked: Callable[[], Tensor]) -> Any:
        """The value that Python gets.

        Args:
            ask: asks the tensor.
            asked: of which tensor the answer is the value.
        """
        raise NotImplementedError

    def __torch_function__(
        self, func: Any, types: Any, args: Any = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        kwargs = kwargs or {}
        if func in ASKED:
            ask, asked = (lambda: func(*args, **kwargs)), (lambda: ASKED[func](*args, **kwargs))
            return self.answer(func, ask, asked)
        if func in POSITIONS or (func is torch.where and len(args) == 1 and not kwargs):
            found = self.positions(args[0])
            as_tuple = func is torch.where or kwargs.get("as_tuple", False)
            return found.unbind(1) if as_tuple else found
        if func in SELECTED:
            return args[0][self.in_index(args[1])] if _fits(*args) else func(*args, **kwargs)
        if func is torch.arange:
            return func(*map(self.number, args), **{k: self.number(v) for k, v in kwargs.items()})
        if func is Tensor.__getitem__:
            return func(args[0], self.in_index(args[1]))
        if func is Tensor.__setitem__ and isinstance(args[2], Tensor) and args[2].ndim:
            return func(args[0], self.in_index(args[1]), args[2])
        return func(*args, **kwargs)

    def positions(self, mask: Tensor) -> Tensor:
        """The positions at which a tensor is not 0, [count, dimensions]; the count is a value that
        is asked for."""
        count = torch.count_nonzero(mask)
        size = self.answer(torch.count_nonzero, count.item, lambda: count)
        return torch.nonzero_static(mask, size=size)

    def in_index(self, index: Any) -> Any:
        """An index with the positions of its masks in their place, and numbers as numbers."""
        parts = index if isinstance(index, tuple) else (index,)
        found: list[Any] = []
        for part in parts:
            if isinstance(part, slice):
                found.append(slice(*map(self.number, (part.start, part.stop, part.step))))
            elif _is_mask(part):
                found += self.positions(part).unbind(1)
            else:
                found.append(self.number(part) if _is_number(part) else part)
        return tuple(found) if isinstance(index, tuple) or len(found) != 1 else found[0]

    def number(self, value: Any) -> Any:
        """A tensor without dimensions as the number that Python takes it for; all else as it is."""
        if not isinstance(value, Tensor):
            return value
        func = Tensor.item if value.is_floating_point() else Tensor.__index__
        return self.answer(func, lambda: func(value), lambda: value)


class _Recorded(_Asking):
    def __init__(self, kept: dict[Any, list[Any]]) -> None:
        super().__init__()
        self._kept = kept

    def answer(self, func: Any, ask: Callable[[], Any], asked: Callable[[], Tensor]) -> Any:
        value = ask()
        self._kept[func, calling_line()].append(value)
        return value

    def __torch_function__(
        self, func: Any, types: Any, args: Any = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        if func is Tensor.tolist:  # a fake tensor asks its elements one by one
            self._kept[Tensor.item, calling_line()] += args[0].flatten().tolist()
        return super().__torch_function__(func, types, args, kwargs)


class _Guarded(_Asking):
    def __init__(self, kept: dict[Any, deque[Any]]) -> None:
        super().__init__()
        self._kept = kept

    def answer(self, func: Any, ask: Callable[[], Any], asked: Callable[[], Tensor]) -> Any:
        line = calling_line()
        left = self._kept.get((func, line))
        if not left:
            return ask()  # the eager run took another way: it is refused
        value = left.popleft()
        _guard(asked(), value, line)
        return value


def _guard(tensor: Tensor, value: Any, line: Line | None) -> None:
    """Let a graph stop where a tensor has not this value."""
    tensor = tensor.detach()  # no_grad would be in the graph, and stay on where it stops
    same = tensor == value if value == value else tensor != tensor  # NaN
    torch.ops.aten._assert_async.msg(same, FAILED.format(line=line, value=value))


def _is_mask(part: Any) -> bool:
    return isinstance(part, Tensor) and part.dtype == torch.bool and part.ndim > 0


def _is_number(part: Any) -> bool:
    return isinstance(part, Tensor) and part.dtype != torch.bool and part.ndim == 0


def _fits(x: Tensor, mask: Tensor) -> bool:
    return x.shape == mask.shape and x.ndim > 0
