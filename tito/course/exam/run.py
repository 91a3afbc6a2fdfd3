"""Run one notebook in the sandbox, as often as it takes to hear what every cell does.

A process that ends, hangs or takes too much ends one cell, not the notebook: the next attempt
leaves that cell out. What never began because of the machine, not because of the student, is an
`InfrastructureError`.
"""

from __future__ import annotations

import base64
import json
import math
import os
import secrets
import select
import shutil
import signal
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from subprocess import Popen, TimeoutExpired
from threading import Event
from typing import IO, Any

from tito.course.exam.job import InfrastructureError, Job, Question, Transcript, Unit
from tito.course.exam.receive import MOST_BYTES, FloodError, Lines
from tito.limits import end, is_cpu_time
from tito.sandbox import WRITABLE, NoSandboxError, Sandbox, for_python
from tito.scratch import Scratch
from tito.usage import Usage, files_made, usage

HARNESS = Path(__file__).with_name("harness.py")
ROOT = Path(__file__).resolve().parents[3]
LOOK_SECONDS = 0.1
START_SECONDS = 60.0  # until the kernel answers; it takes half a second on an idle machine
MOST_CLAIMS = 10_000  # of one test cell
EXIT_SECONDS = 5.0  # between the end of its output and its own
WALL_FACTOR = 4  # a cell that sleeps, or waits for a core, may take so much longer
MOST_HALVINGS = 3
TOLERATED_KILLS = (
    1  # ends by SIGKILL that are tried again: the machine, short of memory, may have done it
)


class Ended(Exception):
    """The student's process ended, or had to; the text says why."""

    def __init__(self, reason: str, killed: bool = False) -> None:
        super().__init__(reason)
        self.killed = killed


class BrokenPackage(Exception):
    """The package cannot be imported with the student's code in it; the text says why."""


def run_job(job: Job, stop: Event | None = None) -> Transcript:
    """Run a notebook and its tests to the end, whatever it does.

    Args:
        stop: once set, the run ends at once.

    Raises:
        InfrastructureError: it could not be run, or was stopped.
    """
    start = time.monotonic()
    sandbox = replace(
        for_python("tinytorch", "tito"),
        confined=job.confined,
        scratch_bytes=job.budget.scratch_bytes,
    )
    transcript = Transcript(level=sandbox.level)
    kills = 0
    while True:
        left = job.budget.seconds - (time.monotonic() - start)
        transcript.attempts += 1
        attempt = _Attempt(job, transcript, max(left, 1.0), stop)
        try:
            with _kernel(sandbox, job) as (child, errors, path):
                attempt.run(child, errors, path)
            break
        except BrokenPackage as error:
            transcript.ended = dict.fromkeys((test.id for test in job.tests), str(error))
            break
        except Ended as end:
            if end.killed and kills < TOLERATED_KILLS:
                kills += 1
                continue
            transcript.ended |= {each: str(end) for each in _together(job, attempt.at)}
        if time.monotonic() - start >= job.budget.seconds:
            _give_up(job, transcript)
            break
    transcript.seconds = time.monotonic() - start
    return transcript


def _together(job: Job, at: str) -> list[str]:
    """What has ended: where the student's own run of a visible test does, its graded run would."""
    return [at, *(u.test for u in job.units if u.id == at and u.test is not None)]


def _give_up(job: Job, transcript: Transcript) -> None:
    """What did not come to run has ended for the reason for which everything else did."""
    for test in job.tests:
        if test.id not in transcript.tests and test.id not in transcript.ended:
            transcript.ended[test.id] = "not reached: cells before it took all of the time"


@contextmanager
def _kernel(sandbox: Sandbox, job: Job) -> Iterator[tuple[Popen[bytes], IO[bytes], list[Path]]]:
    """A fresh process with the harness in it; nothing of it is left afterwards."""
    with (
        tempfile.TemporaryFile() as errors,
        tempfile.TemporaryDirectory(prefix="tito-") as folder,
        Scratch(prefix="tito-") as other,
    ):
        try:
            files = _written(job.files, Path(folder))
            over, path = _package(job, Path(other))
            child = sandbox.start(
                [sys.executable, "-I", str(HARNESS)],
                job.budget.limits(),
                files=files,
                over=over,
                cwd=Path(folder),
                stderr=errors,
            )
        except (NoSandboxError, OSError) as error:
            raise InfrastructureError(str(error)) from error
        try:
            yield child, errors, path
        finally:
            end(child)


def _package(job: Job, folder: Path) -> tuple[dict[Path, Path], list[Path]]:
    """What hides files of the package, and where the package then is.

    Byte code of the hidden files is hidden as well: it is the reference. Without a sandbox nothing
    can be hidden, so there the package is copied.
    """
    if not job.package:
        return {}, [ROOT]
    if not job.confined:
        shutil.copytree(ROOT / "tinytorch", folder / "tinytorch")
    over = {}
    for path, text in job.package.items():
        (folder / path).parent.mkdir(parents=True, exist_ok=True)
        (folder / path).write_text(text, encoding="utf-8", errors="replace")
        os.utime(folder / path, (1, 1))  # Python knows byte code by the time of its source
        over[ROOT / path] = folder / path
        known = (ROOT / path).parent / "__pycache__"
        over |= {code: Path(os.devnull) for code in known.glob(f"{Path(path).stem}.*.pyc")}
    for each in (folder, *folder.rglob("*")):
        each.chmod(0o755 if each.is_dir() else 0o644)  # the sandbox reads as another user
    return (over, [ROOT]) if job.confined else ({}, [folder, ROOT])


def _written(files: Mapping[str, str], folder: Path) -> dict[str, Path]:
    folder.chmod(0o755)  # the sandbox reads as another user
    paths = {name: folder / name for name in files}
    for name, content in files.items():
        paths[name].write_bytes(base64.b64decode(content))
        paths[name].chmod(0o644)
    return paths


class _Compiler:
    """The processor time that a process says it has spent in numba's compiler; no more than a
    budget, since it may say anything."""

    def __init__(self, budget: float) -> None:
        self.left = budget
        self.here = 0.0  # in this cell
        self.since: float | None = None

    def begin(self) -> None:
        """A new cell."""
        self.left, self.here, self.since = self.left - self.here, 0.0, None

    def says(self, compiling: bool, cpu_seconds: float) -> None:
        """It begins, or has ended."""
        self.here = self.seconds(cpu_seconds)
        self.since = cpu_seconds if compiling else None

    def seconds(self, cpu_seconds: float) -> float:
        """How much of the cell's time has been the compiler's."""
        now = 0.0 if self.since is None else cpu_seconds - self.since
        return min(self.here + now, self.left)


class _Attempt:
    """One process from its start to its end, told what to do and listened to."""

    def __init__(
        self, job: Job, transcript: Transcript, seconds: float, stop: Event | None
    ) -> None:
        self.job = job
        self.transcript = transcript
        self.seconds = seconds
        self.deadline = math.inf  # it counts once the student's code can run
        self.stop = stop
        self.at = ""
        self.nonce = secrets.token_hex(16)
        self.began = self.looked = time.monotonic()
        self.used_before = self.used = Usage(0.0, 0, 0)
        self.compiler = _Compiler(job.budget.compile_seconds)

    def run(self, child: Popen[bytes], errors: IO[bytes], path: Sequence[Path]) -> None:
        assert child.stdout is not None
        self.child = child
        self.lines = Lines(child.stdout.fileno(), self.nonce, MOST_BYTES)
        ended = self.transcript.ended
        units = [
            {"id": u.id, "source": None if u.id in ended else u.source, "test": u.test}
            for u in self.job.units
        ]
        self._begin("")
        try:
            self._send(nonce=self.nonce, path=[str(each) for each in path], units=units)
            self._expect("ready", START_SECONDS)
            if not self.job.package:
                self._import(START_SECONDS)
        except (Ended, BrokenPackage) as end:
            errors.seek(0)
            said = errors.read(2000).decode(errors="replace").strip()
            raise InfrastructureError(f"the kernel did not start: {said or end}") from None
        self.deadline = time.monotonic() + self.seconds
        if self.job.package:
            self._begin("")
            self._import(self.job.budget.cell_seconds)
        for unit in self.job.units:
            if unit.source is not None and unit.id not in ended:
                self._cell(unit)
        self._begin("")
        self._expect("finished", self.job.budget.cell_seconds)
        for test in sorted(self.job.tests, key=lambda t: not t.visible):
            if test.id not in ended and test.id not in self.transcript.tests:
                self._test(test)

    def _import(self, seconds: float) -> None:
        """Wait for the package; with the student's code in it a failure is the student's."""
        try:
            message = self._receive(seconds)
        except Ended as end:
            raise BrokenPackage(f"with your code in it `import tinytorch` fails: {end}") from None
        if message.get("imported") is not True:
            error = message.get("error")
            said = f"{error.get('type')}: {error.get('message')}" if isinstance(error, dict) else ""
            raise BrokenPackage(f"with your code in it `import tinytorch` fails: {said[:300]}")

    def _cell(self, unit: Unit) -> None:
        halvings = 0 if unit.is_edited else min(len(self.transcript.ended), MOST_HALVINGS)
        patience = (unit.seconds or self.job.budget.cell_seconds) / 2**halvings
        self._begin(unit.id)
        self._expect("begin", patience, value=unit.id)
        end = self._expect("end", patience, value=unit.id)
        self.transcript.cells[unit.id] = {k: end.get(k) for k in ("text", "shown", "error")}

    def _test(self, test: Question) -> None:
        self._begin(test.id)
        self._send(id=test.id, source=test.source, seed=test.seed)
        patience = test.seconds or self.job.budget.cell_seconds
        self._expect("begin", patience, value=test.id)
        claims = []
        while True:
            message = self._receive(patience)
            if "site" in message and len(claims) < MOST_CLAIMS:
                claims.append(message)
            elif message.get("end") == test.id:
                break
            else:
                raise Ended("it interfered with its own grading")
        self.transcript.tests[test.id] = {"claims": claims, "error": message.get("error")}

    def _begin(self, unit: str) -> None:
        self.at = unit
        self.began = time.monotonic()
        self.looked = self.began
        self.compiler.begin()
        self.used_before = self.used = usage(self.child.pid)

    def _send(self, **message: Any) -> None:
        assert self.child.stdin is not None
        data = json.dumps(message).encode() + b"\n"
        os.set_blocking(self.child.stdin.fileno(), False)
        while data:
            try:
                data = data[os.write(self.child.stdin.fileno(), data) :]
            except BlockingIOError:
                self._watch(START_SECONDS)
                select.select([], [self.child.stdin], [], LOOK_SECONDS)
            except BrokenPipeError:
                raise self._gone() from None

    def _expect(self, name: str, seconds: float, value: object = True) -> dict[str, Any]:
        message = self._receive(seconds)
        if message.get(name) != value:
            raise Ended("it interfered with its own grading")
        return message

    def _receive(self, seconds: float) -> dict[str, Any]:
        """The next message; raises Ended if the process ends, or exceeds what it may use."""
        while True:
            if time.monotonic() - self.looked > LOOK_SECONDS:  # however much there is to read
                self._watch(seconds)
            try:
                message = self.lines.next(LOOK_SECONDS)
            except FloodError as error:
                raise Ended(str(error)) from None
            except EOFError:
                raise self._gone() from None
            if message is not None and "compiling" in message:
                self.compiler.says(message["compiling"] is True, usage(self.child.pid).cpu_seconds)
            elif message is not None:
                return message

    def _watch(self, seconds: float) -> None:
        if self.stop is not None and self.stop.is_set():
            raise InfrastructureError("the grader was stopped")
        now, used = time.monotonic(), usage(self.child.pid)
        self.looked, self.used = now, used
        compiled = self.compiler.seconds(used.cpu_seconds)
        cpu = used.cpu_seconds - self.used_before.cpu_seconds - compiled
        wall = now - self.began - WALL_FACTOR * compiled
        if used.memory_bytes > self.job.budget.memory_bytes:
            limit = self.job.budget.memory_bytes >> 20
            raise Ended(f"it took more than {limit} MiB of memory")
        if files_made(self.child.pid, WRITABLE) > self.job.budget.files:
            raise Ended(f"it made more than {self.job.budget.files:,} files")
        if cpu > seconds or wall > WALL_FACTOR * seconds:
            raise Ended(f"it did not finish in {seconds:g} s: is there an endless loop?")
        if now > self.deadline:
            raise Ended(self._too_long())

    def _too_long(self) -> str:
        return f"the notebook did not finish in {self.job.budget.seconds:g} s"

    def _gone(self) -> Ended:
        # by now, at most: /proc leaves out what is less than a tick, for each process
        cpu = self.used.cpu_seconds + time.monotonic() - self.looked + LOOK_SECONDS
        try:
            code = self.child.wait(EXIT_SECONDS)
        except TimeoutExpired:
            return Ended("its process closed its side of the pipe")
        killed = code in (-signal.SIGKILL, 128 + signal.SIGKILL)
        over = killed and cpu >= self.job.budget.limits().cpu_seconds  # and did not heed SIGXCPU
        if over or is_cpu_time(code):
            return Ended(self._too_long())
        how = "was killed" if killed else f"ended by itself (exit code {code})"
        return Ended(f"its process {how}", killed=killed)
