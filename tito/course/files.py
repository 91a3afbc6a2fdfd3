"""Names and files in a course directory."""

from __future__ import annotations

import re
from pathlib import Path

from tinytorch.files import atomic_write

NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._@+-]{0,99}")  # of a student, or a file of theirs


def write_whole(path: Path, content: bytes) -> None:
    """Write a file so that it is whole or as it was, whatever happens in between."""
    with atomic_write(path) as stream:
        stream.write(content)
