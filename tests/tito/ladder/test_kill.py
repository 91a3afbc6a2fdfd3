"""SIGKILL of `tito ladder`: nothing that was kept is lost, and nothing goes on."""

from __future__ import annotations

import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.tito.ladder.test_ladder import ladder, tiers, write_backend
from tests.tito.test_limits import alive
from tests.tito.workspace.conftest import Student
from tito.ladder import history
from tito.workspace.folder import Workspace

#: `tito ladder` in a process of its own, for the clone of the tests.
LADDER = """
import sys
from pathlib import Path
from tito import scripts
scripts.ROOT = Path(sys.argv[1])
from tito.cli import app
app(["ladder", "mlp", "--rounds", "1", "--json", "--on", "mine"])
"""
ENDLESS = "from pathlib import Path; import os; Path('pid').write_text(str(os.getpid())); {loop}"


def test_a_line_that_was_cut_off_costs_no_other(student: Student) -> None:
    workspace = Workspace(student.root)
    history.add(workspace, {"step": "mlp", "tiers": [], "moment": "first"})
    with history.path_of(workspace).open("a", encoding="utf-8") as stream:
        stream.write('{"step": "mlp", "tie')
    for moment in ("second", "third"):
        history.add(workspace, {"step": "mlp", "tiers": [], "moment": moment})
    kept = [result["moment"] for result in history.load(workspace, "mlp")]
    assert kept == ["first", "second", "third"]


@pytest.mark.slow(seconds=8)
@pytest.mark.skipif(sys.platform != "linux", reason="the kernel of Linux ends a child")
def test_an_endless_loop_ends_with_tito(student: Student, repository: Path) -> None:
    write_backend(student, ENDLESS.format(loop="exec('while True: pass')"))
    noted = student.file("pid")
    run = subprocess.Popen(
        [sys.executable, "-c", LADDER, str(repository)], cwd=student.root, stdout=subprocess.DEVNULL
    )
    try:
        deadline = time.monotonic() + 120
        while not (noted.exists() and noted.read_text()):
            assert run.poll() is None and time.monotonic() < deadline
            time.sleep(0.1)
    finally:
        run.kill()
        run.wait()
    assert not alive(int(noted.read_text()))
    write_backend(student)
    code, result = ladder(student, "--on", "mine")
    assert code == 0 and tiers(result)["mine"]["status"] == "ok"
    assert len(history.load(Workspace(student.root), "mlp")) == 1
