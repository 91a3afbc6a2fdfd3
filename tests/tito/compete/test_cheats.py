"""Entries that want a score without the work, each tried from the inside of the real sandbox."""

from __future__ import annotations

import os
import signal
import socket
import stat
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

from tests.system_tools import needs_sandbox, refuse, require_tool
from tests.tito.compete.cheats import HANGING, METHOD, NO_GAIN, PROTOCOL, WRONG_ANSWERS
from tito.compete import process
from tito.compete.entry import read_entry
from tito.compete.event import Array, Event
from tito.compete.match import PAGE_BYTES, SHIFT_BYTES, Failed, Launch, launches
from tito.compete.process import Contestant, Failure
from tito.compete.result import Row, summarize

ROOT = Path(__file__).parents[3]
PARTS = 3  # so that not all workers are there at once
GAIN = 1.05
HANGING_SECONDS = 8.0


@dataclass(frozen=True)
class Outside:
    """What a cheat looks for beyond the sandbox, and finds there if it can get out."""

    port: int
    name: str
    cache: Path


@pytest.fixture
def outside(tmp_path: Path) -> Iterator[Outside]:
    """Somebody who waits on a TCP port and on an abstract Unix socket, and a cache of kernels."""
    cache = tmp_path / "cache"
    cache.mkdir()
    name = f"tinytorch-{os.getpid()}"
    with socket.create_server(("127.0.0.1", 0)) as tcp, socket.socket(socket.AF_UNIX) as unix:
        unix.bind(f"\0{name}")
        unix.listen()
        port = tcp.getsockname()[1]
        socket.create_connection(("127.0.0.1", port), timeout=5).close()  # from here it can be done
        yield Outside(port, name, cache)
    assert not list(cache.iterdir())


def entry(folder: Path, body: str, outside: Outside | None = None, name: str = "entry") -> Path:
    """The file of an entry."""
    if outside is not None:
        found = {"PORT": str(outside.port), "SOCKET": outside.name, "CACHE": str(outside.cache)}
        for word, value in found.items():
            body = body.replace(word, value)
    lines = body.strip("\n")
    if "class Entry" not in lines:
        lines = METHOD.format(body=lines if lines.startswith("        ") else "        " + lines)
    path = folder / f"{name}.py"
    path.write_text(lines)
    return path


def contestant(path: Path) -> Contestant:
    return Contestant(path.stem, path, read_entry(path).class_name)


def failure(event: Event, contestant: Contestant) -> Failed:
    with pytest.raises(Failed) as caught:
        list(launches(event, [contestant], 1, seed=5))
    assert caught.value.contestant == "entry"
    return caught.value


def test_there_are_at_least_forty_cheats() -> None:
    bodies = [*WRONG_ANSWERS.values(), *PROTOCOL.values(), *NO_GAIN.values()]
    assert len({" ".join(body.split()) for body in bodies}) == len(bodies) >= 40


@needs_sandbox
@pytest.mark.slow
@pytest.mark.parametrize("name", WRONG_ANSWERS)
def test_a_wrong_answer_is_wrong(
    name: str, open_event: Event, tmp_path: Path, outside: Outside
) -> None:
    found = failure(open_event, contestant(entry(tmp_path, WRONG_ANSWERS[name], outside)))
    assert found.verdict == "wrong", found.text
    assert "the reference is" in found.text and "inputs" in found.text


@needs_sandbox
@pytest.mark.slow
@pytest.mark.parametrize("name", PROTOCOL)
def test_what_breaks_the_protocol_is_no_result(
    name: str, open_event: Event, tmp_path: Path, outside: Outside
) -> None:
    """And never said to be the machine's fault, which is measured again."""
    seconds = HANGING_SECONDS if name in HANGING else open_event.compile_seconds
    event = replace(open_event, compile_seconds=seconds)
    found = failure(event, contestant(entry(tmp_path, PROTOCOL[name], outside)))
    assert found.verdict in ("wrong", "error", "timeout", "memory", "rule"), found.text
    assert "\x1b" not in found.text and len(found.text) < 1000


def test_a_full_pipe_of_commands_holds_up_nobody() -> None:
    """Whoever may open its own pipe for writing can fill it, and the runner would wait for ever."""
    reading, writing = os.pipe()
    with os.fdopen(writing, "wb", buffering=0) as stdin, os.fdopen(reading, "rb"):
        worker = process.Worker.__new__(process.Worker)
        worker.process = SimpleNamespace(stdin=stdin)  # type: ignore[assignment]
        with pytest.raises(Failure, match="does not read") as caught:
            while True:
                worker._send(b"g" * 4096)
        assert caught.value.verdict == "rule"


@needs_sandbox
@pytest.mark.slow
@pytest.mark.parametrize("part", range(PARTS))
def test_a_trick_gains_less_than_five_percent(
    part: int, open_event: Event, tmp_path: Path, outside: Outside
) -> None:
    """Beside an entry that does the same without the trick.

    What seems to gain is measured again: a real gain stays, and is outside of the interval.
    """
    event = replace(open_event, rounds=4)
    honest = contestant(entry(tmp_path, "        return np.matmul(a, b)", name="honest"))
    left = [
        contestant(entry(tmp_path, NO_GAIN[name], outside, f"trick_{i}"))
        for i, name in list(enumerate(NO_GAIN))[part::PARTS]
    ]
    for count in (2, 8):
        scores, left = _scores(event, honest, left, count)
        left = [c for c in left if scores[c.name].ratio >= GAIN]
        if not left:
            return
    assert not {scores[c.name] for c in left if scores[c.name].low >= GAIN}


def _scores(
    event: Event, honest: Contestant, left: list[Contestant], count: int
) -> tuple[dict[str, Row], list[Contestant]]:
    """Scores of those that are not found out, and who they are."""
    while True:
        try:
            measured = list(launches(event, [honest, *left], count, seed=5))
        except Failed as found:
            assert found.verdict == "rule", found.text
            left = [c for c in left if c.name != found.contestant]
            continue
        return {s.name: s for s in summarize(measured, honest.name).scores}, left


WATCHED = """
        import threading
        def spin():
            while True: pass
        if not hasattr(self, "watcher"):
            self.watcher = threading.Thread(target=spin, daemon=True)
            self.watcher.start()
        return a @ b"""
WOKEN_SECONDS = 0.02


def _wake(worker: process.Worker) -> None:
    """Let it compute for a while, as a timer of its own could."""
    until = worker.cpu_seconds() + WOKEN_SECONDS
    os.kill(worker.pid, signal.SIGCONT)
    while worker.cpu_seconds() < until:
        time.sleep(1e-3)


@needs_sandbox
def test_what_computes_while_it_is_stopped_is_found(
    open_event: Event, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whatever woke it: here this test does, from outside. Near a call it is the call's time."""
    worker = process.Worker(contestant(entry(tmp_path, WATCHED)), open_event)
    try:
        problem = open_event.task.make(np.random.default_rng(1), open_event.cases[0])
        worker.measure(problem)

        def write_and_wake(place: Array, values: Array) -> None:
            place[...] = values
            _wake(worker)

        with monkeypatch.context() as patched:
            patched.setattr(process.np, "copyto", write_and_wake)
            spent, _ = worker.measure(problem)
        assert spent > WOKEN_SECONDS
        for _ in range(process.WOKEN_STOPS - 1):
            _wake(worker)
            worker.measure(problem)
        _wake(worker)
        with pytest.raises(process.Failure, match="ms while it was stopped") as found:
            worker.measure(problem)
        assert found.value.verdict == "rule"
    finally:
        worker.close()


STATE = """
        import gc
        import numpy as np
        found = np.empty((a.shape[0], b.shape[1]), np.float32)
        found[...] = found.ctypes.data % 4096
        found[0, :2] = gc.get_count()[0], sum(g["collections"] for g in gc.get_stats())
        self.kept = getattr(self, "kept", []) + [[] for _ in range(100)]
        return found"""


@needs_sandbox
def test_the_collector_is_as_far_in_every_call_and_arrays_lie_elsewhere_in_every_launch(
    open_event: Event, tmp_path: Path
) -> None:
    """Its turns fell into the same call of each launch: a copy of the baseline was 13 % faster."""
    problem = open_event.task.make(np.random.default_rng(1), open_event.cases[0])
    places = set()
    for shift in range(SHIFT_BYTES, SHIFT_BYTES + PAGE_BYTES, 1008):
        worker = process.Worker(contestant(entry(tmp_path, STATE)), open_event, shift=shift)
        try:
            called = [worker.measure(problem)[1][0] for _ in range(12)]
        finally:
            worker.close()
        assert len({int(found[0, 0]) for found in called[2:]}) == 1, "objects since a collection"
        ran = np.diff([int(found[0, 1]) for found in called[2:]])
        assert set(ran) == {1}, "collections from call to call: the worker's own"
        places.add(int(called[-1][1, 0]))
    assert len(places) > 2


@needs_sandbox
@pytest.mark.slow(seconds=65)
def test_the_same_as_an_ordinary_user() -> None:
    """Where this runs as root: all of the above once more, as the user `nobody`."""
    if os.geteuid() != 0:
        refuse("the cheats ran as this ordinary user: run the tests as root to have both")
    setpriv, bwrap = require_tool("setpriv"), require_tool("bwrap")
    with tempfile.TemporaryDirectory() as name:
        home = Path(name)
        home.chmod(0o777)
        command = [
            bwrap, "--die-with-parent", "--dev-bind", "/", "/",
            *_enterable(ROOT, Path(sys.prefix), Path(sys.base_prefix)),
            setpriv, "--reuid=65534", "--regid=65534", "--clear-groups",
            sys.executable, "-m", "pytest", "-n", "0", "-q", "-x", "-p", "no:cacheprovider",
            "--basetemp", home / "pytest", "tests/tito/compete/test_cheats.py",
            "-m", "slow or not slow", "-k", "wrong_answer or breaks_the_protocol or trick",
        ]  # fmt: skip
        own = {"HOME": name, "TINYTORCH_REQUIRE_TOOLS": "1", "PYTHONDONTWRITEBYTECODE": "1",
               "HYPOTHESIS_STORAGE_DIRECTORY": name}  # fmt: skip
        done = subprocess.run(
            list(map(str, command)), cwd=ROOT, env=os.environ | own, capture_output=True, text=True
        )
    assert done.returncode == 0, done.stdout + done.stderr
    assert f"{len(WRONG_ANSWERS) + len(PROTOCOL) + PARTS} passed" in done.stdout


def _enterable(*folders: Path) -> list[str]:
    """Arguments of bwrap that show these folders to all, where a parent of theirs does not."""
    closed = {p for f in folders for p in f.parents if not p.stat().st_mode & stat.S_IXOTH}
    outermost = [p for p in sorted(closed) if not closed & set(p.parents)]
    hidden = sorted(f for f in folders if closed & set(f.parents))
    between = {p for f in hidden for p in f.parents if set(outermost) & set(p.parents)}
    return [
        *(word for p in outermost for word in ("--perms", "0755", "--tmpfs", str(p))),
        *(word for p in sorted(between) for word in ("--perms", "0755", "--dir", str(p))),
        *(word for f in hidden for word in ("--ro-bind", str(f), str(f))),
    ]


@needs_sandbox
def test_an_honest_entry_is_measured_and_its_process_is_gone(
    kernel_event: Event, tmp_path: Path
) -> None:
    path = tmp_path / "entry.py"
    path.write_text(
        "import numpy as np\nclass Entry:\n    def matmul(self, a, b):\n"
        "        c = np.zeros((a.shape[0], b.shape[1]), np.float32)\n"
        "        for k in range(a.shape[1]):\n            c += a[:, k, None] * b[k]\n"
        "        return c\n"
    )
    before = set(os.listdir("/proc/self/fd"))
    found: list[Launch] = list(
        launches(kernel_event, [Contestant("numpy"), Contestant("entry", path, "Entry")], 1)
    )
    result = summarize(found, "numpy")
    assert 0 < result.scores[1].ratio < 1
    assert set(os.listdir("/proc/self/fd")) <= before  # others may be closed meanwhile


@needs_sandbox
@pytest.mark.parametrize(
    ("body", "said"),
    [
        ("return np.dot(a, b)", "np.dot is a library's"),
        ("return __builtins__['__import__']('os')", "not among what may be imported"),
        ("return eval('a')", "name 'eval' is not defined"),
    ],
)
def test_the_list_holds_at_run_time_too(
    body: str, said: str, kernel_event: Event, tmp_path: Path
) -> None:
    """Even where the syntax tree would not have shown it."""
    found = failure(kernel_event, contestant(entry(tmp_path, body)))
    assert found.verdict in ("rule", "error") and said in found.text
