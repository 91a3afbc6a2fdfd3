from __future__ import annotations

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

from tests.tito.conftest import Tito
from tito import scripts
from tito.cli import app


def test_the_exit_code_is_that_of_the_script(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "milestones" / "04_1998_cnn"
    folder.mkdir(parents=True)
    (folder / "main.py").touch()
    (folder / "demo.py").write_text("raise SystemExit(1)")
    monkeypatch.setattr(scripts, "ROOT", tmp_path)
    assert CliRunner().invoke(app, ["demo"]).exit_code == 1


@pytest.mark.slow
def test_the_demo(tito: Tito) -> None:
    result = tito("demo", "--json")
    assert result.returncode == 0, result.stderr
    report = json.loads(result.stdout)
    assert report["results"]["test_accuracy"] >= 0.97
    assert set(report["results"]["step_seconds"]) == {"naive", "numpy", "optimized"}
    assert {"forward", "backward", "optimizer"} == set(report["results"]["profile"]["phases"])
