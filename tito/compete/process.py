"""The parent's side of a worker: it runs while it is measured, and at no other time.

One measured call: the worker is stopped; its inputs are written, and its outputs filled with NaN;
it goes on until it says that it is done, and is stopped again. Its CPU time is read from outside,
before its inputs are there and after its outputs are copied: what any of its threads computes in
between is part of the call's time, while it was stopped as well.

A stopped process can be woken by a timer of its own that sends SIGCONT (timer_create(2)), and then
disturb the others while they are measured. So its CPU time is compared as well from one stop to
when it may go on. A few such stops are let pass; they gain nothing.

A thread is said to be stopped a moment before it leaves its core, and only then is its time charged
to it: read in between, a short call took no time at all, or that of its preparation as well. So we
run for a moment on each core where a thread of it stopped: where we run, it does not.
"""

from __future__ import annotations

import fcntl
import json
import os
import select
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import IO

import numpy as np

from tito.compete.event import Array, Event, Problem
from tito.compete.memory import Arena, place
from tito.limits import Limits, is_cpu_time
from tito.sandbox import WRITABLE, Sandbox, for_python
from tito.usage import files_made, tree

BASELINES = ("numpy", "naive", "blocked", "optimized", "torch")
COMPILED = ("blocked", "optimized")  # whose kernels are kept on disk; an entry's never are
ANSWER_BYTES, SAID_LETTERS = 20_000, 500
STOP_SECONDS = 5.0
POLL_SECONDS = 5e-5  # a worker can stop only when it gets a core: we must not keep it
#: Of 12,000 stops of an honest process on a busy virtual machine the longest had 46 us; one of
#: 0.3 ms was met in another study, so `WOKEN_STOPS` longer ones are let pass in a launch.
STOPPED_CPU_SECONDS = 1e-4
WOKEN_STOPS = 2
STATE, PROCESSOR = 0, 36  # of proc_pid_stat(5), counted from the state
PREPARE_SECONDS = 20.0
CPU_SECONDS = 3600
OPEN_FILES, FILE_BYTES, THREADS = 256, 256 << 20, 256
MOST_FILES, LOOK_SECONDS = 10_000, 0.5


class Failure(Exception):
    """How a contestant failed.

    Attributes:
        verdict: "wrong", "error", "timeout", "memory" or "rule"; "infrastructure" if we did.
    """

    def __init__(self, verdict: str, text: str) -> None:
        super().__init__(text)
        self.verdict = verdict


@dataclass(frozen=True)
class Contestant:
    """Who is measured: an entry's file, or a baseline by name.

    Attributes:
        name: in tables.
        entry: the file; None for a baseline.
        class_name: in that file.
        is_confined: False runs it outside of the sandbox, whatever the others do.
    """

    name: str
    entry: Path | None = None
    class_name: str = ""
    is_confined: bool = True

    @property
    def is_naive(self) -> bool:
        """Whether it is the baseline of loops in Python."""
        return self.entry is None and self.name == "naive"

    @property
    def is_compiled(self) -> bool:
        """Whether it is a baseline whose kernels are kept on disk."""
        return self.entry is None and self.name in COMPILED


#: What a worker runs. What is allocated from the first line on, holes that imports leave included,
#: lies behind it.
START = (
    "import sys; kept = bytearray(int(sys.argv[2])); from tito.compete.worker import main; main()"
)


class Worker:
    """A contestant in a process of its own.

    Args:
        shift: bytes that it allocates first. Where a large array begins within its page is the
            same in all processes of the same code, and another with other code.

    Raises:
        Failure: it did not get ready.
    """

    def __init__(
        self,
        contestant: Contestant,
        event: Event,
        *,
        confined: bool = True,
        cores: set[int] | None = None,
        shift: int = 0,
    ) -> None:
        self.event = event
        self._woken: list[float] = []  # seconds that it computed in a stop
        self.descriptor = _shared_memory(event.shared_bytes)
        self.arena = Arena(self.descriptor, event.shared_bytes)
        box: Sandbox = for_python("tinytorch", "tito", confined=confined, may_fork=False,
                                   threads=event.threads)  # fmt: skip
        kernels = _kernels() if contestant.is_compiled else None
        if kernels is not None:
            box = replace(box, visible=(*box.visible, kernels))
        task = event.folder / "task.py"
        files = {"task.py": task} | ({"entry.py": contestant.entry} if contestant.entry else {})
        settings = {
            "memory": self.descriptor, "bytes": event.shared_bytes, "division": event.division,
            "baseline": None if contestant.entry else contestant.name,
            "class": contestant.class_name, "threads": event.threads,
            "kernels": str(kernels) if kernels else None,
            "task": "task.py" if confined else str(task),
            "entry": "entry.py" if confined else str(contestant.entry),
        }  # fmt: skip
        bounds = Limits(
            seconds=event.compile_seconds, cpu_seconds=CPU_SECONDS,
            memory_bytes=event.memory_bytes, file_bytes=FILE_BYTES, open_files=OPEN_FILES,
            processes=THREADS if confined else None,
        )  # fmt: skip
        command = [sys.executable, "-I", "-c", START, json.dumps(settings), str(shift)]
        with tempfile.TemporaryFile() as printed:
            with _on(cores):
                self.process = box.start(
                    command, bounds, files=files, stderr=printed, keep=(self.descriptor,)
                )
            try:
                self._begun(event.compile_seconds, printed)
                self._expect(b"p", event.compile_seconds)
                self.pid = tree(self.process.pid)[-1]
                self.stop()
            except BaseException:
                self.close()
                raise

    def measure(self, problem: Problem, seconds: float | None = None) -> tuple[float, list[Array]]:
        """One call: its time in seconds on the event's clock, and copies of its outputs.

        Raises:
            Failure: it did not answer as agreed, or not in time.
        """
        kinds = [(a.shape, a.dtype, _is_transposed(a)) for a in problem.inputs]
        kinds += [(shape, np.dtype(dtype), False) for shape, dtype in problem.outputs]
        placed = place(kinds, self.event.shared_bytes)
        inputs, outputs = placed[: len(problem.inputs)], placed[len(problem.inputs) :]
        request = {"inputs": inputs, "outputs": outputs, "case": problem.parameters}
        self._count_files()
        self._send(json.dumps(request).encode() + b"\n")
        self.go_on()
        self._expect(b"p", PREPARE_SECONDS)
        self.stop()
        for where, array in zip(inputs, problem.inputs, strict=True):
            np.copyto(self.arena.view(where), array)
        for where in outputs:
            self.arena.view(where).fill(np.nan)
        self._send(b"g")
        computed, began = self._stopped_at, time.perf_counter()
        ahead = self.go_on()
        self._expect(b"d", seconds or self.event.call_seconds)  # what it says outlives its process
        self.stop()
        ended = time.perf_counter()
        if self._has_more():
            raise Failure("rule", "it says more than the protocol has: more than one answer")
        found = [self.arena.view(where).copy() for where in outputs]
        if self.event.clock == "wall":  # it may have been reading before, and be writing after
            return ahead + (ended - began) + self._since_stop(), found
        return self.cpu_seconds() - computed, found

    def stop(self) -> None:
        """Stop all of its threads, and wait until they are stopped."""
        deadline = time.monotonic() + STOP_SECONDS
        self._signal(signal.SIGSTOP)
        while (cores := _stopped_on(self.pid)) is None:
            if time.monotonic() > deadline:
                raise Failure("infrastructure", "the worker could not be stopped")
            time.sleep(POLL_SECONDS)
            self._signal(signal.SIGSTOP)  # it may have been woken
        _visit(cores)
        self._stopped_at = self.cpu_seconds()

    def go_on(self) -> float:
        """Let it run; returns for how many seconds it computed since it was stopped.

        Raises:
            Failure: it did so in more than a few stops.
        """
        ran = self._since_stop()
        if ran > STOPPED_CPU_SECONDS:
            self._woken.append(ran)
        if len(self._woken) > WOKEN_STOPS:
            told = ", ".join(f"{1e3 * ran:.1f}" for ran in self._woken)
            raise Failure("rule", f"it computed for {told} ms while it was stopped")
        self._signal(signal.SIGCONT)
        return ran

    def _since_stop(self) -> float:
        return self.cpu_seconds() - self._stopped_at

    def close(self) -> None:
        """End it, whatever it is doing."""
        for pid in tree(self.process.pid)[::-1]:
            try:
                os.kill(pid, signal.SIGKILL)
            except ProcessLookupError:
                continue
        self.process.wait()
        for pipe in (self.process.stdin, self.process.stdout):
            if pipe is not None:
                try:
                    pipe.close()
                except BrokenPipeError:
                    continue
        os.close(self.descriptor)

    def cpu_seconds(self) -> float:
        """CPU time of all of its threads until now."""
        try:  # the process's CPU clock, as pthread_getcpuclockid(3) numbers it
            return time.clock_gettime_ns((~self.pid << 3) | 2) / 1e9
        except OSError:
            raise self._ended() from None

    def _signal(self, number: int) -> None:
        try:
            os.kill(self.pid, number)
        except ProcessLookupError:
            raise self._ended() from None

    def _send(self, data: bytes) -> None:
        assert self.process.stdin is not None
        descriptor = self.process.stdin.fileno()
        os.set_blocking(descriptor, False)  # it may fill the pipe itself, and then never read
        try:
            sent = os.write(descriptor, data)
        except BlockingIOError:
            sent = 0
        except BrokenPipeError:
            raise self._ended() from None
        if sent < len(data):
            raise Failure("rule", "the pipe of its commands is full: it does not read them")

    def _begun(self, seconds: float, printed: IO[bytes]) -> None:
        """Wait until it begins to load an entry: until then only our code can fail, and print."""
        try:
            self._expect(b"b", seconds)
        except Failure as error:
            said = f"; it printed: {line}" if (line := _last_line(printed)) else ""
            text = f"{error}, before anything of a contestant was loaded{said}"
            raise Failure("infrastructure", text) from None

    def _expect(self, answer: bytes, seconds: float) -> None:
        deadline = time.monotonic() + seconds
        found = self._read(1, deadline)
        if found == answer:
            return
        if found == b"":
            raise self._ended()
        if found != b"e":
            raise Failure("rule", f"it answered {found!r} where the protocol has {answer!r}")
        said = b""
        while not said.endswith(b"\n") and len(said) < ANSWER_BYTES:
            more = self._read(4096, deadline)
            if not more:
                break
            said += more
        raise _failure_of(said)

    def _read(self, count: int, deadline: float) -> bytes:
        assert self.process.stdout is not None
        descriptor = self.process.stdout.fileno()
        while (left := deadline - time.monotonic()) > 0:
            if select.select([descriptor], [], [], min(left, LOOK_SECONDS))[0]:
                return os.read(descriptor, count)
            self._count_files()
        raise Failure("timeout", "it did not answer within its time")

    def _count_files(self) -> None:
        """No limit of a process holds for these, and each takes memory of the kernel."""
        if files_made(self.process.pid, WRITABLE) > MOST_FILES:
            raise Failure("memory", f"it made more than {MOST_FILES:,} files")

    def _has_more(self) -> bool:
        return bool(select.select([self.process.stdout], [], [], 0)[0])

    def _ended(self) -> Failure:
        try:
            code = self.process.wait(timeout=STOP_SECONDS)
        except subprocess.TimeoutExpired:
            return Failure("rule", "it closed the pipe of its answers, and went on")
        if is_cpu_time(code):
            return Failure("timeout", f"it used more than {CPU_SECONDS} s of processor time")
        if code in (-signal.SIGKILL, 128 + signal.SIGKILL):
            return Failure("memory", "the system ended it: most likely for its memory")
        return Failure("error", f"its process ended with code {code} and no answer")


def _shared_memory(size: int) -> int:
    """A file in memory that nobody can make shorter: reading what was cut off would end us."""
    descriptor = os.memfd_create("compete", os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
    os.ftruncate(descriptor, size)
    seals = fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_GROW | fcntl.F_SEAL_SEAL
    fcntl.fcntl(descriptor, fcntl.F_ADD_SEALS, seals)
    return descriptor


def _kernels() -> Path | None:
    """Where this user's compiled kernels are, to be read; None if there are none."""
    from tinytorch.files import cache_root

    folder = cache_root()
    return folder if folder.is_dir() else None


def _failure_of(said: bytes) -> Failure:
    """What a worker says of an error. It may be forged, and is text for the entry's author."""
    try:
        told = json.loads(said)
        kind, text = _printable(str(told["error"])), _printable(str(told["text"]))
    except (ValueError, TypeError, KeyError, RecursionError):
        return Failure("rule", "its answer is not one of the protocol's")
    if kind == "MemoryError":
        return Failure("memory", "it wanted more memory than it has")
    if kind in ("ImportError", "PermissionError"):
        return Failure("rule", text)
    return Failure("error", f"{kind}: {text}")


def _printable(text: str) -> str:
    """Without what a terminal would obey."""
    return "".join(c for c in text if c.isprintable())[:SAID_LETTERS]


def _last_line(printed: IO[bytes]) -> str:
    """The last line that is not empty, or its end."""
    printed.seek(-min(SAID_LETTERS, printed.seek(0, os.SEEK_END)), os.SEEK_END)
    lines = printed.read().decode(errors="replace").split("\n")
    return _printable(next((line for line in reversed(lines) if line.strip()), ""))


def _is_transposed(array: Array) -> bool:
    return array.ndim >= 2 and not array.flags.c_contiguous and array.mT.flags.c_contiguous


def _stopped_on(pid: int) -> set[int] | None:
    """The cores on which its threads stopped (state T in proc(5)) or ended; None if one runs."""
    try:
        threads = os.listdir(f"/proc/{pid}/task")
    except FileNotFoundError:
        return set()
    cores = set()
    for thread in threads:
        try:
            text = Path(f"/proc/{pid}/task/{thread}/stat").read_text("utf-8", errors="replace")
        except OSError:
            continue
        fields = text.rpartition(")")[2].split()  # from the third on
        if fields[STATE] not in "TtZX":
            return None
        cores.add(int(fields[PROCESSOR]))
    return cores


@contextmanager
def _on(cores: set[int] | None) -> Iterator[None]:
    """What is started in this block runs on these cores, with each of its threads: an entry that
    makes one while it is loaded would compute where the machine has faster ones."""
    own = os.sched_getaffinity(0)
    os.sched_setaffinity(0, cores or own)
    try:
        yield
    finally:
        os.sched_setaffinity(0, own)


def _visit(cores: set[int]) -> None:
    """Run for a moment on each core, and leave them again: a worker's caches are not ours."""
    own = os.sched_getaffinity(0)
    try:
        for core in cores:
            os.sched_setaffinity(0, {core})
        os.sched_setaffinity(0, own - cores or own)
    finally:
        os.sched_setaffinity(0, own)
