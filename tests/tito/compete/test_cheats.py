"""Entries that want a score without the work, each tried from the inside of the real sandbox."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from tests.system_tools import needs_sandbox
from tito.compete.entry import read_entry
from tito.compete.event import Event
from tito.compete.match import Failed, Launch, launches
from tito.compete.process import Contestant
from tito.compete.result import summarize

HONEST = "np.ascontiguousarray(a) @ np.ascontiguousarray(b)"
METHOD = """
import numpy as np

class Entry:
    def matmul(self, a, b):
{body}
"""

#: Methods, and the verdicts that each may get.
WRONG_ANSWERS = {
    "nothing": "return np.zeros((a.shape[0], b.shape[1]), np.float32)",
    "what is there already": "return np.full((a.shape[0], b.shape[1]), np.nan, np.float32)",
    "the answer before": """
        if not hasattr(self, "c"): self.c = a @ b
        return np.resize(self.c, (a.shape[0], b.shape[1]))""",
    "an answer by address": """
        self.known = getattr(self, "known", {})
        key = (a.ctypes.data, a.shape, b.shape)
        if key not in self.known: self.known[key] = a @ b
        c = self.known[key]
        self.known = {k[:1] + (k[1], k[2]): c for k in self.known}
        return self.known[key] if len(self.known) > 9 else np.resize(c, c.shape) * 1.0001""",
    "half precision": "return (a.astype(np.float16) @ b.astype(np.float16)).astype(np.float32)",
    "truncated mantissas": """
        cut = lambda x: (np.ascontiguousarray(x).view(np.uint32) & 0xFFFF0000).view(np.float32)
        return cut(a) @ cut(b)""",
    "fewer terms": "return np.ascontiguousarray(a[:, :-4]) @ np.ascontiguousarray(b[:-4])",
    "low rank": """
        q, _ = np.linalg.qr(a[:, :150].astype(np.float64))
        return (q @ (q.T @ a @ b)).astype(np.float32)""",
    "one element for all": "return np.broadcast_to(a[:1] @ b, (a.shape[0], b.shape[1]))",
    "a thread that finishes later": """
        import threading, time
        c = np.zeros((a.shape[0], b.shape[1]), np.float32)
        def later():
            time.sleep(0.002); c[...] = a @ b
        threading.Thread(target=later, daemon=True).start()
        return c""",
    "its inputs made easy": """
        a[...] = 0
        return a @ b""",
    "the answer of the checker": """
        import gc
        for x in gc.get_objects():
            if isinstance(x, dict) and "expected" in x: return x["expected"]
        return np.zeros((a.shape[0], b.shape[1]), np.float32)""",
}  # fmt: skip

PROTOCOL = {
    "saying that it is done, early": """
        import os
        for fd in range(3, 12):
            try: os.write(fd, b"d")
            except OSError: pass
        return a @ b""",
    "a flood": """
        import os
        for fd in range(3, 12):
            try: os.write(fd, b"d" * 4096)
            except OSError: pass
        return a @ b""",
    "a forged error": """
        import os
        for fd in range(3, 12):
            try: os.write(fd, b"e{]}\\n")
            except OSError: pass
        os._exit(0)""",
    "a helper process": """
        import os
        if os.fork() == 0: os._exit(0)
        return a @ b""",
    "another program": """
        import subprocess
        subprocess.run(["true"], check=True)
        return a @ b""",
    "the parent's memory": """
        import os
        open(f"/proc/{os.getppid()}/mem", "rb").read(1)
        return a @ b""",
    "the network": """
        import socket
        socket.create_connection(("127.0.0.1", 22), timeout=1)
        return a @ b""",
    "an answer kept on disk": """
        import os
        open(os.path.join(os.path.dirname(np.__file__), "kept"), "w")
        return a @ b""",
    "all the memory": "return np.ones(1 << 32)",
    "a loop without end": "while True: pass",
    "stopping itself": """
        import os, signal
        os.kill(os.getpid(), signal.SIGSTOP)
        return a @ b""",
    "leaving": """
        import os
        os._exit(0)""",
    "an error with a terminal's commands": 'raise ValueError("\\x1b[2J" + "x" * 100_000)',
    "another dtype": "return a.astype(np.float64) @ b",
    "another shape": "return (a @ b)[:-1]",
}  # fmt: skip

#: Right, and no faster for their trick than the honest copy of the baseline.
NO_GAIN = {
    "a clock that stands still": """
        import time
        time.perf_counter = time.monotonic = time.process_time = lambda: 0.0
        time.clock_gettime = time.clock_gettime_ns = lambda _: 0
        return np.matmul(a, b)""",
    "an array that computes when it is asked": """
        class Lazy:
            def __array__(self, dtype=None, copy=None): return np.matmul(a, b)
        return Lazy()""",
    "answers by content": """
        self.known = getattr(self, "known", {})
        key = hash(a.tobytes())
        if key not in self.known: self.known[key] = np.matmul(a, b)
        return self.known[key]""",
    "work in a thread": """
        import threading
        found = []
        thread = threading.Thread(target=lambda: found.append(np.matmul(a, b)))
        thread.start(); thread.join()
        return found[0]""",
    "noise on its output": """
        print("done " * 1000)
        return np.matmul(a, b)""",
}  # fmt: skip


def entry(folder: Path, body: str) -> Contestant:
    lines = body.strip("\n")
    if not lines.startswith("        "):
        lines = "        " + lines
    path = folder / "entry.py"
    path.write_text(METHOD.format(body=lines))
    return Contestant("entry", path, read_entry(path).class_name)


def failure(event: Event, contestant: Contestant) -> Failed:
    with pytest.raises(Failed) as caught:
        list(launches(event, [contestant], 1, seed=5))
    assert caught.value.contestant == "entry"
    return caught.value


@needs_sandbox
@pytest.mark.slow
@pytest.mark.parametrize("name", WRONG_ANSWERS)
def test_a_wrong_answer_is_wrong(name: str, open_event: Event, tmp_path: Path) -> None:
    found = failure(open_event, entry(tmp_path, WRONG_ANSWERS[name]))
    assert found.verdict == "wrong", found.text
    assert "the reference is" in found.text and "inputs" in found.text


@needs_sandbox
@pytest.mark.slow
@pytest.mark.parametrize("name", PROTOCOL)
def test_what_breaks_the_protocol_is_no_result(
    name: str, open_event: Event, tmp_path: Path
) -> None:
    found = failure(open_event, entry(tmp_path, PROTOCOL[name]))
    assert found.verdict in ("wrong", "error", "timeout", "memory", "rule"), found.text
    assert "\x1b" not in found.text and len(found.text) < 1000


@needs_sandbox
@pytest.mark.slow
@pytest.mark.parametrize("name", NO_GAIN)
def test_a_trick_gains_nothing(name: str, open_event: Event, tmp_path: Path) -> None:
    contestants = [Contestant("numpy"), entry(tmp_path, NO_GAIN[name])]
    measured = list(launches(open_event, contestants, 2, seed=5))
    assert summarize(measured, "numpy").scores[1].ratio < 1.25  # it is NumPy, on a busy machine


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
    assert set(os.listdir("/proc/self/fd")) == before


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
    found = failure(kernel_event, entry(tmp_path, body))
    assert found.verdict in ("rule", "error") and said in found.text
