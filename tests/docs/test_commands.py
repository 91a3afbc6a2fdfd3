"""Commands that the documentation names are there, with the options that it names."""

from __future__ import annotations

import re
import shlex
import tomllib
from itertools import takewhile
from pathlib import Path

import click
import pytest
import typer

from tito.bench import benchmarks
from tito.cli import app
from tito.scripts import ROOT

PAGES = [
    *(ROOT / "README.md", ROOT / "benchmarks/README.md", ROOT / "milestones/README.md"),
    *sorted((ROOT / "docs").glob("*.md")),
    *sorted((ROOT / "milestones").glob("*/README.md")),
]
SHOWN = re.compile(r"^ {0,4}(tito .*?)(?:\s{2,}.*)?$|`(tito [^`]*)`", re.MULTILINE)
TARGET = re.compile(r"^(\w+):", re.MULTILINE)
MAKE = re.compile(r"(?:^|`)make (\w+)", re.MULTILINE)
PIP = re.compile(r"pip install .*\[([\w,]+)\]")
FILE = re.compile(r"`((?:tinytorch|tito|benchmarks|tools|scripts|milestones|examples)/[\w./-]+)`")


def shown_commands(text: str) -> list[str]:
    """Lines that begin with `tito`, without the explanation behind them, and those in backticks;
    `tito init, status` are two."""
    shown = [line or inline for line, inline in SHOWN.findall(text)]
    return [
        f"tito {part.strip()}" if ", " in each else each
        for each in shown
        for part in (each.removeprefix("tito ").split(", ") if ", " in each else [each])
    ]


def name_of(page: Path) -> str:
    return str(page.relative_to(ROOT))


@pytest.mark.slow_beyond(1)
@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_the_commands_of_a_page_exist(page) -> None:
    commands = shown_commands(page.read_text("utf-8"))
    assert commands
    for shown in commands:
        command: click.Command = typer.main.get_command(app)
        context = click.Context(command, info_name="tito")
        words = shlex.split(shown, comments=True)[1:]
        while words and hasattr(command, "get_command"):
            name = words.pop(0)
            command = command.get_command(context, name)
            assert command is not None, f"{page.name} shows `{shown}`: there is no `{name}`"
        options = {option for p in command.params for option in (*p.opts, *p.secondary_opts)}
        for word in takewhile(lambda word: word != "--", words):  # then a script's own
            if word.startswith("-") and word != "--help":
                assert word in options, f"{page.name} shows `{shown}`: there is no {word}"


def test_the_page_of_the_benchmarks_has_a_row_for_each() -> None:
    rows = re.findall(
        r"^\| `(\w+)\.py` \|", (ROOT / "benchmarks/README.md").read_text(), re.MULTILINE
    )
    assert sorted(rows) == sorted(benchmarks())


def test_commands_are_found_in_lines_and_in_text() -> None:
    text = "tito status   what is yours\ntito init X --format py\nas `tito module hint NN` says"
    assert shown_commands(text) == ["tito status", "tito init X --format py", "tito module hint NN"]
    assert shown_commands("tito init, status   a workspace") == ["tito init", "tito status"]


@pytest.mark.parametrize("page", [*PAGES, ROOT / "CONTRIBUTING.md"], ids=name_of)
def test_make_pip_and_files_of_a_page_are_there(page) -> None:
    targets = set(TARGET.findall((ROOT / "Makefile").read_text("utf-8")))
    project = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
    text = page.read_text("utf-8")
    for target in MAKE.findall(text):
        assert target in targets, f"{page.name}: there is no `make {target}`"
    extras = {name for names in PIP.findall(text) for name in names.split(",")}
    assert extras <= project["optional-dependencies"].keys(), f"{page.name} installs {extras}"
    absent = [name for name in FILE.findall(text) if not (ROOT / name).exists()]
    assert not absent, f"{page.name} names files that are not there"
