"""The gradient of an op as a program, where the same step of a backward is taken again and again.

`g * (1.0 - out * out)` is three ops, each through dispatch. Once a step with operands like these
was frequent, `engine._step` runs under a trace, and from then on a program calls the kernels alone;
a run of elementwise ops is one loop. The results are the same, bit for bit.

That is for formulas of the package and for ordinary backwards: a formula of a user, a mode, and
gradients that will be differentiated again take the step as it is written.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tinytorch import backends, tensor_class
from tinytorch.backends.base import ComputeBackend
from tinytorch.dispatch import is_tensor, wrap
from tinytorch.dtypes import TensorMeta
from tinytorch.history import Record
from tinytorch.op import Params
from tinytorch.replay.function import next_count
from tinytorch.replay.program import compile_trace
from tinytorch.replay.trace import IfReplayable, NotReplayable, Trace, Tracing
from tinytorch.state import STATE

Tensor = Any
Source = Any  # see engine.py
Step = Callable[[Record, Tensor, dict[Source, Tensor]], None]


class StepProgram:
    """What a step runs.

    Attributes:
        run: takes g, the saved inputs and the saved output; gives the arrays of new gradients.
        results: for each edge the position among those arrays; -1 for g itself.
        metas: of the arrays.
    """

    __slots__ = ("metas", "results", "run")

    def __init__(
        self, run: Any, results: tuple[int | None, ...], metas: tuple[TensorMeta, ...]
    ) -> None:
        self.run, self.results, self.metas = run, results, metas


def backend_with_programs(create_graph: bool) -> ComputeBackend | None:
    """The backend of a backward whose steps may be programs; None if they may not."""
    state = STATE.get()
    if create_graph or state.mode is not None:
        return None
    backend = state.backend or backends.current or backends.default()
    return backend if backend.programs is not None else None


def run_program(
    backend: ComputeBackend,
    record: Record,
    g: Tensor,
    pending: dict[Source, Tensor],
    relevant: set[Source] | None,
    step: Step,
) -> bool:
    """Take a step by its program; False if there is none, and nothing was done.

    Args:
        record, g, pending, relevant: see `engine._step`.
        step: `engine._step` with what it needs.
    """
    formulas, edges, inputs = record.op.formulas, record.edges, record.inputs
    if formulas is None or g.meta is not record.meta or inputs is None:
        return False
    which = first_edges(edges, relevant)
    if len(set(which)) < len(which) and repeats(which) and not pending.keys().isdisjoint(edges):
        return False  # the gradients of one source are added up one after the other
    programs = backend.programs
    assert programs is not None
    key = program_key(record, which)
    if relevant is not None and None in which:
        # what is saved is for these gradients as well
        others = [i for i, e in enumerate(edges) if e is not None and which[i] is None]
        key = (*key, "besides", *others) if others else key
    try:
        program = programs.get(key)
    except TypeError:  # a parameter that has no hash
        return False
    if type(program) is not StepProgram:
        if program is not False:
            _count(backend, key, program or 0, record, g, which, step)
        return False
    arrays: Any = ()
    if program.run is not None:
        saved = [t for t in inputs if t is not None and type(t) not in tensor_class.SCALAR_TYPES]
        if record.output is None:
            arrays = program.run(g, *saved)
        else:
            arrays = program.run(g, *saved, record.output)
        if arrays is None:
            return False
        if type(arrays) is not tuple:
            arrays = (arrays,)
    for edge, place in zip(edges, program.results, strict=True):
        if place is None:
            continue
        gradient = g if place < 0 else wrap(arrays[place], program.metas[place])
        before = pending.get(edge)
        pending[edge] = gradient if before is None else before + gradient
    return True


def program_key(record: Record, which: tuple[int | None, ...]) -> tuple[Any, ...]:
    """What the program of a step is known by, which need not have a hash: nor do parameters."""
    key = (record.op.formulas, record.metas, record.meta, which)
    if record.params:
        key = (*key, *params_key(record.params))
    return (*key, *numbers_of(record)) if has_numbers(record) else key


def params_key(params: Params) -> tuple[Any, ...]:
    """Parameters, as part of a key."""
    key = (*params.items(), *map(type, params.values()))  # 1 is not True
    return (*key, repr(params)) if any(map(_has_floats, params.values())) else key  # nor 0.0 -0.0


def has_numbers(record: Record) -> bool:
    """Whether one of the inputs is a number."""
    return float in record.metas or int in record.metas or bool in record.metas


def numbers_of(record: Record) -> list[str | None]:
    """The numbers among the inputs, as text: 0.0 is not -0.0."""
    return [None if is_tensor(x) else repr(x) for x in record.inputs or ()]


def first_edges(edges: tuple[Source, ...], relevant: set[Source] | None) -> tuple[int | None, ...]:
    """For each edge the first one to the same source; None where no gradient is wanted."""
    if len(edges) == 1:
        return _ONLY
    if len(edges) == 2:
        a, b = edges
        has_a = a is not None and (relevant is None or a in relevant)
        has_b = b is not None and (relevant is None or b in relevant)
        if has_a and has_b:
            return (0, 0) if a is b else (0, 1)
        return (0 if has_a else None, 1 if has_b else None)
    if len(edges) == 3 and relevant is None:
        a, b, c = edges
        if a is not b and b is not c and a is not c:
            return (None if a is None else 0, None if b is None else 1, None if c is None else 2)
    first: dict[int, int] = {}  # by identity: tensors are equal element by element
    return tuple(
        [
            None if e is None or (relevant is not None and e not in relevant)
            else first.setdefault(id(e), i)
            for i, e in enumerate(edges)
        ]
    )  # fmt: skip


_ONLY = (0,)


def repeats(which: tuple[int | None, ...]) -> bool:
    """Whether two of these edges are to one source."""
    found = [w for w in which if w is not None]
    return len(set(found)) < len(found)


def _has_floats(value: Any) -> bool:
    return type(value) is float or (type(value) is tuple and any(map(_has_floats, value)))


def _count(
    backend: ComputeBackend,
    key: Any,
    calls: int,
    record: Record,
    g: Tensor,
    which: tuple[int | None, ...],
    step: Step,
) -> None:
    """Count a step, and make its program where there were enough of them."""
    programs = backend.programs
    assert programs is not None
    if not next_count(programs, key, calls, g.meta.nbytes):
        programs[key] = False  # while it is made, and where it cannot be
        trace = Trace()
        with IfReplayable(f"the gradient of {record.op.name}"):
            programs[key] = _made(trace, backend, record, g, which, step)
        trace.clear()


def _made(
    trace: Trace,
    backend: ComputeBackend,
    record: Record,
    g: Tensor,
    which: tuple[int | None, ...],
    step: Step,
) -> StepProgram:
    sources = {w: object() for w in which}
    tokens = [None if w is None else sources[w] for w in which]
    given = trace.input(g.meta, False)
    inputs = [trace.input(t.meta, False) if is_tensor(t) else t for t in record.inputs or ()]
    output = None if record.output is None else trace.input(record.meta, False)._data
    copy = Record(
        record.op, record.params, tuple(tokens), tuple(inputs), record.metas, record.meta, output
    )
    found: dict[Any, Any] = {}
    with Tracing(trace, backend):
        step(copy, given, found)
        gradients = [found.pop(t, None) for t in tokens]  # of several edges the first
    first = given._data.index
    slots = [t._data.index for t in inputs if is_tensor(t)]
    last = [output.index] if output is not None else []
    results: list[int | None] = []
    outs: dict[int, TensorMeta] = {}
    for gradient in gradients:
        if gradient is None:
            results.append(None)
            continue
        slot = trace.slot_of(gradient).index
        if trace.root(slot) in (*slots, *last):
            raise NotReplayable("a gradient that is what was saved")
        if slot != first:
            outs[slot] = gradient.meta
        results.append(-1 if slot == first else list(outs).index(slot))
    if not outs:
        raise NotReplayable("nothing is computed")
    guards = tuple(trace.guards)
    run = compile_trace(trace, [first, *slots], list(outs), guards, backend, last)
    return StepProgram(run, tuple(results), tuple(outs.values()))
