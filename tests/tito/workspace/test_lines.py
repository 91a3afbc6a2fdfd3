"""Lines of code are counted once a file, and again when it changes."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tito.workspace import lines

SOURCE = (
    '"""A module."""\n\n# a comment\nx = 1\n\n\ndef f():\n    """A docstring."""\n    return x\n'
)


def test_comments_blank_lines_and_docstrings_of_functions_do_not_count() -> None:
    assert lines.code_lines(SOURCE) == {1, 4, 7, 9}


@pytest.fixture
def package(tmp_path: Path) -> Path:
    package = tmp_path / "package"
    (package / "inner").mkdir(parents=True)
    (package / "a.py").write_text(SOURCE)
    (package / "inner" / "b.py").write_text("y = 2\n")
    return package


def test_a_changed_file_is_counted_again_and_no_other(
    package: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    memory = tmp_path / "counts.json"
    assert lines.all_lines(package, memory) == 5
    (package / "inner" / "b.py").write_text("y = 2\nz = 3\n")
    compiled: list[str] = []
    monkeypatch.setattr(lines, "_lines", lambda code: compiled.append(code.co_filename) or {1, 2})
    assert lines.all_lines(package, memory) == 6
    assert len(compiled) == 1


@pytest.mark.parametrize("content", ["", "{", "[1]", '{"a.py": [1]}', "null"])
def test_a_damaged_memory_changes_no_count(package: Path, tmp_path: Path, content: str) -> None:
    memory = tmp_path / "counts.json"
    memory.write_text(content)
    assert lines.all_lines(package, memory) == 5
    assert set(json.loads(memory.read_text())) == {"a.py", "inner/b.py"}


def test_a_folder_that_cannot_be_written_is_counted_all_the_same(
    package: Path, tmp_path: Path
) -> None:
    (tmp_path / "file").write_text("")
    assert lines.all_lines(package, tmp_path / "file" / "counts.json") == 5
