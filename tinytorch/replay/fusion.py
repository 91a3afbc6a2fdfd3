"""Runs of elementwise ops in a trace as one step, of which the backend compiles one loop.

    t2 = sub(t0, t1); t3 = mul(t2, t2); t4 = sum(t3)      becomes      t4 = sum of t0, t1 -> (...)

A step joins those that read its result, where they are all in one run and nothing else reads it. So
each run has one result; it ends with an elementwise op, or with a sum of what that gives. A result
of another shape than the run's is computed once, before it: a mean that broadcasts is an input.
Since the program's steps round as the ops do one by one, the numbers stay the same; but where a sin
or cos has an argument beyond its polynomial, those beside it may differ in the last bit.

Source: J. Ragan-Kelley et al., "Halide", PLDI 2013, section 2 (why fusing pays: locality).
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from tinytorch import ops, shapes
from tinytorch.dtypes import Shape, TensorMeta, bool_, float32, float64
from tinytorch.op import Op, Params, Plan
from tinytorch.program import ALIASES, COMMON, Program, Step as Instruction
from tinytorch.replay.trace import Slot, Step

MOST_INPUTS = 12  # of a run
LARGEST = 2**16  # bytes of a tensor: on larger ones the time is in the kernels, not between them,
# so that a program pays only where it has other kernels: fewer, by fusion, or views alone
FEW = 1024  # elements: of so many, most ops cost less than the call of a kernel
MOST_RUNS = 3
_PICKING = frozenset((ops.take, ops.gather, ops.copy))  # the last where its argument is a view


def fuse_steps(steps: Sequence[Step], kept: Iterable[int], fusible: frozenset[str]) -> list[Step]:
    """The steps, with each run of several as one.

    Args:
        steps: in their order.
        kept: slots that are read by something else than steps.
        fusible: names of the ops that a loop can have (`ComputeBackend.fusible`).
    """
    if not fusible:  # casts and copies are in any loop, and here there is none
        return [*steps]
    runs_of = _runs(steps, set(kept), fusible)
    members: dict[int, list[Step]] = {}
    for step in steps:
        for run in runs_of.get(step.out, (step.out,)):
            members.setdefault(run, []).append(step)
    fused: list[Step] = []
    made: set[int] = set()
    for step in steps:
        parts = members.get(step.out)  # a run is where its last step was
        if parts is None:
            continue
        together = _fused(parts)
        if together is None:  # without the steps that other runs have as well
            shared = [s for s in parts if len(runs_of.get(s.out, ())) > 1]
            fused += [s for s in shared if s.out not in made]
            made.update(s.out for s in shared)
            parts = [s for s in parts if s not in shared]
            together = _fused(parts)
        fused += parts if together is None else [together]
    return fused


def _runs(
    steps: Sequence[Step], kept: set[int], fusible: frozenset[str]
) -> dict[int, tuple[int, ...]]:
    """The last slots of the runs that each slot is computed in; those in none are missing."""
    readers: dict[int, list[int]] = {}
    for step in steps:
        for index in step.reads:
            readers.setdefault(index, []).append(step.out)
    in_loops = {step.out for step in steps if can_fuse(step, fusible)}
    computed = in_loops - kept
    runs_of: dict[int, tuple[int, ...]] = {}
    shape_of: dict[int, Shape] = {}  # of each run
    for step in reversed(steps):
        is_sum = step.plan.op is ops.sum and "sum" in fusible and _is_real(step.plan.operands[0])
        if not (is_sum or _is_expansion(step) or step.out in in_loops):
            continue
        runs: set[int | None] = set()
        for reader in readers.get(step.out, ()):
            runs.update(runs_of.get(reader, (None,)))
        joins = (
            0 < len(runs) <= (1 if computed.intersection(step.reads) else _most_runs(step))
            and not is_sum
            and step.out not in kept
            and all(run is not None and shape_of[run] == step.plan.meta.shape for run in runs)
        )
        if joins:
            runs_of[step.out] = tuple(runs)  # type: ignore[arg-type]
        elif not _is_expansion(step):
            runs_of[step.out] = (step.out,)
            operand = step.plan.operands[0]
            shape_of[step.out] = operand.shape if is_sum else step.plan.meta.shape  # type: ignore[union-attr]
    return runs_of


def _most_runs(step: Step) -> int:
    """How many runs may compute a step that begins them: of few elements several, each for itself,
    which takes less than to call a kernel and to write and read its result."""
    return MOST_RUNS if step.plan.meta.size <= FEW else 1


def can_fuse(step: Step, fusible: frozenset[str]) -> bool:
    """Whether a step is an elementwise op of one float type (and bool) that loops can have."""
    op, metas = step.plan.op, [o for o in step.plan.operands if isinstance(o, TensorMeta)]
    real = {m.dtype for m in metas} - {bool_}
    if op is ops.cast or op.name in ALIASES[:2]:
        return step.plan.meta.dtype in (float32, float64) and real <= {step.plan.meta.dtype}
    if isinstance(op.scalar, Program):
        is_here = op.scalar.ops <= fusible
    else:
        is_here = op.kind == "elementwise" and op.name in fusible
    return is_here and len(real) <= 1 and real <= {float32, float64}


def is_light(steps: Iterable[Step], fusible: frozenset[str]) -> bool:
    """Whether steps cost little more than reading their inputs: a gradient may run them again."""
    return all(
        step.plan.op.view
        or step.plan.op.kind in ("reduction", "creation")
        or can_fuse(step, fusible)
        or _is_small(step)
        for step in steps
    )


def _is_small(step: Step) -> bool:
    """Whether a step computes few elements, or picks a few, however many there are."""
    reads_little = step.plan.op.kind == "elementwise" or step.plan.op in _PICKING
    return reads_little and step.plan.meta.nbytes <= LARGEST


def _is_real(operand: Any) -> bool:
    return isinstance(operand, TensorMeta) and operand.dtype in (float32, float64)


def _is_expansion(step: Step) -> bool:
    """A view that a loop makes by itself: its operands broadcast."""
    return step.plan.op is ops.expand


class _Inputs:
    """What a run reads: slots, and numbers that are no part of its machine code."""

    def __init__(self) -> None:
        self.slots: dict[int, tuple[Slot, TensorMeta]] = {}
        self.numbers: dict[str, float] = {}  # by their text: -0.0 is not 0.0

    def name(self, value: Any, meta: Any) -> Any:
        """The operand in an instruction; a number's place is known once all slots are."""
        if type(value) is Slot:
            self.slots.setdefault(value.index, (value, meta))
            return f"x{list(self.slots).index(value.index)}"
        number = float(value)
        text = repr(number)
        if text in COMMON:
            return number
        self.numbers.setdefault(text, number)
        return ("number", list(self.numbers).index(text))

    def place(self, operand: Any) -> Any:
        """An operand as programs have it."""
        return f"x{len(self.slots) + operand[1]}" if type(operand) is tuple else operand


def _fused(run: Sequence[Step]) -> Step | None:
    """The steps of a run as one; None for a single one, and where that would be none of a loop."""
    if len(run) < 2:
        return None
    *body, last = run
    is_sum = last.plan.op is ops.sum
    read = last.args[0].index if is_sum else last.out
    whole: Any = last.plan.operands[0] if is_sum else last.plan.meta
    params = last.params if is_sum else {}
    return one_loop(body if is_sum else run, [read], whole, last.plan.meta, params, last.out)


def one_loop(
    steps: Sequence[Step],
    results: Sequence[int],
    whole: TensorMeta,
    meta: TensorMeta,
    params: Params,
    out: int,
) -> Step | None:
    """Elementwise steps as one of a loop; None where that would be none.

    Args:
        results: slots of what the loop gives.
        whole: of what the loop is over.
        meta, params, out: of the new step, which may sum up what the loop gives.
    """
    loop = _Loop()
    for step in steps:
        loop.add(step)
    given = [operand for _, operand in loop.inputs.slots.values()]
    found: list[Any] = [loop.names.get(n) for n in results]
    dtypes = {m.dtype for m in (*given, *(s.plan.meta for s in steps), whole)} - {bool_}
    if (
        not all(type(name) is str for name in found)
        or not loop.instructions
        or len(given) > MOST_INPUTS
        or len(dtypes) != 1
        or all(m.dtype is bool_ for m in given)
        or shapes.broadcast("fused", [m.shape for m in given]) != whole.shape
    ):
        return None
    program = loop.program(found, "dims" not in params and meta.dtype is bool_)
    slots, numbers = [s for s, _ in loop.inputs.slots.values()], loop.inputs.numbers.values()
    metas: tuple[Any, ...] = (*given, *(float for _ in numbers))
    op = Op("fused", " ".join(f"x{i}" for i in range(program.inputs)), "elementwise",
            shapes.broadcast, no_rule, lambda *_: 0, scalar=program)  # type: ignore[arg-type]  # fmt: skip
    return Step(Plan(op, metas, params, meta, None), (*slots, *numbers), params, out)


class _Loop:
    """A program that is written step by step.

    Attributes:
        names: of what the steps have made, by slot; of an expansion, what it is of.
    """

    def __init__(self) -> None:
        self.inputs = _Inputs()
        self.names: dict[int, Any] = {}
        self.instructions: list[Instruction] = []

    def add(self, step: Step) -> None:
        """Write a step, or those of a program."""
        operands = [
            self.names[a.index]
            if type(a) is Slot and a.index in self.names
            else self.inputs.name(a, meta)
            for a, meta in zip(step.args, step.plan.operands, strict=True)
        ]
        scalar = step.plan.op.scalar
        if _is_expansion(step):
            self.names[step.out] = operands[0]
        elif not isinstance(scalar, Program):
            self.names[step.out] = self._write(step.plan.op, operands, step.params)
        else:
            inner: dict[Any, Any] = {f"x{i}": o for i, o in enumerate(operands)}
            for i, part in enumerate(scalar.steps):
                given = [inner[o] if isinstance(o, str) else o for o in part.operands]
                inner[f"t{i}"] = self._write(part.op, given, dict(part.params))
            self.names[step.out] = inner[scalar.result]

    def _write(self, op: Op, operands: Iterable[Any], params: Params) -> str:
        self.instructions.append(Instruction(op, tuple(operands), tuple(params.items())))
        return f"t{len(self.instructions) - 1}"

    def program(self, results: Sequence[str], is_bool: bool) -> Program:
        """What is written, which gives these."""
        inputs, (first, *others) = self.inputs, results
        placed = [i._replace(operands=tuple(map(inputs.place, i.operands)))
                  for i in self.instructions]  # fmt: skip
        count = len(inputs.slots) + len(inputs.numbers)
        return Program(count, tuple(placed), first, is_bool, tuple(others))


def no_rule(*_: Any) -> Any:
    """In the place of the rules of an op whose plans are made of others'."""
    raise NotImplementedError("its plans are made of those of other steps")
