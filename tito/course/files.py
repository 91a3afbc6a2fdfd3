"""Names and files in a course directory."""

from __future__ import annotations

import os
import re
from pathlib import Path

NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._@+-]{0,99}")  # of a student, or a file of theirs


def write_whole(path: Path, content: bytes) -> None:
    """Write a file so that it is whole or as it was, whatever happens in between."""
    path.parent.mkdir(parents=True, exist_ok=True)
    partial = path.with_name(f".{path.name}.{os.getpid()}.partial")
    with partial.open("wb") as stream:
        stream.write(content)
        stream.flush()
        os.fsync(stream.fileno())
    partial.replace(path)
