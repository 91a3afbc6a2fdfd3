"""Measure a training step, tier by tier: first the numbers, then the time."""

from __future__ import annotations

import statistics
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass, field
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np

from tito import scripts
from tito.ladder.tiers import TORCH, Tier
from tito.ladder.worker import TierError, Worker
from tito.workspace import backends, completed, course
from tito.workspace.folder import Workspace, WorkspaceError
from tito.workspace.share import Share, measure as share_of, read_report

PROBLEM, REFERENCE, RESULT, REPORT = "problem.npz", "reference.npz", "result.npz", "report.json"
CHECKED_STEPS = 3
LOSS_DISTANCE = 1e-4  # relative
CHANGE_DISTANCE = 5e-3  # of how far the steps moved a parameter; float32 sums in another order
WARM_UP_CALLS = 2
SAMPLE_SECONDS = 0.05  # a sample is at least one call, and about as many as take so long
CHECK_SECONDS, TIME_SECONDS, TRACE_SECONDS = 300.0, 120.0, 600.0

OK, WRONG, FAILED, ABSENT = "ok", "wrong", "failed", "absent"


@dataclass
class Measured:
    """What was found of a tier.

    Attributes:
        status: "ok"; "wrong", other numbers than the reference; "failed", an error; "absent", not
            installed or not written.
        says: why it is not "ok".
        wall, cpu: seconds of a step in each round; `cpu` of all threads.
        clock: which of the two counts. The processor's time stands still while another program has
            the core; with several threads it says nothing of how long one waits.
        share: how much of the work was the student's; None if nothing of theirs can be in it.
    """

    tier: Tier
    status: str = OK
    says: str = ""
    wall: list[float] = field(default_factory=list)
    cpu: list[float] = field(default_factory=list)
    clock: str = "cpu"
    share: Share | None = None

    @property
    def samples(self) -> list[float]:
        """Seconds of a step in each round, on the clock that counts."""
        return self.cpu if self.clock == "cpu" else self.wall

    @property
    def seconds(self) -> float:
        """Of a step: the median over the rounds."""
        return statistics.median(self.samples)

    def as_json(self) -> dict[str, Any]:
        value: dict[str, Any] = {
            "tier": self.tier.name, "backend": self.tier.backend, "how": self.tier.how,
            "status": self.status, "says": self.says,
        }  # fmt: skip
        if self.samples:
            value |= {
                "seconds": self.seconds, "clock": self.clock, "wall": self.wall, "cpu": self.cpu
            }  # fmt: skip
        if self.share is not None:
            share = asdict(self.share)
            value["share"] = {k: share[k] for k in ("calls", "own_calls", "flops", "own_flops")}
        return value


def ratio(slower: Measured, faster: Measured) -> float:
    """How many times as long: the median of the ratios within the rounds."""
    return statistics.median(a / b for a, b in zip(slower.samples, faster.samples, strict=True))


def run_tiers(
    workspace: Workspace,
    step: str,
    tiers: Sequence[Tier],
    *,
    rounds: int,
    threads: int,
    with_share: bool,
    said: Callable[[str], None] = lambda text: None,
) -> list[Measured]:
    """Measure a step on each tier, each in a process of its own, on the student's package.

    A tier is timed if three steps on it give the losses and parameters of the reference. Rounds go
    over all tiers, so that what else the machine does meets all of them.

    Args:
        step: a name in `steps.STEPS`.
        threads: that kernels may use. With one the processor's time is measured.
        with_share: find out how much of the work was the student's, which takes one step more.
        said: told what is being done.

    Raises:
        WorkspaceError: the reference itself cannot be run.
    """
    clock = "cpu" if threads == 1 else "wall"
    found = [Measured(tier, clock=clock) for tier in tiers]
    with tempfile.TemporaryDirectory(prefix="tito-") as name, _workers() as open_worker:
        folder = Path(name)
        said("the reference's numbers")
        _reference(folder, step, threads, workspace)
        running = []
        for each in found:
            said(f"{each.tier.name}: the same numbers?")
            with _noted(each):
                options = _options(each.tier, step, threads, workspace)
                running.append((each, open_worker(options, workspace)))
                _check(each, running[-1][1], folder)
        running = [(each, worker) for each, worker in running if each.status == OK]
        calls = {each.tier.name: _calls(each, worker) for each, worker in running}
        for number in range(rounds):
            said(f"round {number + 1} of {rounds}")
            for each, worker in running:
                _time(each, worker, calls[each.tier.name])
        if with_share:
            said("whose code ran")
            _shares(workspace, running, folder)
    return found


@contextmanager
def _noted(each: Measured) -> Iterator[None]:
    """An error of a tier is its result; the others go on."""
    try:
        yield
    except (TierError, WorkspaceError) as error:
        each.status, each.says = each.status if each.status != OK else FAILED, str(error)


@contextmanager
def _workers() -> Iterator[Callable[[dict[str, Any], Workspace], Worker]]:
    opened: list[Worker] = []

    def open_worker(options: dict[str, Any], workspace: Workspace) -> Worker:
        worker = Worker(options, [workspace.root, scripts.ROOT], workspace.root)
        opened.append(worker)
        return worker

    try:
        yield open_worker
    finally:
        for worker in opened:
            with suppress(OSError):
                worker.close()


def _options(tier: Tier, step: str, threads: int, workspace: Workspace) -> dict[str, Any]:
    """What the child is told.

    Raises:
        WorkspaceError: the student's backend is not there.
    """
    backend = backends.resolve(tier.backend, workspace) if tier.backend else ""
    file = backend.rpartition(":")[0]
    traced = [str(workspace.package), *([file] if file else [])]
    return {
        "step": step, "how": tier.how, "backend": backend, "threads": threads, "traced": traced
    }  # fmt: skip


def _reference(folder: Path, step: str, threads: int, workspace: Workspace) -> None:
    """Write the problem, and what three steps of the reference come to."""
    options = {"step": step, "how": "eager", "backend": "numpy", "threads": threads}
    try:
        worker = Worker(options, [scripts.ROOT], workspace.root)
        try:
            worker.ask("problem", CHECK_SECONDS, to=str(folder / PROBLEM))
            _train(worker, folder, REFERENCE)
        finally:
            worker.close()
    except TierError as error:
        raise WorkspaceError(f"the reference cannot be run: {error}") from None


def _train(worker: Worker, folder: Path, name: str) -> dict[str, Any]:
    worker.ask("begin", CHECK_SECONDS, **{"from": str(folder / PROBLEM)})
    path = folder / name
    worker.ask("train", CHECK_SECONDS, to=str(path), steps=CHECKED_STEPS)
    with np.load(path, allow_pickle=False) as values:
        return dict(values)


def _check(each: Measured, worker: Worker, folder: Path) -> None:
    """Hold a tier's losses and parameters to the reference's."""
    got = _train(worker, folder, RESULT)
    with np.load(folder / REFERENCE) as file, np.load(folder / PROBLEM) as problem:
        expected, start = dict(file), dict(problem)
    each.says = difference(got, expected, start)
    if each.says:
        each.status = WRONG


def difference(got: dict[str, Any], expected: dict[str, Any], start: dict[str, Any]) -> str:
    """How results differ from the reference's, in a sentence; "" if they agree.

    Args:
        start: the parameters before the first step.
    """
    if wrong := sorted(got.keys() ^ expected.keys()):
        return f"other parameters than the reference's: {', '.join(wrong)}"
    ours, theirs = expected["losses"], got["losses"]
    if theirs.shape != ours.shape:
        return f"{theirs.size} losses instead of {ours.size}"
    for number, (a, b) in enumerate(zip(theirs, ours, strict=True), 1):
        if not abs(a - b) <= LOSS_DISTANCE * abs(b):
            return f"the loss of step {number} is {a:.6g}, and the reference's {b:.6g}"
    for name in sorted(expected.keys() - {"losses"}):
        a, b, before = got[name], expected[name], start[name]
        if a.shape != b.shape:
            return f"{name.removeprefix('state/')} has the shape {a.shape} instead of {b.shape}"
        moved = float(np.linalg.norm(b - before))
        distance = float(np.linalg.norm(a - b))
        if not distance <= CHANGE_DISTANCE * moved:
            return (
                f"after {CHECKED_STEPS} steps {name.removeprefix('state/')} is {distance:.3g} from "
                f"the reference's, which has moved by {moved:.3g}"
            )
    return ""


def _calls(each: Measured, worker: Worker) -> int:
    """How many calls make a sample."""
    with _noted(each):
        worker.ask("time", TIME_SECONDS, calls=WARM_UP_CALLS)
        seconds = worker.ask("time", TIME_SECONDS, calls=1)["wall"]
        return max(1, int(SAMPLE_SECONDS / max(seconds, 1e-6)))
    return 0


def _time(each: Measured, worker: Worker, calls: int) -> None:
    if each.status != OK:
        return
    with _noted(each):
        taken = worker.ask("time", TIME_SECONDS, calls=calls)
        each.wall.append(taken["wall"] / calls)
        each.cpu.append(taken["cpu"] / calls)


def _shares(workspace: Workspace, running: Sequence[tuple[Measured, Worker]], folder: Path) -> None:
    mine = completed.definitions(completed.load(workspace))
    wanted = {text for lesson in course.lessons() for text in course.definitions(lesson)}
    for each, worker in running:
        if each.status == OK and each.tier.how != TORCH:
            with _noted(each):
                report = folder / REPORT
                worker.ask("trace", TRACE_SECONDS, to=str(report))
                each.share = share_of(workspace.root, read_report(report), mine, wanted)


def here(tiers: Sequence[Tier], workspace: Workspace) -> tuple[list[Tier], list[Measured]]:
    """The tiers that can be tried here, and the others with what is missing."""
    there, absent = [], []
    for tier in tiers:
        if tier.needs and find_spec(tier.needs) is None:
            says = f"{tier.needs} is not installed: `tito doctor` says how to get it"
            absent.append(Measured(tier, ABSENT, says))
        elif tier.backend == backends.MINE and not backends.path_of(workspace).is_file():
            absent.append(Measured(tier, ABSENT, "not begun: tito backend new"))
        else:
            there.append(tier)
    return there, absent
