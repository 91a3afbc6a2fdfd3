from __future__ import annotations

import json
from pathlib import Path

import pytest
import typer
from typer.testing import CliRunner

from tests.tito.conftest import Tito
from tito import milestone, scripts
from tito.cli import app

runner = CliRunner()


@pytest.fixture
def shelf(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A repository with one milestone, which prints its arguments and fails."""
    folder = tmp_path / "milestones" / "07_2017_transformer"
    folder.mkdir(parents=True)
    (folder / "main.py").write_text('"""Attention.\n\nMore."""\nimport sys\nsys.exit(7)\n')
    (tmp_path / "milestones" / "notes").mkdir()
    monkeypatch.setattr(scripts, "ROOT", tmp_path)
    return folder


def test_the_list_is_made_from_the_folders(shelf: Path) -> None:
    result = runner.invoke(app, ["milestone", "list", "--json"])
    assert json.loads(result.output) == [
        {
            "number": "07",
            "year": "2017",
            "slug": "transformer",
            "title": "Attention",
            "folder": "07_2017_transformer",
        }
    ]
    assert "2017  transformer  Attention" in runner.invoke(app, ["milestone", "list"]).output


def test_the_real_list() -> None:
    assert [m.slug for m in milestone.milestones()][:4] == ["perceptron", "xor", "mlp", "cnn"]
    assert all(m.title for m in milestone.milestones())


@pytest.mark.parametrize("name", ["04", "4", "cnn", "CNN", "1998", "04_1998_cnn"])
def test_a_milestone_answers_to_its_names(name: str) -> None:
    assert milestone.find(name).folder == "04_1998_cnn"


def test_an_unknown_milestone_suggests_and_lists() -> None:
    result = runner.invoke(app, ["milestone", "run", "xro"])
    assert result.exit_code == 2
    assert "there is no milestone 'xro'. Did you mean 'xor'?" in result.output
    assert "There are: perceptron, xor, mlp, cnn" in result.output


def test_the_exit_code_is_that_of_the_script(shelf: Path) -> None:
    assert runner.invoke(app, ["milestone", "run", "transformer"]).exit_code == 7


def test_a_script_ended_by_a_signal_is_a_failure(shelf: Path) -> None:
    (shelf / "main.py").write_text("import os, signal; os.kill(os.getpid(), signal.SIGTERM)")
    assert runner.invoke(app, ["milestone", "run", "transformer"]).exit_code == 128 + 15


@pytest.mark.slow
def test_json_alone_goes_to_stdout_and_progress_to_stderr(tito: Tito) -> None:
    result = tito("milestone", "run", "xor", "--backend", "numpy", "--json")
    assert result.returncode == 0
    report = json.loads(result.stdout)
    assert (report["backend"], report["passed"]) == ("numpy", True)
    assert "a hidden layer: loss" in result.stderr


def test_an_unknown_backend_lists_the_known(tito: Tito) -> None:
    result = tito("milestone", "run", "xor", "--backend", "nunpy")
    assert result.returncode == 2
    assert "there is no backend 'nunpy'; there are" in result.stderr


def test_without_the_repository_it_says_how_to_get_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(scripts, "ROOT", tmp_path)
    with pytest.raises(typer.BadParameter, match=r"milestones/ comes with the repository"):
        milestone.milestones()
