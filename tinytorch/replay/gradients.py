"""What a function does with its tensors, and the second program, of its gradients.

A record of a program's result has a row of its own: `op` of `Gradients`. So has that of one result
among several that alone has a gradient, such as the values of `max`. Several results that are
recorded share one record, `Several` says how: each has a record of a part, whose source is the
shared one, and whose gradient is a `_Parts` with one gradient in it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from operator import itemgetter
from typing import Any, NamedTuple

from tinytorch import dtype_rules, history, ops, shapes
from tinytorch.backends.base import ComputeBackend
from tinytorch.dispatch import apply, is_tensor, wrap
from tinytorch.dtypes import TensorMeta
from tinytorch.history import Record
from tinytorch.op import Op
from tinytorch.replay.calls import Call
from tinytorch.replay.fusion import is_light
from tinytorch.replay.program import compile_trace
from tinytorch.replay.trace import NotReplayable, Step, Trace, Tracing
from tinytorch.state import STATE, State, StateContext, is_recording

Tensor = Any

_new: Any = object.__new__


class Traced:
    """A call under a trace.

    Attributes:
        inputs, outs: tensors without values.
        kept: slots that gradients may read: see `trace.keep`. None is in the memory of a result,
            which may be written in place.
        make: what makes the function's result of several tensors; None if it returns one, and
            nothing is kept for a gradient.
    """

    def __init__(
        self, call: Call, given: Sequence[Tensor], backend: ComputeBackend, must_be_light: bool
    ) -> None:
        self.call, self.given, self.backend = call, given, backend
        self.must_be_light = must_be_light
        self.name = call.function.__name__
        self.trace = trace = Trace()
        self.inputs = [trace.input(t.meta, t._requires_grad) for t in given]
        with self.tracing():
            out: Any = call(self.inputs)
        self.make: Any = None
        if is_tensor(out):
            self.outs = [out]
            if trace.kept and out._requires_grad:
                self.make = itemgetter(0)
        elif isinstance(out, (tuple, list)) and out and all(map(is_tensor, out)):
            self.outs, self.make = list(out), getattr(type(out), "_make", type(out))
        else:
            raise NotReplayable(f"{self.name} returns no tensor")
        if len({*map(id, self.outs), *map(id, self.inputs)}) < len(self.outs) + len(self.inputs):
            raise NotReplayable(f"{self.name} returns an argument, or a tensor twice")
        if any(t._requires_grad and t.history is None for t in self.outs):
            raise NotReplayable(f"{self.name} returns a leaf that requires a gradient")
        self.slots, self.results = self.indices(self.inputs), self.indices(self.outs)
        roots = {trace.root(n) for n in self.results}
        self.kept = [n for n in self.indices(trace.kept) if trace.root(n) not in roots]
        self.guards = tuple(trace.guards)

    def tracing(self) -> Any:
        """A context in which ops are traced."""
        return Tracing(self.trace, self.backend)

    def indices(self, tensors: Iterable[Tensor]) -> list[int]:
        """The slots of tensors."""
        return [self.trace.slot_of(t).index for t in tensors]

    def run(self, kept: Iterable[int] = ()) -> Callable[..., Any]:
        """The program of the function; it also returns these slots."""
        found = [*self.results, *kept]
        return compile_trace(self.trace, self.slots, found, self.guards, self.backend)

    def views(self) -> list[bool]:
        """For each result whether it is a view of an input."""
        return [self.trace.root(n) in self.slots for n in self.results]


class GradientRun(NamedTuple):
    """A program of gradients.

    Attributes:
        run: takes the gradients of the results, the inputs that are saved, and the arrays of the
            results that are given and of what is kept. None if there is no gradient.
        metas: of the gradients; None for an input without one.
        reads: for each input, then for each result that is given, whether its memory is read.
            What is saved beyond that is for gradients that run the function again.
    """

    run: Any
    metas: list[TensorMeta | None]
    reads: tuple[bool, ...]


class Gradients:
    """The programs of the gradients of a function, one for each set of results that have one.

    Args:
        traced: the function; its results may have been compiled.
        present: positions of the results that a gradient may come from.

    Attributes:
        saved: for each input, whether gradients read it, or what is computed from it: a gradient
            that runs the function again reads all of these, a program often less.
        given: positions of the results that they read.
        kept: positions of what is kept that they read.
        is_several: the results are several tensors.

    Raises:
        NotReplayable: they depend on values.
    """

    def __init__(self, traced: Traced, present: tuple[int, ...]) -> None:
        self.call, self.backend, self.name = traced.call, traced.backend, traced.name
        self._present = present
        self.is_several = traced.make is not None
        self.metas = tuple([t.meta for t in traced.inputs])
        self.requires_grad = [t._requires_grad for t in traced.inputs]
        self.outs = [t.meta for t in traced.outs]
        self.views = traced.views()
        first = traced.slots[0]
        self.is_view = all(traced.trace.root(n) == first for n in traced.results)
        if traced.make is None and self.views[0] and not self.is_view:
            raise NotReplayable(f"{self.name} returns a view of its second argument")
        back = _Backward(traced, present)
        found = back.found()
        # without what is kept: a gradient that can be differentiated runs the function again
        again = {n for step in traced.trace.needed(found) for n in step.reads}
        self.saved = tuple([n in again for n in traced.slots])
        read = {n for step in traced.trace.needed(found, traced.kept) for n in step.reads}
        self.given = [
            i
            for i, (n, meta) in enumerate(zip(traced.results, self.outs, strict=True))
            if n in back.reads()
            and traced.trace.is_computed(n)
            and (traced.make is None or not meta.dtype.is_floating_point)
        ]
        self.kept = [i for i, n in enumerate(traced.kept) if n in read]
        self._runs = {present: back.run(self)}

    def run(self, present: tuple[int, ...]) -> GradientRun:
        """The program for gradients of these results."""
        found = self._runs.get(present)
        if found is None:
            given = [wrap(None, meta) for meta in self.metas]
            for tensor, needs in zip(given, self.requires_grad, strict=True):
                tensor._requires_grad = needs
            with StateContext(State(None, None, self.backend, True, STATE.get().phase)):
                traced = Traced(self.call, given, self.backend, False)
            try:
                found = self._runs[present] = _Backward(traced, present).run(self)
            finally:
                traced.trace.clear()
        return found

    def of(self, present: tuple[int, ...], gs: Sequence[Tensor], record: Record) -> list[Any]:
        """The gradients of the inputs, where those of the results are `gs`."""
        inputs = record.inputs
        assert inputs is not None
        count = len(self.metas)
        run, metas, _ = self.run(present)
        if _runs_again():
            return _by_ops(self.call, record.metas, inputs[:count], present, gs, metas)
        if run is None:
            return [None] * count
        saved = [t for t in inputs[:count] if t is not None]
        if record.output is None:
            results = [t._data if is_tensor(t) else t for t in inputs[count:]]
        else:
            results = [record.output]
        arrays = run(*gs, *saved, *results)
        if type(arrays) is not tuple:
            arrays = (arrays,)
        parts = iter(arrays)
        return [None if meta is None else wrap(next(parts), meta) for meta in metas]

    def read(self, g: Any, record: Record) -> list[Any]:
        """What a backward from here, with the gradient `g`, reads of the inputs of a record."""
        inputs = record.inputs
        assert inputs is not None
        if _runs_again():
            return [*inputs]
        reads = self.run(self._order(g)).reads
        return [t for t, is_read in zip(inputs, reads, strict=False) if is_read]

    def op(self) -> Op:
        """The row of a record: of the only result, or of what several share."""
        return _row(self.name, len(self.metas), self._shared, self.is_view)

    def _shared(self, g: Any, record: Record, output: Any, position: int) -> list[Any]:
        """The formula of such a row, whose result serves all inputs."""
        order = self._order(g)
        return self.of(order, [g[i] for i in order] if type(g) is _Parts else [g], record)

    def _order(self, g: Any) -> tuple[int, ...]:
        """The positions of the results that have the gradient `g`."""
        return tuple(sorted(g)) if type(g) is _Parts else self._present

    @staticmethod
    def behind(op: Op) -> Gradients | None:
        """Those that the row of a record stands for."""
        gradients = getattr(op.shared_vjp, "__self__", None)
        return gradients if type(gradients) is Gradients else None


class _Backward:
    """The gradients of some results in a trace."""

    def __init__(self, traced: Traced, present: tuple[int, ...]) -> None:
        self.traced, self.present = traced, present
        trace = traced.trace
        outs = [traced.outs[i] for i in present]
        self.gs = [trace.input(t.meta, False) for t in outs]
        leaves = [t for t in traced.inputs if t._requires_grad]
        self._first = self.gs[0]._data.index
        guards = tuple(trace.guards)
        with traced.tracing():
            found = iter(history.grad(outs, leaves, self.gs, allow_unused=True))
        if not set(guards).issuperset(trace.guards):
            raise NotReplayable(f"the gradient of {traced.name} depends on values")
        self.gradients = [next(found) if t._requires_grad else None for t in traced.inputs]
        if traced.must_be_light and not is_light(self._run_again(), traced.backend.fusible):
            raise NotReplayable("on large arrays the gradient, by ops run again, costs too much")

    def _run_again(self) -> list[Step]:
        """The steps of the function that the gradients run once more."""
        given = self.traced.results if self.traced.make is None else ()
        steps = self.traced.trace.needed(self.found(), [*given, *self.traced.kept])
        return [step for step in steps if step.out < self._first]

    def found(self) -> list[int]:
        """The slots of the gradients."""
        return self.traced.indices(t for t in self.gradients if t is not None)

    def reads(self) -> set[int]:
        """The slots that steps of the gradients read, and those that these are views of."""
        trace = self.traced.trace
        steps = trace.needed(self.found())
        read = {n for step in steps if step.out > self._first for n in step.reads}
        return read.union(*(trace.viewed(n) for n in read))

    def run(self, of: Gradients) -> GradientRun:
        """See `Gradients.run`."""
        traced, trace, found = self.traced, self.traced.trace, self.found()
        metas = [
            meta if g is not None else None
            for g, meta in zip(self.gradients, of.metas, strict=True)
        ]
        results = [traced.results[i] for i in of.given]
        given = [*results, *(traced.kept[i] for i in of.kept)]
        # by the owner of the memory: what is kept may be a view of an input
        read = {trace.root(n) for step in trace.needed(found, given) for n in step.reads}
        read.update(map(trace.root, found))
        reads = tuple([trace.root(n) in read for n in (*traced.slots, *results)])
        if not found:
            return GradientRun(None, metas, reads)
        used = [n for n, s in zip(traced.slots, of.saved, strict=True) if s]
        inputs = [*traced.indices(self.gs), *used]
        run = compile_trace(trace, inputs, found, (), traced.backend, given)
        return GradientRun(run, metas, reads)


def _runs_again() -> bool:
    """Whether gradients are by ops now, for which the function runs once more."""
    return is_recording() or STATE.get().mode is not None


def _by_ops(
    call: Call,
    given: Sequence[TensorMeta],
    inputs: Sequence[Tensor | None],
    present: tuple[int, ...],
    gs: Sequence[Tensor],
    metas: Sequence[TensorMeta | None],
) -> list[Tensor | None]:
    """The gradients by ops, which modes see and which can be differentiated again.

    The function runs once more, on what was saved. What was not saved no gradient depends on:
    zeros take its place.
    """
    recording = is_recording()
    old = STATE.get()
    with StateContext(State(old.mode, old.below, old.backend, True, old.phase)):
        tensors = []
        for saved, meta, wanted in zip(inputs, given, metas, strict=True):
            x = saved
            if x is None:
                x = apply(ops.full, shape=meta.shape, value=meta.dtype.zero, dtype=meta.dtype)
            if wanted is not None:
                x._requires_grad = x._requires_grad or saved is None
                # an identity, so that its gradient is not that of what it was computed from
                x = apply(ops.reshape, x, shape=meta.shape)
            tensors.append(x)
        out = call(tensors)
    outs = [out] if is_tensor(out) else [out[i] for i in present]
    leaves = [t for t, wanted in zip(tensors, metas, strict=True) if wanted is not None]
    found = iter(history.grad(outs, leaves, gs, create_graph=recording, allow_unused=True))
    return [None if wanted is None else next(found) for wanted in metas]


# -- several results -------------------------------------------------------------------------------


class _Parts(dict[int, Any]):
    """The gradients of some of several results, by their positions."""

    def __add__(self, other: _Parts) -> _Parts:
        self.update(other)  # nobody else has it: a copy for each of n parts would take n^2 steps
        return self


class Several:
    """What calls run whose result is several tensors.

    Args:
        run: takes the tensors among the arguments, gives the arrays of the results, and behind them
            those that are kept.
        metas: of the results.
        make: the tuple, or what the function returns, from an iterable.
        gradients: of those that are recorded; None if none is.
    """

    __slots__ = ("_gradients", "_make", "_metas", "_only", "_op", "_parts", "_unsaved", "run")

    def __init__(
        self,
        run: Any,
        metas: tuple[TensorMeta, ...],
        make: Any,
        gradients: Gradients | None = None,
        present: tuple[int, ...] = (),
    ) -> None:
        self.run, self._metas, self._make, self._gradients = run, metas, make, gradients
        if gradients is not None:
            self._op = gradients.op()
            nothing = not (any(gradients.saved) or gradients.given or gradients.kept)
            computed = len(present) == 1 and not gradients.views[present[0]]
            self._only = present[0] if computed else None
            self._unsaved = (None,) * len(gradients.metas) if nothing else ()
            self._parts = [
                (i, _row(gradients.name, 1, _part_of_several, gradients.views[i]), {"index": i})
                for i in present
            ]

    def wrap(self, arrays: Any, tensors: Sequence[Tensor]) -> Any:
        """The results as the function returns them, with their records."""
        if type(arrays) is not tuple:
            arrays = (arrays,)
        outs = [*map(wrap, arrays, self._metas)]
        gradients = self._gradients
        if gradients is not None:
            edges = tuple([t.history or (t if t._requires_grad else None) for t in tensors])
            inputs = self._unsaved or self._saved(gradients, arrays, tensors)
            if self._only is not None:
                out = outs[self._only]
                out._requires_grad = True
                out.history = Record(self._op, {}, edges, inputs, gradients.metas, out.meta)
                return self._make(outs)
            shared = Record(self._op, {}, edges, inputs, gradients.metas, outs[0].meta)
            source, now = (shared,), shared.clock
            for i, op, params in self._parts:
                out = outs[i]
                out._requires_grad = True
                out.history = record = _new(Record)  # by `Record()` it takes as long as a view
                record.op = op
                record.params = params
                record.edges = source
                record.inputs = ()
                record.metas = (out.meta,)
                record.meta = out.meta
                record.output = None
                record.clock = now
                record.hooks = None
        return self._make(outs)

    def _saved(self, gradients: Gradients, arrays: Any, tensors: Sequence[Tensor]) -> Any:
        """What the gradients read, for the shared record."""
        inputs: list[Any] = [
            t if s else None for t, s in zip(tensors, gradients.saved, strict=True)
        ]
        inputs += [wrap(arrays[i], self._metas[i]) for i in gradients.given]
        return (*inputs, *arrays[len(self._metas) :])  # what is kept: nobody else has it


def _part_of_several(g: Tensor, record: Record, output: Any, position: int) -> list[_Parts]:
    return [_Parts({record.params["index"]: g})]


def is_part(op: Op) -> bool:
    """Whether a row is that of one of several results."""
    return op.vjps is not None and op.vjps[0] is _part and op.shared_vjp is _part_of_several


def _row(name: str, inputs: int, gradients: Any, is_view: bool) -> Op:
    """A row for a record whose gradients `gradients` computes, a list of one for each input."""
    op = Op(name, " ".join(f"x{i}" for i in range(inputs)), "replayed",
            shapes.broadcast, dtype_rules.numeric, lambda *_: 0, view=is_view)  # fmt: skip
    op.shared_vjp = gradients
    op.vjps = tuple(_part for _ in range(inputs))
    return op


def _part(gradients: list[Any], record: Record, output: Any, position: int) -> Any:
    return gradients[position]
