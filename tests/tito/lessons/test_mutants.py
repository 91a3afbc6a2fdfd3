"""Mutants that no test notices are found, with those that are listed for nothing."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from typer.testing import CliRunner

from tito.cli import app
from tito.lessons import mutants as mutants_module
from tito.lessons.mistake import Equivalent
from tito.lessons.mutants import Mutants, count_mutants, run_mutants
from tito.scripts import ROOT

from .conftest import Repository

MINUS = "area: side < LEAST -> side <= LEAST"


def mutants(repository: Repository, *equivalent: Equivalent) -> Mutants:
    course = repository.course()
    lesson = course.lessons[0]
    return run_mutants(lesson, course.cells(lesson), equivalent, course.root)


@pytest.mark.slow
def test_a_survivor_is_found_until_it_is_caught_or_listed(repository: Repository) -> None:
    told = f"no test of area notices this change: {MINUS}"
    found = mutants(repository)
    assert told in found.findings and found.equivalent == 0
    others = [f for f in found.findings if f != told]
    listed = Equivalent("area", MINUS, "nobody has sides of 0")
    found = mutants(repository, listed)
    assert (list(found.findings), found.equivalent) == (others, 1)

    repository.edit("equal(area(()), 1)", "equal(area(()), 1)\nequal(area((0, 5)), 0)")
    assert told not in mutants(repository).findings
    caught = f"listed as equivalent in area, but area-values fails: {MINUS}"
    assert caught in mutants(repository, listed).findings


def test_lists_that_do_not_fit_are_found(repository: Repository) -> None:
    findings = mutants(
        repository,
        Equivalent("area", "area: a -> b", "right"),
        Equivalent("aera", MINUS, "right"),
        Equivalent("area", MINUS, " "),
    ).findings
    assert "listed as equivalent in area, but there is no such mutant: area: a -> b" in findings
    assert f"equivalent {MINUS!r} is for aera, which is no exercise" in findings
    assert f"equivalent {MINUS!r} has no reason" in findings


def test_endless_and_dying_mutants_are_caught(
    repository: Repository, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without `left -= 1` it never ends; another change ends the process."""
    monkeypatch.setattr(mutants_module, "LEAST_SECONDS", 0.3)
    body = "left = len(sides)\n    total = 1\n    while left > 0:\n        left -= 1\n"
    body += "        total *= sides[left]\n    if total < 0 - 10**9:\n        import os\n"
    body += "        os._exit(3)\n    return total"
    repository.edit("return math.prod(sides)", body, "tinytorch/sizes.py")
    findings = mutants(repository).findings
    assert not [f for f in findings if "left -= 1" in f or "if True" in f]


@pytest.mark.slow
def test_threads_that_wait_for_each_other_are_told_from_a_pause(tmp_path: Path) -> None:
    """Two pauses, together longer than the limit, are let through."""
    plan = {
        "imports": [],
        "exercise": "wait",
        "before": [{"name": "given", "source": "import threading, time\nlock = threading.Lock()"}],
        "after": [{"name": "works", "source": "wait()\nwait()"}],
        "solutions": ["def wait(): time.sleep(0.8)", "def wait(): lock.acquire()"],
        "seconds": (60.0, 2.0, 10.0, 1.5),
    }
    todo, events = tmp_path / "plan.json", tmp_path / "events.jsonl"
    todo.write_text(json.dumps(plan))
    subprocess.run(
        [sys.executable, mutants_module.CHILD, todo, events],
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        check=True,
    )
    verdicts = [json.loads(line) for line in events.read_text().splitlines()]
    assert [v["failed"] for v in verdicts] == ["", "the process"]
    assert verdicts[1]["why"] == "none of its threads ran for 1.5 s"


@pytest.mark.slow
def test_a_change_is_noticed_by_tests_of_later_exercises(repository: Repository) -> None:
    """A solution that uses it is affected too, and a test cell of that is asked."""
    use = "from tinytorch.sizes import area\n\n\n"
    use += 'def cube(side: int) -> int:\n    """side^3"""\n    return area((side, side, side))\n'
    repository.write("tinytorch/cubes.py", use)
    told = f"no test of area notices this change: {MINUS}"
    added = (
        "\n```{exercise}\n---\nid: cube\ndefinitions: [tinytorch/cubes.py::cube]\npoints: 1\n"
        "---\n```\n\n```{test}\n---\nid: cube-values\nfor: cube\npoints: 1\nchecks: cubes\n"
        "why: sizes\n---\nfrom tito.checks import equal\n\nequal(cube(SIZE), SIZE)\n```\n"
    )
    for size in (1, 0):
        repository.write("modules/01_sizes/lesson.md", _with(repository, added, size))
        assert (told in mutants(repository).findings) is (size == 1)


def _with(repository: Repository, added: str, size: int) -> str:
    text = repository.lesson_path.read_text("utf-8").partition("\n```{exercise}\n---\nid: cube")[0]
    return text.replace("points: 5", "points: 6") + added.replace("SIZE", str(size))


def test_a_reference_that_fails_is_said(repository: Repository) -> None:
    repository.edit("equal(area(()), 1)", "equal(area(()), 2)")
    (finding,) = [f for f in mutants(repository).findings if "judged" in f]
    assert "with the reference area-values fails: CheckError" in finding


@pytest.mark.slow
def test_the_command_counts_them(repository: Repository) -> None:
    course = repository.course()
    count = count_mutants(course.lessons[0], course.cells(course.lessons[0]))
    result = CliRunner().invoke(app, ["lessons", "prove", "--root", str(repository.root)])
    assert result.exit_code == 1
    assert f"01_sizes: no test of area notices this change: {MINUS}\n" in result.stderr
    names, values = (line.split() for line in result.stdout.splitlines())
    assert names == ["lesson", "attempts", "mutants", "equivalent", "seconds"]
    findings = result.stderr.count("01_sizes: ")
    assert values[:2] == ["01_sizes", str(findings)] and values[4:6] == [str(count), "0"]
