"""Temporary folders, and Ctrl-C."""

from __future__ import annotations

import shutil
import tempfile
from pathlib import Path
from typing import Any

import pytest

from tito.scratch import Scratch


def test_an_interrupt_while_it_is_removed_leaves_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    calls = []

    def interrupted(name: str, **options: Any) -> None:
        calls.append(name)
        if len(calls) == 1:
            raise KeyboardInterrupt
        shutil.rmtree(name)

    monkeypatch.setattr(tempfile.TemporaryDirectory, "_rmtree", staticmethod(interrupted))
    with pytest.raises(KeyboardInterrupt), Scratch() as folder:
        Path(folder, "file").touch()
    assert len(calls) == 2 and not Path(folder).exists()
