"""Cells in a fresh process; what they may do to it is in workspace/test_broken.py."""

from __future__ import annotations

from pathlib import Path

import pytest

from tito.cells import Cell, Outcome, run_attempts, run_cells
from tito.limits import Limits

LIMITS = Limits(seconds=600)


def run(tmp_path: Path, *sources: str, seconds: float = 300) -> list[Outcome]:
    """The outcomes of cells; the first has `seconds`."""
    limits = [seconds, *[300.0] * len(sources)]
    cells = [Cell(f"cell {i}", *each) for i, each in enumerate(zip(sources, limits, strict=False))]
    return run_cells(cells, cwd=tmp_path, path=[tmp_path], limits=LIMITS)


def test_one_namespace_and_an_error_stops_nothing(tmp_path: Path) -> None:
    first, second, third = run(tmp_path, "x = 1", "x = 2; y", "print(x)")
    assert first.ok and third.ok
    assert second.failure is not None
    assert (second.failure.type, second.failure.message) == (
        "NameError",
        "name 'y' is not defined",
    )
    assert third.output == "2\n"


def test_frames_name_cells_and_show_their_lines(tmp_path: Path) -> None:
    outcome = run(tmp_path, "def f(x):\n    return 1 / x", "f(0)")[1]
    assert outcome.failure is not None
    frames = [(f.cell, f.line, f.function, f.code) for f in outcome.failure.frames]
    assert frames == [
        ("cell 1", 1, "<module>", "f(0)"),
        ("cell 0", 2, "f", "return 1 / x"),
    ]


def test_futures_hold_for_later_cells(tmp_path: Path) -> None:
    code = "def f(x: Unknown): pass\nprint(f.__annotations__)"
    assert run(tmp_path, "from __future__ import annotations", code)[1].output == (
        "{'x': 'Unknown'}\n"
    )
    assert run(tmp_path, code)[0].failure is not None


def test_it_is_main_in_the_folder_with_the_path_given(tmp_path: Path) -> None:
    (tmp_path / "mine.py").write_text("WHERE = __file__")
    (outcome,) = run(tmp_path, "import mine, os; print(__name__, mine.WHERE, os.getcwd())")
    assert outcome.output == f"__main__ {tmp_path}/mine.py {tmp_path}\n"


def test_classes_can_be_pickled(tmp_path: Path) -> None:
    code = "import pickle\nclass A: pass\nassert type(pickle.loads(pickle.dumps(A()))) is A"
    assert run(tmp_path, code)[0].ok


def test_a_timeout_stops_its_cell_only(tmp_path: Path) -> None:
    first, second = run(tmp_path, "while True: pass", "print('next')", seconds=0.3)
    assert first.failure is not None
    assert (first.failure.type, first.failure.message) == (
        "CellTimeout",
        "not finished after 0.3 s",
    )
    assert second.output == "next\n"


def test_a_process_that_ends_is_the_outcome_of_its_cell(tmp_path: Path) -> None:
    outcomes = run(tmp_path, "x = 1", "import os; os._exit(7)", "x = 2")
    assert [outcome.ran for outcome in outcomes] == [True, True, False]
    assert outcomes[1].failure is not None
    assert outcomes[1].failure.message == "the process ended by itself with exit code 7"
    (killed,) = run(tmp_path, "import os; os.kill(os.getpid(), 40)")
    assert killed.failure is not None
    assert killed.failure.message == "the process crashed with signal 40: no message"


def test_threads_left_behind_hold_up_nothing(tmp_path: Path) -> None:
    code = "import threading, time\nthreading.Thread(target=time.sleep, args=(6000,)).start()"
    (outcome,) = run(tmp_path, code)
    assert outcome.ok


def test_of_a_long_output_the_end_is_kept(tmp_path: Path) -> None:
    (outcome,) = run(tmp_path, "print('x' * 10_000); print('last')")
    assert outcome.output.endswith("x\nlast\n")
    assert len(outcome.output) == 4_000


def attempts(tmp_path: Path, *sources: str, seconds: float = 300) -> list[Outcome]:
    """The outcomes of attempts of one cell each, which import `mine`."""
    (tmp_path / "mine.py").write_text("import os\nIMPORTED_BY = os.getpid()\nvalues = []")
    todo = [[Cell("cell", source, 300)] for source in sources]
    imports = ["import there_is_no_such_module", "import mine"]
    limits = Limits(seconds=seconds)
    return [one for (one,) in run_attempts(todo, imports, path=[tmp_path], limits=limits)]


def test_attempts_share_imports_and_nothing_else(tmp_path: Path) -> None:
    ask = (
        "import mine, os\nmine.values.append(1)\n"
        "print(mine.IMPORTED_BY, mine.values, 'x' in globals(), os.listdir('.'))\n"
        "x = open('left behind', 'w')"
    )
    first, second = attempts(tmp_path, ask, ask)
    assert first.ok and first.output == second.output
    assert first.output.endswith(" [1] False []\n")
    (alone,) = attempts(tmp_path, "import mine, os; print(mine.IMPORTED_BY == os.getpid())")
    assert alone.output == "False\n"


def test_an_import_that_fails_is_the_failure_of_its_cell(tmp_path: Path) -> None:
    (missing,) = attempts(tmp_path, "import there_is_no_such_module")
    assert missing.failure is not None and missing.failure.type == "ModuleNotFoundError"


@pytest.mark.slow
def test_attempts_that_die_or_do_not_end_stop_no_other(tmp_path: Path) -> None:
    endless = "while True:\n    try:\n        while True: pass\n    except BaseException: pass"
    died, crashed, stopped, last = attempts(
        tmp_path,
        "import os; os.write(2, b'no room'); os._exit(7)",
        "import os, signal; os.kill(os.getpid(), signal.SIGSEGV)",
        endless,
        "print('here')",
        seconds=3,
    )
    messages = [o.failure.message for o in (died, crashed, stopped) if o.failure is not None]
    assert messages == [
        "the process ended by itself with exit code 7: no room",
        "the process crashed with SIGSEGV: no message",
        "the process was stopped after 3 s: is there an endless loop?",
    ]
    assert last.output == "here\n"
