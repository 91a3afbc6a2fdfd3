"""Lines of code: how many a file has, how many a package has, without reading all of it again."""

from __future__ import annotations

import json
from contextlib import suppress
from functools import lru_cache
from pathlib import Path
from types import CodeType

from tinytorch.files import atomic_write


@lru_cache(maxsize=4096)  # most files of a student's package are those of the reference
def code_lines(text: str) -> frozenset[int]:
    """Lines that hold code: not comments, blank lines or docstrings of functions."""
    return frozenset(_lines(compile(text, "<package>", "exec", dont_inherit=True)))


def _lines(code: CodeType) -> set[int]:
    own = {line for _, _, line in code.co_lines() if line}
    return own.union(*(_lines(c) for c in code.co_consts if isinstance(c, CodeType)))


def all_lines(package: Path, memory: Path) -> int:
    """Lines of code of all Python files below `package`.

    Args:
        memory: a file that keeps the count of each file with its size and time of change, so that
            only what has changed is compiled. It is made when it can be, and nothing depends on it.
    """
    known: dict[str, list[int]] = {}
    with suppress(OSError, ValueError, TypeError):
        known = dict(json.loads(memory.read_text(encoding="utf-8")))
    counts: dict[str, list[int]] = {}
    for path in package.rglob("*.py"):
        status, name = path.stat(), str(path.relative_to(package))
        stamp = [status.st_size, status.st_mtime_ns]
        old = known.get(name, [])
        lines = old[2] if old[:2] == stamp else len(code_lines(path.read_text(encoding="utf-8")))
        counts[name] = [*stamp, lines]
    if counts != known:
        with suppress(OSError), atomic_write(memory) as stream:
            stream.write(json.dumps(counts).encode())
    return sum(lines for _, _, lines in counts.values())
