from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import pytest
import typer
from typer.testing import CliRunner

import tinytorch
import tito.cache
from tito.__main__ import main
from tito.cli import app

ROOT = Path(__file__).parents[2]
runner = CliRunner()
HEAVY = ("numpy", "tinytorch", "numba", "torch", "matplotlib", "yaml", "jupytext", "nbgrader")


def commands(group: typer.Typer, *path: str) -> Iterator[tuple[str, ...]]:
    """The paths of all commands below a group."""
    for command in group.registered_commands:
        yield (*path, command.name or command.callback.__name__.replace("_", "-"))  # type: ignore[union-attr]
    for child in group.registered_groups:
        below = (child.name,) if isinstance(child.name, str) else ()  # without a name: its parent's
        yield from commands(child.typer_instance, *path, *below)  # type: ignore[arg-type]


def test_help_lists_the_commands() -> None:
    result = runner.invoke(app, ["--help"])
    assert result.exit_code == 0
    for command in ("bench", "cache", "demo", "doctor", "init", "milestone", "module", "status"):
        assert re.search(rf"^  {command} ", result.output, re.MULTILINE)


@pytest.mark.parametrize("path", list(commands(app)), ids=" ".join)
def test_every_command_shows_an_example_of_itself(path: tuple[str, ...]) -> None:
    result = runner.invoke(app, [*path, "--help"])
    assert result.exit_code == 0
    assert "Example" in result.output
    assert f"tito {' '.join(path)}" in result.output.split("Example")[1]


def test_help_loads_nothing_heavy() -> None:
    """So that help answers at once."""
    probe = (
        "import sys\n"
        "from tito.cli import app\n"
        "try: app(['--help'])\n"
        f"except SystemExit: print([m for m in {HEAVY} if m in sys.modules], file=sys.stderr)\n"
    )
    result = subprocess.run(
        [sys.executable, "-c", probe], cwd=ROOT, capture_output=True, text=True, check=True
    )
    assert result.stderr.strip() == "[]"


@pytest.mark.parametrize(
    ("given", "meant"),
    [
        (["milestones"], "No such command 'milestones'. Did you mean 'milestone'"),
        (["start", "02"], "No such command 'start'. Did you mean 'module start'?"),
        (["complte"], "No such command 'complte'. Did you mean 'module complete'"),
        (["module", "tset", "02"], "No such command 'tset'. Did you mean 'test'"),
        (["qqq"], "No such command 'qqq'.\n"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else "",
)
def test_an_unknown_command_suggests_the_nearest(given: list[str], meant: str) -> None:
    result = runner.invoke(app, given)
    assert result.exit_code == 2
    assert meant in result.output


class _Interrupted(ModuleType):
    def __getattr__(self, name: str) -> object:
        raise KeyboardInterrupt


def cache() -> None:
    raise KeyboardInterrupt


@pytest.mark.parametrize("loading", [False, True])
def test_an_interrupt_is_one_line(
    loading: bool, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """While modules are loading and later, when Typer has made an exit code of it."""
    if loading:
        monkeypatch.setitem(sys.modules, "tito.cli", _Interrupted("tito.cli"))
    monkeypatch.setattr(sys, "argv", ["tito", "cache"])
    command = next(c for c in app.registered_commands if c.callback is tito.cache.cache)
    monkeypatch.setattr(command, "callback", cache)
    with pytest.raises(SystemExit) as ended:
        main()
    assert (ended.value.code, capsys.readouterr().err) == (130, "interrupted\n")


def test_version() -> None:
    result = runner.invoke(app, ["--version"])
    assert (result.exit_code, result.output) == (0, f"tinytorch {tinytorch.__version__}\n")


def test_output_in_a_pipe_is_plain() -> None:
    for arguments in (["--help"], ["milestone", "list"]):
        result = subprocess.run(
            [sys.executable, "-m", "tito", *arguments],
            cwd=ROOT,
            env={**os.environ, "TERM": "xterm-256color"},
            capture_output=True,
            text=True,
            check=True,
        )
        assert "\x1b" not in result.stdout
        assert not set(result.stdout) & set("│─╭╮")


def test_a_path_with_spaces_and_letters_that_the_terminal_lacks(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "tito"]
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "PYTHONIOENCODING": "ascii"}
    result = subprocess.run(
        [*command, "init", "Übung 1"], cwd=tmp_path, env=environment, capture_output=True, text=True
    )
    assert result.stderr == ""
    assert "next: cd '\\xdcbung 1' && tito module start 01" in result.stdout
    environment.pop("PYTHONUNBUFFERED", None)
    with subprocess.Popen(
        [*command, "next", "--json"], cwd=tmp_path / "Übung 1", env=environment,
        stdout=subprocess.PIPE, stderr=subprocess.PIPE,
    ) as reader:  # fmt: skip
        assert reader.stdout is not None and reader.stderr is not None
        reader.stdout.close()  # as `head` does when it has enough
        assert reader.stderr.read() == b""


def test_without_typer_it_says_what_to_install(tmp_path: Path) -> None:
    (tmp_path / "typer.py").write_text("raise ModuleNotFoundError(name='typer')")
    result = subprocess.run(
        [sys.executable, "-m", "tito"],
        env={**os.environ, "PYTHONPATH": os.pathsep.join([str(tmp_path), str(ROOT)])},
        capture_output=True,
        text=True,
    )
    assert result.returncode == 1
    expected = "tito needs typer, which is not installed: pip install 'tinytorch[cli]'"
    assert result.stderr.strip() == expected
