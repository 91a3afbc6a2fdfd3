"""Files that TinyTorch writes: where its cache is, and how a file is never half written."""

from __future__ import annotations

import os
import stat
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

    Whoever opens `path` sees the old file or the new one, and never a part. A new file has the
    permissions of the old one. Of a symbolic link the file is replaced that it leads to. What is no
    file, a pipe or /dev/null, is written into.

    Args:
        sync: wait for the disk, so that this holds after a power cut too.
    """
    path = Path(os.path.realpath(path))
    if path.exists() and not path.is_file() and not path.is_dir():
        with path.open("wb") as stream:
            yield stream
        return
    path.parent.mkdir(parents=True, exist_ok=True)
    part = path.with_name(f".{path.name[:80]}.{uuid.uuid4().hex}.part")
    try:
        with part.open("xb") as stream:
            if path.is_file():
                part.chmod(stat.S_IMODE(path.stat().st_mode))
            yield stream
            stream.flush()
            if sync:
                os.fsync(stream.fileno())
        part.replace(path)
    except OSError as error:
        if error.filename in (None, str(part)):  # who reads the error knows `path`
            error.filename = str(path)
            del error.filename2  # None would be shown
        raise
    finally:
        part.unlink(missing_ok=True)
