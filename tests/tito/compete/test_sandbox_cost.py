"""What the sandbox costs: the same code inside and outside of it, in CPU time."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest
from typer.testing import CliRunner

from tests.system_tools import needs_sandbox
from tests.tito.compete.test_commands import HONEST
from tito.cli import app
from tito.compete.entry import read_entry
from tito.compete.event import Event
from tito.compete.match import Launch, launches
from tito.compete.process import Contestant
from tito.compete.result import Row, summarize

COST = 1.02
LAUNCHES, MORE = 10, 20


@needs_sandbox
@pytest.mark.slow
def test_inside_and_outside_differ_by_less_than_two_percent(
    open_event: Event, tmp_path: Path
) -> None:
    """The interval of ten launches meets 0.98 to 1.02; if not, that of thirty launches does.

    An interval of 95 % misses the true ratio once in twenty times, and one that was measured again
    once in four hundred. On a quiet machine it is narrow as well: a wide one meets everything.
    """
    path = tmp_path / "entry.py"
    path.write_text(HONEST)
    inside = Contestant("inside", path, read_entry(path).class_name)
    pair = [replace(inside, name="outside", is_confined=False), inside]
    event = replace(open_event, rounds=6)
    measured = list(launches(event, pair, LAUNCHES))
    if not _meets(_score(measured)):
        measured += launches(event, pair, MORE)
    found = _score(measured)
    assert _meets(found), found
    others = [launch.others for launch in measured]
    if max(others) < 0.1:
        assert found.high / found.low < COST * COST, found


def _score(measured: list[Launch]) -> Row:
    return summarize(measured, "outside").scores[1]


def _meets(found: Row) -> bool:
    return found.low <= COST and found.high >= 1 / COST


@needs_sandbox
@pytest.mark.slow
def test_the_command_says_the_ratio_and_whether_others_computed(open_event: Event) -> None:
    (open_event.folder / "starter.py").write_text(HONEST)
    options = ["compete", "sandbox", str(open_event.folder), "--launches", "2"]
    done = CliRunner().invoke(app, [*options, "--json"])
    assert done.exit_code in (0, 3), done.output  # 3: this machine was busy
    told = json.loads(done.stdout[done.stdout.index("{") :])
    assert [s["name"] for s in told["scores"]] == ["outside", "inside"]
    assert told["baseline"] == "outside" and 0.5 < told["scores"][1]["ratio"] < 2
    assert told["others"] >= 0.0
