from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tito import INTERRUPTED, scripts

POOL = """
import multiprocessing, sys
from helper import ONE

class Number(int):
    pass

def double(x):
    return Number(2 * x)

if __name__ == "__main__":
    with multiprocessing.get_context("spawn").Pool(1) as pool:
        print(sum(pool.map(double, range(4))) + ONE, sys.argv, __file__, __name__)
"""
WAITS = """
import sys, time
try:
    print("begun", flush=True)
    time.sleep(60)
finally:
    time.sleep(0.6)
    print("cleaned up", flush=True)
"""
RUNS = """
import sys
from tito import scripts
sys.exit(scripts.run_script(sys.argv[1], [])[0])
"""


@pytest.fixture
def script(tmp_path: Path) -> Path:
    return tmp_path / "script.py"


def test_a_script_is_the_main_module_as_with_python_itself(script: Path) -> None:
    script.with_name("helper.py").write_text("ONE = 1\n")
    script.write_text(POOL)
    code, text = scripts.run_script(script, ["a", "--b"], capture=True)
    assert (code, text) == (0, f"13 {[str(script), 'a', '--b']} {script} __main__\n")
    alone = subprocess.run([sys.executable, script, "a", "--b"], capture_output=True, text=True)
    assert text == alone.stdout
    link = (
        script.parent / "elsewhere" / "link.py"
    )  # what is beside a script is found by the real one
    link.parent.mkdir()
    link.symlink_to(script)
    assert scripts.run_script(link, [], capture=True)[0] == 0


@pytest.mark.parametrize(
    "source",
    [
        "def f():\n    1 / 0\n\nf()\n",
        "try:\n    1 / 0\nexcept ZeroDivisionError:\n    raise ValueError('what') from None\n",
        "try:\n    1 / 0\nexcept ZeroDivisionError:\n    [][0]\n",
        "x = (1,\n",
        "raise SystemExit('words')\n",
        "raise SystemExit(3)\n",
    ],
)
def test_an_error_is_shown_as_python_shows_it(
    script: Path, capfd: pytest.CaptureFixture[str], source: str
) -> None:
    script.write_text(source)
    alone = subprocess.run([sys.executable, script], capture_output=True, text=True)
    code, _ = scripts.run_script(script, [])
    assert (code, capfd.readouterr().err) == (alone.returncode, alone.stderr)


def test_at_ctrl_c_a_script_cleans_up_and_says_nothing(script: Path) -> None:
    script.write_text(WAITS)
    process = subprocess.Popen(
        [sys.executable, "-c", RUNS, script],
        env={**os.environ, "PYTHONPATH": str(scripts.ROOT)},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    assert process.stdout is not None
    assert process.stdout.readline() == "begun\n"
    os.killpg(process.pid, signal.SIGINT)  # as a terminal does
    assert process.communicate(timeout=60) == ("cleaned up\n", "")
    assert process.returncode == INTERRUPTED


def test_a_script_that_does_not_end_at_ctrl_c_is_killed(
    script: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(scripts, "END_WITHIN_S", 0.1)
    script.write_text(
        "import os, signal, time\nsignal.signal(signal.SIGINT, signal.SIG_IGN)\n"
        "os.kill(os.getppid(), signal.SIGINT)\ntime.sleep(60)\n"
    )
    started = time.monotonic()
    assert scripts.run_script(script, []) == (INTERRUPTED, "")
    assert time.monotonic() - started < 30
