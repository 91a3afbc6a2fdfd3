"""The statements of a native function in order, and what of them threads do side by side.

For one thread that is one statement after the other. For several, what takes long enough to be
divided begins a phase, and what follows joins the phase if no part of it touches what another part
writes: a product over rows, then relu of these rows, needs no meeting in between. All else is done
by the leader, before the phase if it does not depend on it, otherwise after.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

from tinytorch.graph.compiler.native import groups, ops, partition
from tinytorch.graph.compiler.native.code import Code, Unsupported, comment_of
from tinytorch.graph.compiler.native.loop_text import emit
from tinytorch.graph.compiler.native.loops import Loop
from tinytorch.graph.compiler.native.partition import disjoint
from tinytorch.graph.compiler.schedule import Step
from tinytorch.graph.layout import StridedView


@dataclass(frozen=True)
class Task:
    """A unit of work to write: the statements, the views that they read and write."""

    write: Callable[[], Any]
    reads: Sequence[StridedView]
    writes: Sequence[StridedView]

    def is_disjoint(self, other: Task) -> bool:
        """Neither touches what the other writes."""
        pairs = [(w, p) for w in self.writes for p in (*other.reads, *other.writes)]
        pairs += [(w, p) for w in other.writes for p in self.reads]
        return all(disjoint(w, p) for w, p in pairs)


@dataclass(frozen=True)
class _Shared:
    """A task, the same in parts, and what is to be done when all parts are done."""

    whole: Task
    parts: list[Task]
    after: Callable[[], None] = lambda: None


@dataclass
class _Phase:
    """What is done side by side: for each part its tasks, and their statements.

    Attributes:
        before, after: statements of the leader.
        unfinished: views that hold what they should only after those.
        used: bytes of temporary memory.
    """

    tasks: list[list[Task]]
    lines: list[list[str]]
    before: list[str] = field(default_factory=list)
    after: list[str] = field(default_factory=list)
    unfinished: list[StridedView] = field(default_factory=list)
    used: int = 0

    def accepts(self, parts: Sequence[Task]) -> bool:
        """Whether each part can be done by the thread that has the same part, without meeting."""
        touched = [view for new in parts for view in (*new.reads, *new.writes)]
        return all(disjoint(a, b) for a in touched for b in self.unfinished) and all(
            new.is_disjoint(old)
            for i, new in enumerate(parts)
            for k, tasks in enumerate(self.tasks)
            if i != k
            for old in tasks
        )

    def is_disjoint(self, task: Task) -> bool:
        """A task has nothing to do with the phase."""
        return all(task.is_disjoint(own) for tasks in self.tasks for own in tasks)


class Phases:
    """Writes the body of a function.

    Attributes:
        number: of phases so far.
    """

    def __init__(self, code: Code) -> None:
        self.code = code
        self.number = 0
        self._phase: _Phase | None = None
        self._leader: list[str] = []  # since the last phase
        self._lines: list[str] = []

    # -- what is to be done ------------------------------------------------------------------------

    def loop(self, loop: Loop) -> None:
        """Do a loop."""
        whole, divided = self._loop_task(loop), None
        if self.code.count > 1:
            divided = partition.divide_loop(loop, self.code.count)
        if divided is None:
            self._leader_only(whole)
            return
        parts = [self._loop_task(each) for each in divided]
        if not self._share(_Shared(whole, parts), partition.loop_work(loop)):
            self._leader_only(whole)

    def step(self, step: Step) -> None:
        """Do a step that is no loop.

        Raises:
            Unsupported: there is no native code for it.
        """
        whole = self._step_task(step)
        shared = self._divided(step, whole) if self.code.count > 1 else None
        if shared is None or not self._share(shared, partition.step_work(step)):
            self._leader_only(whole)

    def _divided(self, step: Step, whole: Task) -> _Shared | None:
        """The parts of a step; or sums over parts of what it adds up, to be added up themselves."""
        parts = partition.divide(step, self.code.count)
        if parts is not None:
            return _Shared(whole, [self._step_task(each) for each in parts])
        parts = partition.divide_sum(step, self.code.count)
        if parts is None:
            return None
        body, out = groups.body_of(step.op), step.output
        head = None if body is None else groups.head_of(body)
        sums = [] if head is not None else [out]

        def into_own_memory(part: Step) -> None:
            dtype = out.dtype if head is None else head.meta["tensor_meta"].dtype
            target = self.code.temporary(out.shape, dtype)
            sums.append(target)
            if body is None or head is None:
                self._write_step(replace(part, output=target))
            else:
                self.code.begin(part)
                groups.convolution(self.code, part, body, head, target)

        def add_up() -> None:
            self.code.comment = comment_of(step)
            emit(self.code, partition.loop_of_sums(step, sums))

        first, *others = (self._step_task(each) for each in parts)
        if head is not None:  # the whole is written after the phase, but belongs to it
            first = Task(partial(into_own_memory, parts[0]), first.reads, first.writes)
        tasks = [first]
        for part, task in zip(parts[1:], others, strict=True):
            tasks.append(Task(partial(into_own_memory, part), task.reads, ()))
        return _Shared(whole, tasks, add_up)

    def together(self, steps: Sequence[Step]) -> int:
        """Do the first few of these steps in one pass, if there is code for that; how many."""

        def write() -> int:
            self.code.begin(steps[0])
            return ops.write_together(self.code, steps)

        used = self.code.free_temporaries()
        found, lines = self._written(write)
        count = int(found)
        self.code.free_temporaries(used)
        if not count:
            return 0
        done = steps[:count]
        views = [p for step in done for p in step.inputs if isinstance(p, StridedView)]
        task = Task(lambda: self.code.lines.extend(lines), views, [step.output for step in done])
        self._leader_only(task)
        return count

    def _loop_task(self, loop: Loop) -> Task:
        return Task(lambda: emit(self.code, loop), loop.read(), loop.written())

    def _step_task(self, step: Step) -> Task:
        views = [view for view in step.inputs if isinstance(view, StridedView)]
        return Task(partial(self._write_step, step), views, (step.output,))

    def _write_step(self, step: Step) -> None:
        self.code.begin(step)
        ops.write(self.code, step)

    # -- in which order ----------------------------------------------------------------------------

    def _share(self, shared: _Shared, work: float) -> bool:
        """Let threads share a task, in the open phase or a new one; False if that does not pay."""
        phase = self._phase
        if phase is None or not phase.accepts(shared.parts):
            if work < partition.MIN_PARALLEL_WORK:
                return False
            phase = _Phase([[] for _ in shared.parts], [[] for _ in shared.parts])
        if not self._put(shared, phase):
            return False
        if phase is not self._phase:
            self._close()
            self._phase = phase
        return True

    def _put(self, shared: _Shared, phase: _Phase) -> bool:
        """Put parts into a phase; False if there is no code for one of them."""
        whole = (*shared.whole.reads, *shared.whole.writes)
        self.code.free_temporaries(phase.used)
        try:
            lines = []
            for self.code.part, task in enumerate(shared.parts):
                for own, view in zip((*task.reads, *task.writes), whole, strict=False):
                    self.code.name_part(own, view)
                lines.append(self._written(task.write)[1])
            self.code.part = 0
            after = self._written(shared.after)[1]
        except Unsupported:
            return False  # an operand can be read whole, but not so cut: it is not divided
        finally:
            self.code.part = 0
        phase.used = self.code.free_temporaries()
        for i, task in enumerate(shared.parts):
            phase.lines[i] += lines[i]
            phase.tasks[i].append(task)
        if after:
            phase.after += after
            phase.unfinished += shared.whole.writes
        return True

    def _leader_only(self, task: Task) -> None:
        """One thread does it."""
        self.code.free_temporaries()
        _, lines = self._written(task.write)
        if self._phase is not None and self._phase.is_disjoint(task):
            self._phase.before += lines
            return
        self._close()
        self._leader += lines

    def _written(self, write: Callable[[], Any]) -> tuple[Any, list[str]]:
        """What is returned, and the statements that were written meanwhile."""
        before, self.code.lines = self.code.lines, []
        try:
            return write(), self.code.lines
        finally:
            self.code.lines = before

    # -- text --------------------------------------------------------------------------------------

    def finish(self) -> None:
        """Give the code its lines."""
        self._close()
        checks = self.code.checks
        if self.code.count == 1:
            self.code.lines = [*checks, *self._leader]
            return
        start = [f"me = arrive({self.code.barrier})", *_block("if me == 0:", checks)]
        self.code.lines = [*start, *self._lines, *_block("if me == 0:", self._leader)]

    def _close(self) -> None:
        """Write the open phase."""
        phase, self._phase = self._phase, None
        if phase is None:
            return
        self.number += 1
        barrier, n, count = self.code.barrier, self.number, self.code.count
        take = f"part = take({barrier}, {n}, me, {count})"
        rounds: list[str] = []
        for i, lines in enumerate(phase.lines):
            test = (
                "if part == 0:" if i == 0 else "else:" if i == count - 1 else f"elif part == {i}:"
            )
            rounds += _block(test, lines)
        rounds += [f"done({barrier}, {n}, part)", take]
        self._leader += [*phase.before, f"begin({barrier}, {n})"]
        self._lines += [*_block("if me == 0:", self._leader), take]
        self._lines += _block("while part >= 0:", rounds)
        self._leader = [f"end({barrier}, {n}, {count})", *phase.after]


def _block(head: str, lines: Sequence[str]) -> list[str]:
    """Lines under a head; nothing, if there are none."""
    return [head, *(f"    {line}" for line in lines)] if lines else []
