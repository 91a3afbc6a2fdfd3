"""A whole backward as one function, where the same one happens again and again.

Between the kernels of a backward there are an order to find, a dictionary of gradients, and for
each op a program to look up by all that it depends on. A training step takes the same way through
all this every time. So once backwards from results like these are frequent, the way of one is
written down, a *walk*. For `(x @ w).tanh().sum()`:

    def walk(s0, g0, free):
        if type(s0) is not Record or s0.op.formulas is not f0 or s0.metas != m0 ...: return None
        (s1,) = s0.edges
        if type(s1) is not Record or s1.op.formulas is not f1 ...: return None
        (s2,) = s1.edges
        ...
        if len({s0, s1, s2, s3}) != 4: return None         # up to here: is it the same history?
        t = run0(g0)                                       # the programs of `steps`, in a row
        g1 = wrap(t, n0)
        t = run1(g1, s1.output)
        ...
        return {s3: g3}

It is taken only where the history has the same ops on the same shapes, connected in the same way,
and no hooks. Everything else is the walk of `engine`, from which it differs in nothing that can be
seen: the order, the memory that is let go of, errors for values that were overwritten.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from tinytorch import ops
from tinytorch.backends.base import ComputeBackend
from tinytorch.dispatch import is_tensor, wrap
from tinytorch.history import Record, write_clock
from tinytorch.op import Op
from tinytorch.replay.gradients import Gradients, is_part
from tinytorch.replay.steps import (
    StepProgram,
    first_edges,
    has_numbers,
    numbers_of,
    params_key,
    program_key,
    repeats,
)

Tensor = Any
Source = Any  # see engine.py
Found = dict[Source, Tensor]
Walk = Callable[[Record, Tensor, bool], Found | None]

MOST_SOURCES = 512  # of a walk: one that is longer saves less than a step of it takes
FIRST_WAIT = 2  # backwards, besides those that made the programs of its steps
MOST_WALKS = 4  # from results of one kind; the discriminator and the generator of a GAN are two


class Engine(NamedTuple):
    """What a walk needs of `autograd.engine`."""

    step: Callable[[Record, Tensor, Found], None]
    check_usable: Callable[[Record, Tensor], None]
    may_wait: Callable[[Record, Tensor], bool]
    joined: Callable[[Tensor | None, list[Any]], Tensor]


class Walks:
    """The walks of backwards from one kind of results, the one taken last in front.

    Attributes:
        calls: backwards without a walk since one was made, by the number of their sources.
        wait: how many with the same number there are before a walk is tried. To write one takes as
            long as some forty backwards; so the wait grows with each, and histories that are never
            the same, or have no walk, cost nothing in the end.
    """

    def __init__(self) -> None:
        self.walks: list[Walk] = []
        self.calls: dict[int, int] = {}
        self.wait = FIRST_WAIT

    def run(self, root: Record, g: Tensor, free: bool) -> Found | None:
        """The gradients of the leaves; None if there is no walk for this history."""
        for i, walk in enumerate(self.walks):
            found = walk(root, g, free)
            if found is not None:
                if i:  # another thread may have changed the list: it only forgets a walk
                    self.walks = [walk, *[w for w in self.walks if w is not walk]]
                return found
        return None

    def note(self, order: Sequence[Source], backend: ComputeBackend, engine: Engine) -> None:
        """Count a backward, and make its walk where there were enough of them."""
        size = len(order)
        if size > MOST_SOURCES:
            return
        self.calls[size] = self.calls.get(size, 0) + 1
        if self.calls[size] <= self.wait:
            return
        self.calls.clear()
        self.wait *= 2
        walk = _Writer(order, backend, engine).walk()
        if walk is not None:
            self.walks = [walk, *self.walks[: MOST_WALKS - 1]]
            self.wait *= 2


def walks_from(root: Source, backend: ComputeBackend) -> Walks | None:
    """The walks of backwards from results like this one; None where there can be none."""
    if type(root) is not Record or not _is_known(root.op):
        return None
    key = (Walks, root.op, root.metas)
    programs = backend.programs
    assert programs is not None
    walks = programs.get(key)
    if walks is None:
        walks = programs[key] = Walks()
    return walks


def _is_known(op: Op) -> bool:
    """Whether its formulas are ours. Those of a user may do anything, and a `Function` has another
    row at each call."""
    return op.formulas is not None or Gradients.behind(op) is not None or is_part(op)


class _Writer:
    """Writes the walk of one history.

    The names in it: `s` and a number for each source, `g` for its gradient so far, `q` for those of
    its slices; a source has the number of its place in the walk.
    """

    def __init__(self, order: Sequence[Source], backend: ComputeBackend, engine: Engine) -> None:
        self.sources = list(reversed(order))
        self.numbers = {source: i for i, source in enumerate(self.sources)}
        self.backend = backend
        self.names: dict[str, Any] = {
            "Record": Record,
            "clock": write_clock,
            "wrap": wrap,
            "params_key": params_key,
            "numbers_of": numbers_of,
            "may_wait": engine.may_wait,
            "joined": engine.joined,
            "check": engine.check_usable,
            "by_step": _by_step(engine.step),
        }
        self.conditions: list[str] = []
        self.lines: list[str] = []
        self.given = {0}  # sources to which a gradient may have come
        self._bound = {0}  # those that have their names
        self.sliced: set[int] = set()

    def walk(self) -> Walk | None:
        """The function; None where a step is of a user, or has no program yet, or where the order
        is none: a student's, for example, who is writing the function that gives it."""
        for i, source in enumerate(self.sources):
            if i in self.sliced:
                self.lines.append(f"if q{i}: g{i} = joined(g{i}, q{i})")
            if type(source) is not Record:
                self.conditions.append(
                    f"if s{i} is None or type(s{i}) is Record or s{i}.hooks: return None"
                )
                self.lines.append(f"if g{i} is not None: found[s{i}] = g{i}")
            elif not self._record(i, source):
                return None
            if i not in self._bound:
                return None
        everything = range(len(self.sources))
        body = [
            *self.conditions,
            f"if len({{{', '.join(f's{i}' for i in everything)}}}) != {len(everything)}: "
            "return None",
            " = ".join([*(f"g{i}" for i in everything[1:]), "None"]) if everything[1:] else "pass",
            *(f"q{i} = []" for i in sorted(self.sliced)),
            "found = {}",
            *self.lines,
            "return found",
        ]
        source = "def walk(s0, g0, free):\n" + "".join(f"    {line}\n" for line in body)
        exec(compile(source, "<tinytorch walk>", "exec"), self.names)
        walk: Walk = self.names.pop("walk")
        return walk

    def _record(self, i: int, record: Record) -> bool:
        """Write the conditions and the step of a record; False where there can be none."""
        op = record.op
        shared = Gradients.behind(op)
        if not _is_known(op) or record.inputs is None:  # freed: the engine says so
            return False
        targets = [self.numbers.get(e, 0) for e in dict.fromkeys(record.edges) if e is not None]
        if not all(target > i for target in targets):
            return False
        program = self._program(record, targets)
        if program is None:
            return False
        self._conditions(i, record, bool(program))
        step = self._by_step(i, targets)
        if op is ops.slice_:
            (target,) = targets
            self.sliced.add(target)
            lines = [f"if may_wait(s{i}, g{i}): q{target}.append((s{i}, g{i}))", f"else: {step}"]
        elif shared is not None and not shared.is_several:
            lines = self._by_shared(i, record, shared)
        elif isinstance(program, StepProgram):
            lines = self._by_program(i, record, program, step)
        else:
            lines = [step]
        self.given.update(targets)
        self.lines += [
            f"if g{i} is not None:",
            f"    if s{i}.clock != clock.now or s{i}.inputs is None: check(s{i}, g{i})",
            *(f"    {line}" for line in lines),
            f"    if free: s{i}.inputs = s{i}.output = None",
            f"    t = g{i} = None",
        ]
        return True

    def _program(self, record: Record, targets: Sequence[int]) -> StepProgram | bool | None:
        """The program of a step; False for a step that has none, None where it may have one yet."""
        op, edges = record.op, first_edges(record.edges, None)
        if op.formulas is None or op is ops.slice_:
            return False
        if repeats(edges) and not self.given.isdisjoint(targets):
            return False  # the gradients of one source are added up one after the other
        assert self.backend.programs is not None
        try:
            program = self.backend.programs.get(program_key(record, edges))
        except TypeError:  # a parameter without a hash
            return False
        return program if program is False or type(program) is StepProgram else None

    def _conditions(self, i: int, record: Record, by_program: bool) -> None:
        """Write what must be so of a record, and give names to its sources."""
        bound, checks, edges = self._bound, [f"type(s{i}) is not Record"], []
        if record.op.formulas is None:
            checks.append(f"s{i}.op is not {self._name(record.op)}")
        else:
            checks.append(f"s{i}.op.formulas is not {self._name(record.op.formulas)}")
        checks += [f"s{i}.metas != {self._name(record.metas)}", f"s{i}.hooks"]
        checks.append(f"s{i}.inputs is None")
        if by_program:
            checks.append(f"s{i}.meta is not {self._name(record.meta)}")
            if record.params:
                known = self._name(params_key(record.params))
                checks.append(f"params_key(s{i}.params) != {known}")
            else:
                checks.append(f"s{i}.params")
            if has_numbers(record):
                checks.append(f"numbers_of(s{i}) != {self._name(numbers_of(record))}")
        again = []
        for j, edge in enumerate(record.edges):
            number = -1 if edge is None else self.numbers[edge]
            if number >= 0 and number not in bound:
                bound.add(number)
                edges.append(f"s{number}")
                continue
            edges.append(f"e{j}")
            again.append(f"e{j} is not {'None' if edge is None else f's{number}'}")
        self.conditions.append(f"if {' or '.join(checks)}: return None")
        self.conditions.append(f"{', '.join(edges)}, = s{i}.edges")
        if again:
            self.conditions.append(f"if {' or '.join(again)}: return None")

    def _by_step(self, i: int, targets: Sequence[int]) -> str:
        """The step as the engine takes it."""
        after = "".join(f"g{t}, " for t in targets)
        sources = "".join(f"s{t}, " for t in targets)
        return f"{after}= by_step(s{i}, g{i}, ({sources}), ({after}))"

    def _by_program(self, i: int, record: Record, program: StepProgram, step: str) -> list[str]:
        gradients = [
            (self.numbers[edge], place, None if place < 0 else program.metas[place])
            for edge, place in zip(record.edges, program.results, strict=True)
            if place is not None
        ]
        run = self._run(i, record, program.run)
        return [
            f"t = {run} if g{i}.meta is {self._name(record.meta)} else None",
            f"if t is None: {step}",
            "else:",
            *(f"    {line}" for line in self._added(i, gradients, len(program.metas) == 1)),
        ]

    def _by_shared(self, i: int, record: Record, shared: Gradients) -> list[str]:
        run, metas, _ = shared.run((0,))
        present = [j for j, meta in enumerate(metas) if meta is not None]
        gradients = [
            (self.numbers[edge], present.index(j), metas[j])
            for j, edge in enumerate(record.edges)
            if edge is not None and j in present
        ]
        if not gradients:
            return []
        lines = self._added(i, gradients, len(present) == 1)
        return [f"t = {self._run(i, record, run)}", *lines]

    def _run(self, i: int, record: Record, program: Any) -> str:
        """The call of a program with what the record has saved."""
        assert record.inputs is not None
        saved = [f"s{i}.inputs[{j}]" for j, x in enumerate(record.inputs) if is_tensor(x)]
        if record.output is not None:
            saved.append(f"s{i}.output")
        return f"{self._name(program)}({', '.join([f'g{i}', *saved])})"

    def _added(self, i: int, gradients: Sequence[tuple[int, int, Any]], is_one: bool) -> list[str]:
        """Add arrays of `t` to the gradients of sources; the one at -1 is g itself."""
        lines = []
        for target, place, meta in gradients:
            array = "t" if is_one else f"t[{place}]"
            new = f"g{i}" if place < 0 else f"wrap({array}, {self._name(meta)})"
            if target in self.given:
                new = f"{new} if g{target} is None else g{target} + {new}"
            self.given.add(target)
            lines.append(f"g{target} = {new}")
        return lines

    def _name(self, value: Any) -> str:
        """The name of a constant."""
        name = f"c{len(self.names)}"
        self.names[name] = value
        return name


def _by_step(step: Callable[[Record, Tensor, Found], None]) -> Callable[..., list[Tensor | None]]:
    def by_step(
        record: Record, g: Tensor, edges: tuple[Source, ...], before: tuple[Tensor | None, ...]
    ) -> list[Tensor | None]:
        """The gradients of these sources with what the step adds to them."""
        pending = {e: b for e, b in zip(edges, before, strict=True) if b is not None}
        step(record, g, pending)
        return [pending.get(e) for e in edges]

    return by_step
