"""What only IPython understands in a cell: `%timeit f()`, `!ls`, `f?`, `%%time` above all of it."""

from __future__ import annotations

import ast
import re
import warnings

MAGIC = re.compile(r"^(\s*)(?:(?:\w+\s*=\s*)?[%!]|\?|[\w.]+\?\??\s*$).*")
CELL_MAGIC = re.compile(r"\A(\s*)%%(\w+).*")
OF_PYTHON = ("time", "timeit", "capture", "prun")  # the cell below them is Python
MOST_CHARACTERS = 50_000
MOST_MAGICS = 100


def plain(source: str) -> str:
    """A cell without what only IPython understands, with \\n at the ends of lines; these keep their
    numbers.

    Of a cell in another language, under `%%bash`, nothing is left. What is no Python for another
    reason, or longer than a person writes, stays as it is there.

    >>> plain("%matplotlib inline\\nx = 1")
    'pass\\nx = 1'
    """
    source = source.replace("\r\n", "\n")
    if (cell := CELL_MAGIC.match(source)) is not None:
        if cell[2] not in OF_PYTHON:
            return ""
        source = CELL_MAGIC.sub(r"\1pass", source)
    lines = source.split("\n")
    for _ in range(MOST_MAGICS if len(source) <= MOST_CHARACTERS else 0):
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                ast.parse("\n".join(lines))
        except SyntaxError as error:
            at = (error.lineno or 0) - 1
            if not 0 <= at < len(lines) or MAGIC.match(lines[at]) is None:
                break
            lines[at] = MAGIC.sub(r"\1pass", lines[at])
        except (ValueError, RecursionError, MemoryError):  # a NUL, or deeper than Python can parse
            break
        else:
            break
    return "\n".join(lines)
