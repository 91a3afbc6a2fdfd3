"""`tito compete sandbox` measures what the sandbox costs, on a machine that does nothing else.

How much it is depends on what else the machine does, so no test asserts it.
"""

from __future__ import annotations

import json

import pytest
from typer.testing import CliRunner

from tests.system_tools import needs_sandbox
from tests.tito.compete.test_commands import HONEST
from tito.cli import app
from tito.compete.event import Event


@needs_sandbox
@pytest.mark.slow
def test_the_command_says_the_ratio_and_whether_others_computed(open_event: Event) -> None:
    (open_event.folder / "starter.py").write_text(HONEST)
    options = ["compete", "sandbox", str(open_event.folder), "--launches", "2"]
    done = CliRunner().invoke(app, [*options, "--json"])
    assert done.exit_code in (0, 3), done.output  # 3: this machine was busy
    told = json.loads(done.stdout[done.stdout.index("{") :])
    assert [s["name"] for s in told["scores"]] == ["outside", "inside"]
    assert told["baseline"] == "outside" and told["scores"][1]["ratio"] > 0
    assert told["others"] >= 0.0
