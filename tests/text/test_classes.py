from __future__ import annotations

import runpy
import unicodedata
from pathlib import Path

import numpy as np
import pytest
import tiktoken

from tinytorch.text import classes

ROOT = Path(__file__).parents[2]
BYTES = {bytes([byte]): byte for byte in range(256)}
EVERYTHING = "".join(chr(c) for c in range(0x110000) if not 0xD800 <= c < 0xE000)


@pytest.mark.slow_beyond(1)
@pytest.mark.parametrize(
    ("escape", "numbers"),
    [(r"\p{L}", {classes.LETTER}), (r"\p{N}", {classes.NUMBER}), (r"\s", {3, 4})],
)
def test_the_table_is_tiktokens_for_every_code_point(escape: str, numbers: set[int]) -> None:
    engine = tiktoken.Encoding("one", pat_str=escape, mergeable_ranks=BYTES, special_tokens={})
    theirs = {ord(c) for c in bytes(engine.encode_ordinary(EVERYTHING)).decode()}
    ours = np.flatnonzero(np.isin(classes.class_table(), list(numbers)))
    assert set(ours.tolist()) == theirs
    assert {ord(c) for c in EVERYTHING if classes.compile_pattern(escape).match(c)} == theirs


def test_pythons_own_table_agrees_where_it_knows_the_character() -> None:
    of_category = {"L": classes.LETTER, "N": classes.NUMBER}
    table = classes.class_table()
    wrong = [
        hex(code)
        for code in range(0x110000)
        if (category := unicodedata.category(chr(code))) != "Cn"
        and category[0] != "Z"
        and table[code] not in (classes.SPACE, classes.NEWLINE)
        and table[code] != of_category.get(category[0], classes.OTHER)
    ]
    assert wrong == []


def test_the_tool_makes_the_shipped_table(tmp_path: Path) -> None:
    tool = runpy.run_path(str(ROOT / "tools" / "make_unicode_classes.py"))
    tool["main"](tmp_path / "classes.txt")
    shipped = ROOT / "tinytorch" / "text" / "unicode_classes.txt"
    assert (tmp_path / "classes.txt").read_bytes() == shipped.read_bytes()
    assert shipped.read_text().startswith(f"Unicode {classes.VERSION}\n")
