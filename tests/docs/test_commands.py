"""Commands that the documentation names are there, with the options that it names."""

from __future__ import annotations

import re
import shlex

import click
import pytest
import typer

from tito.cli import app
from tito.scripts import ROOT

PAGES = sorted((ROOT / "docs").glob("*.md"))
SHOWN = re.compile(r"^(tito .*?)(?:\s{2,}.*)?$|`(tito [^`]*)`", re.MULTILINE)


def shown_commands(text: str) -> list[str]:
    """Lines that begin with `tito`, without the explanation behind them, and those in backticks."""
    return [line or inline for line, inline in SHOWN.findall(text)]


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_the_commands_of_a_page_exist(page) -> None:
    commands = shown_commands(page.read_text())
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
        for word in words:
            if word.startswith("-") and word != "--help":
                assert word in options, f"{page.name} shows `{shown}`: there is no {word}"


def test_commands_are_found_in_lines_and_in_text() -> None:
    text = "tito status   what is yours\ntito init X --format py\nas `tito module hint NN` says"
    assert shown_commands(text) == ["tito status", "tito init X --format py", "tito module hint NN"]
