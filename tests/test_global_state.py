"""A test that leaves a setting changed would fail by the fixture in conftest.py."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import tinytorch
from tests import global_state
from tinytorch import formatting
from tinytorch.jit import threads

LEAKS: dict[str, Callable[[pytest.MonkeyPatch, Path], Any]] = {
    "os.environ": lambda patch, _: patch.setenv("NUMBA_NUM_THREADS", "1"),
    "sys.path": lambda patch, path: patch.syspath_prepend(path),
    "the working directory": lambda patch, path: patch.chdir(path),
    "tinytorch.set_printoptions": lambda patch, _: patch.setitem(
        formatting.options, "precision", 9
    ),
    "tinytorch.get_num_threads()": lambda patch, _: patch.setattr(
        threads._State, "num_threads", 99
    ),
    "torch.get_num_threads()": lambda patch, _: patch.setattr(torch, "get_num_threads", lambda: 99),
}


@pytest.mark.parametrize("name", LEAKS)
def test_what_is_left_behind_is_named(
    name: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    before = global_state.read()
    LEAKS[name](monkeypatch, tmp_path)
    (line,) = global_state.changes(before, global_state.read())
    assert line.startswith(f"{name}: ") and " before, " in line


def test_modes_and_handlers_and_errors_are_settings() -> None:
    before = global_state.read()
    handler = signal.signal(signal.SIGALRM, signal.SIG_IGN)
    try:
        with tinytorch.no_grad(), np.errstate(all="raise"):
            found = global_state.changes(before, global_state.read())
    finally:
        signal.signal(signal.SIGALRM, handler)
    assert [line.partition(":")[0] for line in found] == [
        "the handler of SIGALRM", "what NumPy does on errors", "tinytorch's modes",
    ]  # fmt: skip
    assert not global_state.changes(before, global_state.read())


def test_of_variables_only_those_that_changed_are_shown(monkeypatch: pytest.MonkeyPatch) -> None:
    before = global_state.read()
    monkeypatch.setenv("A_VARIABLE", "1")
    assert "PATH" in os.environ
    (line,) = global_state.changes(before, global_state.read())
    assert line == "os.environ: {} before, {b'A_VARIABLE': b'1'} now"
