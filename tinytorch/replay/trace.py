"""`Trace`: a mode that writes down the ops of a function, and the conditions that it relies on."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterable
from itertools import count
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from tinytorch.backends.base import ComputeBackend
from tinytorch.dispatch import Input, Mode, active_modes, wrap
from tinytorch.dtypes import Array, TensorMeta
from tinytorch.errors import TinyTorchError
from tinytorch.op import Op, Params, Plan
from tinytorch.state import STATE, State, StateContext
from tinytorch.tensor_class import SCALAR_TYPES

if TYPE_CHECKING:
    from tinytorch.tensor import Tensor


class NotReplayable(TinyTorchError):
    """A trace of the function would not hold for its next call."""


def holds(tensor: Tensor, condition: Callable[..., Any], *args: Any, traced: bool) -> bool:
    """Whether `condition(array, *args)` is true of the values of a tensor.

    A program is made for calls in which it is: it asks again at each call (a *guard*), and where it
    is not true the function itself runs.

    Args:
        traced: the answer in any other trace, where there are no values. Of a tensor that has some
            now, and others at the next call, only False is the answer: the way for all values.
    """
    data = tensor._data
    if isinstance(data, np.ndarray):
        if not traced and any(mode.may_change(tensor) for mode in active_modes()):
            return False
        return bool(condition(data, *args))
    if type(data) is not Slot:
        return traced
    data.trace.guards.append(Guard(data.index, condition, args))
    return True


class IfReplayable:
    """A block that makes a program of `name`, or finds that there is none: then its ops run alone.

    An error of any other kind is told of: the results are right without a program, but slower. It
    is a class, as the frame of a generator that swallows an error refers to it, from Python 3.12
    on, and only the collector would free the tensors that both know.
    """

    def __init__(self, name: str) -> None:
        self.name = name

    def __enter__(self) -> None:
        pass

    def __exit__(self, kind: type | None, error: BaseException | None, trace: Any) -> bool:
        if isinstance(error, Exception) and not isinstance(error, NotReplayable):
            warnings.warn(
                f"{self.name} runs op by op, more slowly than it could, as no program could be "
                f"made of it: {type(error).__name__}: {error}",
                RuntimeWarning,
                stacklevel=2,
            )
        return isinstance(error, Exception)


def must_run(why: str) -> None:
    """Have the function run itself at each call: no program is made of a trace that comes here."""
    if isinstance(STATE.get().mode, Trace):
        raise NotReplayable(why)


def keep(tensor: Tensor) -> Tensor:
    """The tensor, which the gradient of a replayed function reads, and shall not compute again.

    What is not kept is: to run an elementwise op twice takes less than to write its result.
    """
    if type(tensor._data) is Slot:
        tensor._data.trace.kept.append(tensor)
    return tensor


class Guard(NamedTuple):
    """A condition that the values of a slot meet."""

    slot: int
    condition: Callable[..., Any]
    args: tuple[Any, ...]


class Slot:
    """Takes the place of an array in a trace: an input of the program, or what a step computes."""

    __slots__ = ("index", "trace")
    base = None  # for the write clock: it views nothing

    def __init__(self, trace: Trace) -> None:
        self.index = next(trace.slots)
        self.trace = trace

    def concrete(self, asked: str) -> Any:
        """Raise NotReplayable: the values are other ones at each call."""
        raise NotReplayable(f"{asked} needs values")


class Step:
    """One op of a trace. Its arguments are slots and numbers; its result has the index `out`."""

    __slots__ = ("args", "out", "params", "plan")

    def __init__(self, plan: Plan, args: tuple[Any, ...], params: Params, out: int) -> None:
        self.plan, self.args, self.params, self.out = plan, args, params, out

    @property
    def reads(self) -> list[int]:
        """The indices of the slots among the arguments."""
        return [a.index for a in self.args if type(a) is Slot]


class Trace(Mode):
    """Writes down the ops of a block, and answers each with a slot."""

    fused = True

    def __init__(self) -> None:
        self.steps: dict[int, Step] = {}  # by the index of what they compute
        self.constants: dict[int, Array] = {}
        self.slots = count()
        self.guards: list[Guard] = []
        self.kept: list[Tensor] = []

    def input(self, meta: TensorMeta, requires_grad: bool) -> Tensor:
        """A new tensor without values."""
        tensor = wrap(Slot(self), meta)
        tensor._requires_grad = requires_grad
        return tensor

    def run(self, op: Op, inputs: tuple[Input, ...], params: Params, plan: Plan) -> Any:
        args = tuple([x if type(x) in SCALAR_TYPES else self.slot_of(x) for x in inputs])
        out = Slot(self)
        self.steps[out.index] = Step(plan, args, dict(params), out.index)
        return out

    def slot_of(self, x: Tensor) -> Slot:
        """The slot of a tensor; one with values the function has made, and are constants."""
        if type(x._data) is Slot:
            return x._data
        slot = Slot(self)
        self.constants[slot.index] = x._data
        return slot

    def write(self, target: Tensor, data: Any) -> None:
        raise NotReplayable("a tensor is written in place")

    def _refuse(self, *_: Any) -> Any:
        raise NotReplayable("the function does more than apply ops")

    seed = scalar = contiguous = is_private = values_asked = hook_registered = seeded = _refuse  # type: ignore[assignment]

    def clear(self) -> None:
        """Let go of the steps: their slots refer to the trace."""
        self.steps.clear()
        self.guards.clear()
        self.kept.clear()

    def needed(self, outputs: Iterable[int], given: Iterable[int] = ()) -> list[Step]:
        """The steps that lead to these slots, in their order, from those that are given."""
        wanted, known = set(outputs), set(given)
        for index in sorted(self.steps, reverse=True):
            if index in wanted and index not in known:
                wanted.update(self.steps[index].reads)
        return [s for index, s in self.steps.items() if index in wanted and index not in known]

    def root(self, index: int) -> int:
        """The slot whose memory this one views; itself, if it is no view."""
        return [index, *self.viewed(index)][-1]

    def viewed(self, index: int) -> list[int]:
        """The slots that this one views, one through the other; none, if it is no view."""
        found = []
        while index in self.steps and self.steps[index].plan.op.view:
            index = self.steps[index].reads[0]
            found.append(index)
        return found

    def is_computed(self, index: int) -> bool:
        """Whether a slot is computed anew at each call: no input, and no constant."""
        root = self.root(index)
        return root in self.steps and bool(self.steps[root].args)


class Tracing:
    """A context in which a trace writes down the ops, as on a backend and outside of all modes."""

    def __init__(self, trace: Trace, backend: ComputeBackend) -> None:
        old = STATE.get()
        self._state = StateContext(State(None, None, backend, old.grad, old.phase))
        self._trace = trace

    def __enter__(self) -> None:
        self._state.__enter__()
        self._trace.__enter__()

    def __exit__(self, *error: Any) -> None:
        self._trace.__exit__(*error)
        self._state.__exit__(*error)
