from __future__ import annotations

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

from tests.tito.conftest import Tito
from tito import cache
from tito.cli import app


@pytest.mark.slow
def test_the_cache_is_shown_and_cleared(tito: Tito, tmp_path: Path) -> None:
    folder = {"TINYTORCH_CACHE_DIR": str(tmp_path)}
    empty = json.loads(tito("cache", "--json", **folder).stdout)
    assert (empty["entries"], empty["nbytes"]) == (0, 0)
    assert empty["path"].startswith(str(tmp_path))
    kernel = Path(empty["path"]) / "kernel-1.bin"
    kernel.parent.mkdir(parents=True, exist_ok=True)
    kernel.write_bytes(bytes(1024))
    shown = tito("cache", **folder)
    assert "1 in 1 KiB" in shown.stdout
    cleared = json.loads(tito("cache", "--clear", "--json", **folder).stdout)
    assert (cleared["entries"], cleared["freed_bytes"]) == (0, 1024)
    assert not kernel.exists()


def test_without_numba_it_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cache, "find_spec", lambda name: None)
    result = CliRunner().invoke(app, ["cache"])
    assert result.exit_code == 1
    assert "pip install 'tinytorch[fast]'" in result.stderr
