"""Files that TinyTorch writes: where its cache is, and how a file is never half written."""

from __future__ import annotations

import os
import sys
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO


def cache_root() -> Path:
    """The folder in which TinyTorch keeps what it can make or fetch again.

    `$TINYTORCH_CACHE_DIR` or, without it, the folder `tinytorch` in the user's cache.
    """
    if chosen := os.environ.get("TINYTORCH_CACHE_DIR"):
        return Path(chosen)
    if sys.platform == "win32":
        return Path(os.environ.get("LOCALAPPDATA", Path.home() / "AppData/Local")) / "tinytorch"
    if sys.platform == "darwin":
        return Path.home() / "Library/Caches/tinytorch"
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "tinytorch"


@contextmanager
def atomic_write(path: Path, sync: bool = True) -> Iterator[BinaryIO]:
    """A stream to a new file that takes the place of `path` at the end, if there was no error.

    Whoever opens `path` sees the old file or the new one, and never a part.

    Args:
        sync: wait for the disk, so that this holds after a power cut too.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    part = path.with_name(f".{path.name}.{uuid.uuid4().hex}.part")
    try:
        with part.open("xb") as stream:
            yield stream
            stream.flush()
            if sync:
                os.fsync(stream.fileno())
        part.replace(path)
    finally:
        part.unlink(missing_ok=True)
