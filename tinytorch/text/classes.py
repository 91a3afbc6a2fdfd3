"""Which characters are letters, numbers and whitespace, by one version of Unicode for everyone.

Python's own table depends on Python's version (3.11 has Unicode 14, 3.14 has 16), and a token must
not. The table that is shipped is that of `VERSION`, which is also that of tiktoken and of Hugging
Face's tokenizers; `tools/make_unicode_classes.py` makes it.
"""

from __future__ import annotations

import re
from functools import cache
from pathlib import Path

import numpy as np

from tinytorch.dtypes import Array

VERSION = "16.0.0"
CODE_POINTS = 0x110000
#: The classes of the table. A newline is whitespace too.
OTHER, LETTER, NUMBER, SPACE, NEWLINE = range(5)

_FILE = Path(__file__).parent / "unicode_classes.txt"
_PROPERTIES = {r"\p{L}": "letter", r"\p{N}": "number", r"\s": "space"}


@cache
def ranges() -> dict[str, list[tuple[int, int]]]:
    """(first, last) code points of each run of characters, by class: letter, number and space."""
    found: dict[str, list[tuple[int, int]]] = {name: [] for name in _PROPERTIES.values()}
    for line in _FILE.read_text(encoding="ascii").splitlines()[1:]:
        name, _, span = line.partition(" ")
        first, _, last = span.partition("-")
        found[name].append((int(first, 16), int(last, 16)))
    return found


@cache
def class_table() -> Array:
    """The class of every code point: uint8 of shape (0x110000,).

    >>> [int(class_table()[ord(c)]) for c in "!a1 \\n"]
    [0, 1, 2, 3, 4]
    """
    table = np.full(CODE_POINTS, OTHER, np.uint8)
    for name, number in (("letter", LETTER), ("number", NUMBER), ("space", SPACE)):
        for first, last in ranges()[name]:
            table[first : last + 1] = number
    table[[ord("\r"), ord("\n")]] = NEWLINE
    table.setflags(write=False)
    return table


@cache
def compile_pattern(pattern: str) -> re.Pattern[str]:
    r"""A regular expression with `\p{L}`, `\p{N}`, `\s` and `\S` of the table, for Python's `re`.

    `re` knows no `\p`, and takes for whitespace what `str.isspace` does, which is more than
    Unicode's White_Space.

    >>> compile_pattern(r"\p{L}+|[^\s\p{L}]").findall("é1 ")
    ['é', '1']
    """

    def spelled(match: re.Match[str]) -> str:
        found = match[0]
        if found[0] == "[":
            return re.sub(r"\\p\{[LN]\}|\\s", lambda inner: _members(inner[0]), found)
        inverted = "^" if found == r"\S" else ""
        return f"[{inverted}{_members(found.replace('S', 's'))}]"

    return re.compile(re.sub(r"\[[^]]*\]|\\p\{[LN]\}|\\[sS]", spelled, pattern))


@cache
def _members(class_escape: str) -> str:
    """What `class_escape` stands for, to be put between brackets."""
    spans = ranges()[_PROPERTIES[class_escape]]
    return "".join(f"\\U{first:08x}-\\U{last:08x}" for first, last in spans)
