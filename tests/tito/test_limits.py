from __future__ import annotations

import os
import signal
import sys
import time
from pathlib import Path

import pytest

from tito.limits import Finished, Limits, is_cpu_time, limited, run

MIB = 1 << 20
HANG = 300.0  # seconds; what is quick ends before, however busy the machine
Q = Limits(seconds=HANG)


def python(code: str) -> list[str]:
    return [sys.executable, "-c", code]


def test_output_and_exit_code_come_back() -> None:
    finished = run(python("import sys; print('out'); print('err', file=sys.stderr); exit(3)"), Q)
    assert (finished.code, finished.stdout, finished.stderr) == (3, "out\n", "err\n")
    assert not finished.timed_out


def test_wall_time_ends_it_and_what_it_printed_is_kept() -> None:
    finished = stopped("import time; print('begun', flush=True); time.sleep(6000)")
    assert finished.stdout == "begun\n"


def stopped(code: str) -> Finished:
    """How code without an end was stopped, after it had printed something."""
    for seconds in (0.5, 5.0, 50.0):  # on a busy machine Python starts late
        finished = run(python(code), Limits(seconds=seconds))
        assert finished.timed_out
        if finished.stdout:
            break
    return finished


def test_a_process_that_ignores_signals_and_its_children_end_too() -> None:
    code = """
import signal, subprocess, sys, time
for each in (signal.SIGTERM, signal.SIGINT, signal.SIGALRM):
    signal.signal(each, signal.SIG_IGN)
child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(6000)"])
print(child.pid, flush=True)
time.sleep(6000)
"""
    assert not alive(int(stopped(code).stdout))


def alive(pid: int) -> bool:
    for _ in range(100):  # a killed orphan is a zombie until init collects it
        try:
            os.kill(pid, 0)
        except ProcessLookupError:
            return False
        stat = Path(f"/proc/{pid}/stat")
        if stat.exists() and stat.read_text().rpartition(")")[2].split()[0] == "Z":
            return False
        time.sleep(0.05)
    return True


def test_a_child_left_behind_does_not_hold_us_up() -> None:
    code = "import subprocess as s, sys; s.Popen([sys.executable, '-c', 'input()'], stdin=s.PIPE)"
    assert run(python(code), Q).code == 0


def test_memory() -> None:
    finished = run(python("bytearray(2 << 30)"), Limits(seconds=HANG, memory_bytes=512 * MIB))
    assert finished.code == 1
    assert "MemoryError" in finished.stderr


def test_cpu_time() -> None:
    finished = run(python("while True: pass"), Limits(seconds=HANG, cpu_seconds=1))
    assert finished.code == -signal.SIGXCPU
    assert is_cpu_time(finished.code)
    assert not finished.timed_out


def test_cpu_time_of_what_does_not_heed_the_signal() -> None:
    code = "import signal\nsignal.signal(signal.SIGXCPU, signal.SIG_IGN)\nwhile True: pass"
    finished = run(python(code), Limits(seconds=HANG, cpu_seconds=1))
    assert finished.code == -signal.SIGKILL
    assert not is_cpu_time(finished.code)


def test_cpu_time_is_told_from_a_kill_and_from_an_exit_code() -> None:
    for code in ("import os; os.kill(os.getpid(), 9)", "exit(1)", "exit(24)"):
        assert not is_cpu_time(run(python(code), Q).code)


def test_file_size(tmp_path: Path) -> None:
    path = str(tmp_path / "big")
    code = f"open({path!r}, 'wb').write(bytes({4 * MIB}))"
    finished = run(python(code), Limits(seconds=HANG, file_bytes=MIB))
    assert finished.code == 1
    assert "File too large" in finished.stderr
    assert (tmp_path / "big").stat().st_size <= MIB


def test_open_files() -> None:
    code = "files = [open('/dev/null') for _ in range(100)]"
    finished = run(python(code), Limits(seconds=HANG, open_files=40))
    assert "Too many open files" in finished.stderr


def test_of_a_long_output_the_ends_are_kept() -> None:
    code = "print('first'); print('x' * 5000); print('last')"
    finished = run(python(code), Q, output_bytes=1000)
    assert finished.stdout.startswith("first\n")
    assert finished.stdout.endswith("last\n")
    assert "[... 4,012 bytes left out ...]" in finished.stdout


def test_an_output_without_end_is_stopped() -> None:
    limits = Limits(seconds=HANG, file_bytes=2 * MIB)
    finished = run(python("while True: print('x' * 10000)"), limits)
    assert finished.code in (1, 120)  # 120: what is in the buffer at the end is too much as well
    assert not finished.timed_out


def test_a_limit_above_the_hard_one_is_that_one() -> None:
    inner = limited(
        python("import resource; print(resource.getrlimit(resource.RLIMIT_NOFILE))"),
        Limits(seconds=1, open_files=100),
    )
    assert run(inner, Limits(seconds=HANG, open_files=50)).stdout == "(50, 50)\n"


def test_without_posix_it_refuses(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tito.limits.os.name", "nt")
    with pytest.raises(OSError, match="Linux, macOS or WSL"):
        limited(["ls"], Q)
