from __future__ import annotations

import gzip
import platform
import re
import runpy
from pathlib import Path

import pytest

from tinytorch.errors import DataError
from tinytorch.text import corpus

ROOT = Path(__file__).parents[2]


def test_the_documentation_is_as_its_datasheet_says() -> None:
    train, validation = corpus.python_docs(), corpus.python_docs("validation")
    sheet = (corpus.DOCS / "DATASHEET.md").read_text()
    for name, text in (("train", train), ("validation", validation)):
        documents = text.strip("\n").split("\n\n\n")
        assert text.isascii() and f"| {name} | " in sheet and f" | {len(text):,} | " in sheet
        assert len(documents) >= int(re.search(rf"\| {name} \| (\d+)", sheet)[1])  # type: ignore
    assert 'The "assert" statement' in train + validation
    paragraphs = {p for p in validation.split("\n\n") if len(p) > 500}
    assert not paragraphs & set(train.split("\n\n"))


@pytest.mark.skipif(platform.python_version() != "3.11.7", reason="made from Python 3.11.7")
@pytest.mark.slow
def test_the_tool_makes_the_shipped_files(tmp_path: Path) -> None:
    runpy.run_path(str(ROOT / "tools" / "make_python_docs.py"))["main"](tmp_path)
    for name in ("train.txt.gz", "validation.txt.gz"):
        made, shipped = (gzip.decompress((f / name).read_bytes()) for f in (tmp_path, corpus.DOCS))
        assert made == shipped


def test_the_licence_is_there() -> None:
    assert "PYTHON SOFTWARE FOUNDATION LICENSE" in (corpus.DOCS / "LICENSE-PYTHON.txt").read_text()


@pytest.mark.slow
def test_the_library_of_this_machine() -> None:
    train = corpus.standard_library(limit=300_000)
    assert len(train) == 300_000 and "import " in train
    validation = corpus.standard_library("validation", limit=300_000)
    assert train[:2000] not in validation and validation[:2000] not in train


def test_bad_input_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(ValueError, match='"train" and "validation", not \'test\''):
        corpus.python_docs("test")  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="limit must be at least 1 character, got 0"):
        corpus.standard_library(limit=0)
    monkeypatch.setattr(corpus, "DOCS", tmp_path)
    with pytest.raises(DataError, match=r"train\.txt\.gz cannot be read: .*reinstall"):
        corpus.python_docs()
    (tmp_path / "train.txt.gz").write_bytes(gzip.compress(b"short"))
    with pytest.raises(DataError, match="has 5 characters and should have 1160780"):
        corpus.python_docs()
    monkeypatch.setattr("sysconfig.get_paths", lambda: {"stdlib": str(tmp_path)})
    with pytest.raises(DataError, match="has no Python sources"):
        corpus.standard_library()
