"""The commands that a page shows in its code blocks, as somebody would type them."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

BLOCK = re.compile(r"^```(\w*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)


def commands_of(page: Path) -> list[list[str]]:
    """The lines of plain code blocks, in words and without what is said behind them."""
    blocks = [text for kind, text in BLOCK.findall(page.read_text("utf-8")) if not kind]
    lines = [line for text in blocks for line in text.split("\n")]
    return [shlex.split(line, comments=True) for line in lines if line.strip()]
