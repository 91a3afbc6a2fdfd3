from __future__ import annotations

import io
from pathlib import Path
from typing import Any

import pytest

BENCHMARKS = Path(__file__).parents[2] / "benchmarks"


@pytest.fixture
def kind(monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.syspath_prepend(str(BENCHMARKS))
    from progress import Progress

    return Progress


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_a_terminal_has_one_line_that_is_empty_at_the_end(kind: Any) -> None:
    terminal, now = Terminal(), [100.0]
    progress = kind(terminal, lambda: now[0])
    with progress.during("GEMM, 64x64"):
        assert terminal.getvalue().endswith("\r\033[K1, 0 s: GEMM, 64x64")
    now[0] += 12
    with pytest.raises(ValueError), progress.during("GEMM, 128x128"):
        raise ValueError
    assert "\r\033[K2, 12 s: GEMM, 128x128\r\033[K" in terminal.getvalue()
    assert "\n" not in terminal.getvalue() and terminal.getvalue().endswith("\r\033[K")


def test_a_log_has_a_plain_line_every_half_minute(kind: Any) -> None:
    log, now = io.StringIO(), [0.0]
    progress = kind(log, lambda: now[0])
    for second in range(0, 70, 10):
        now[0] = float(second)
        with progress.during(f"case {second}"):
            pass
    assert log.getvalue() == "4, 30 s: case 30\n7, 60 s: case 60\n"
