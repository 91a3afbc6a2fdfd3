"""What a user sees."""

from __future__ import annotations

import io
import re
import sys

import pytest

from tests.training.runs import fit, make_trainer
from tinytorch import MissingExtraError
from tinytorch.training import Callback, Trainer, progress

LINE = (
    r"epoch {}/2  loss \d\.\d{{4}}  accuracy \d\.\d{{4}}  val_loss \d\.\d{{4}}  .*lr .*  \d\.\d s"
)


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def as_terminal(monkeypatch: pytest.MonkeyPatch) -> Terminal:
    monkeypatch.setenv("TERM", "xterm-256color")
    monkeypatch.setenv("COLUMNS", "200")
    terminal = Terminal()
    monkeypatch.setattr(sys, "stdout", terminal)
    return terminal


def test_plain_lines_where_there_is_no_terminal(capsys: pytest.CaptureFixture[str]) -> None:
    fit(make_trainer(progress="auto"), 2)
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) == 2
    for i, line in enumerate(lines, 1):
        assert re.fullmatch(LINE.format(i), line)


def test_quiet(capsys: pytest.CaptureFixture[str]) -> None:
    fit(make_trainer(progress="quiet"), 2)
    assert capsys.readouterr() == ("", "")


def test_a_bar_on_a_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    terminal = as_terminal(monkeypatch)
    fit(make_trainer(progress="auto"), 2)
    text = terminal.getvalue()
    assert "epoch 2/2" in text and "5/5" in text and "\x1b[" in text
    plain = re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", text)
    assert len(re.findall(LINE.format("[12]"), plain)) == 2


def test_the_cursor_comes_back_after_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    class Fail(Callback):
        def on_step_end(self, trainer: Trainer, loss: float) -> None:
            raise OSError("disk full")

    terminal = as_terminal(monkeypatch)
    with pytest.raises(OSError, match="disk full"):
        fit(make_trainer([Fail()], progress="bar"), 2)
    hidden, shown = "\x1b[?25l", "\x1b[?25h"
    assert terminal.getvalue().count(hidden) == terminal.getvalue().count(shown) > 0


def test_nothing_to_do_is_said(capsys: pytest.CaptureFixture[str]) -> None:
    trainer = make_trainer()
    fit(trainer, 2)
    plain = make_trainer(progress="plain")
    plain.load_state_dict(trainer.state_dict())
    fit(plain, 2)
    assert capsys.readouterr().out == "2 of 2 epochs are complete: nothing to do\n"


def test_without_rich(monkeypatch: pytest.MonkeyPatch) -> None:
    as_terminal(monkeypatch)
    monkeypatch.setattr(progress, "find_spec", lambda name: None)
    assert type(progress.make_progress("auto")) is progress.PlainProgress
    message = "a progress bar needs rich, which is not installed: pip install 'tinytorch[train]'"
    with pytest.raises(MissingExtraError, match=re.escape(message)):
        progress.make_progress("bar")
