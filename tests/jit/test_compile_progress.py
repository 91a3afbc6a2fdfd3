"""Who waits for a compilation is told, and nobody else."""

from __future__ import annotations

import io
import sys

import pytest

from tinytorch.jit import compile_progress


class Screen(io.StringIO):
    """A stream that may be a terminal."""

    def __init__(self, is_terminal):
        super().__init__()
        self.isatty = lambda: is_terminal


@pytest.mark.parametrize("is_terminal", [False, True])
def test_compiling_that_takes_long_says_so_on_any_stream(monkeypatch, is_terminal):
    screen = Screen(is_terminal)
    monkeypatch.setattr(compile_progress.sys, "stderr", screen)
    progress = compile_progress.CompileProgress()
    for seconds in (0.0, 0.5, 2.0, 3.0):
        progress.seconds = seconds
        progress.begin("kernel")
        assert ("compiling kernels, once" in screen.getvalue()) is (seconds > 1.0)
        progress.end("kernel")
    if not is_terminal:
        assert screen.getvalue().count("\n") == screen.getvalue().count("tinytorch:") == 1


@pytest.mark.parametrize("shown", [True, False])
def test_progress_is_shown_on_a_terminal_when_it_takes_long(monkeypatch, capsys, shown):
    progress = compile_progress.CompileProgress()
    monkeypatch.setattr(compile_progress, "SHOW_AFTER_SECONDS", -1.0)
    monkeypatch.setattr(sys.stderr, "isatty", lambda: shown, raising=False)
    progress.begin("gemm.core")
    progress.end("gemm.core")
    err = capsys.readouterr().err
    assert ("gemm.core" in err) == shown
    assert progress.compiled == 1 and progress.seconds > 0
