"""Text to learn from without a network: Python's documentation, and the library of this machine."""

from __future__ import annotations

import gzip
import sysconfig
import tokenize
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import Literal

from tinytorch.errors import DataError

Split = Literal["train", "validation"]

DOCS = Path(__file__).parent / "python_docs"
#: Bytes of each split of `python_docs`.
DOCS_BYTES: dict[Split, int] = {"train": 1_160_780, "validation": 163_695}
_LEFT_OUT = {"test", "tests", "idlelib", "lib2to3", "site-packages", "dist-packages"}


def python_docs(split: Split = "train") -> str:
    """English about Python, shipped with TinyTorch: 1.2 MB to learn from, 0.2 MB to check.

    Topics of the language reference and docstrings of the standard library of Python 3.11.7;
    `python_docs/DATASHEET.md` says more. No document is in both splits. It is ASCII.

    Args:
        split: "train" or "validation".

    Raises:
        ValueError: there is no such split.
        DataError: the shipped file is missing or damaged.

    >>> len(python_docs("validation"))
    163695
    """
    _check(split)
    path = DOCS / f"{split}.txt.gz"
    try:
        text = gzip.decompress(path.read_bytes()).decode("ascii")
    except (OSError, EOFError, zlib.error, UnicodeDecodeError) as error:
        raise DataError(f"{path} cannot be read: {error}; reinstall tinytorch") from error
    if len(text) != DOCS_BYTES[split]:
        raise DataError(
            f"{path} has {len(text)} characters and should have {DOCS_BYTES[split]}; "
            f"reinstall tinytorch"
        )
    return text


def standard_library(split: Split = "train", limit: int | None = None) -> str:
    """The sources of the standard library of the Python that runs this: about 10 MB.

    They differ from one version of Python to another. A file's path decides its split: about a
    tenth of the files are in "validation". Left out are tests, `idlelib`, `lib2to3`, and what was
    installed.

    Args:
        split: "train" or "validation".
        limit: how many characters to give at most; files are taken in the order of their paths.

    Raises:
        ValueError: there is no such split, or limit is below 1.
        DataError: this Python has no sources of its library.

    >>> print(standard_library(limit=22))
    \"\"\"Record of phased-in
    """
    _check(split)
    if limit is not None and limit < 1:
        raise ValueError(f"limit must be at least 1 character, got {limit}")
    root = Path(sysconfig.get_paths()["stdlib"])
    texts: list[str] = []
    length = 0
    for path in _sources(root, split):
        if limit is not None and length >= limit:
            break
        with tokenize.open(path) as file:  # in the encoding that the file declares
            texts.append(file.read())
        length += len(texts[-1])
    if not texts:
        raise DataError(f"{root} has no Python sources: this Python came without them")
    return "".join(texts)[:limit]


def _check(split: str) -> None:
    if split not in DOCS_BYTES:
        raise ValueError(f'the splits are "train" and "validation", not {split!r}')


def _sources(root: Path, split: Split) -> Iterator[Path]:
    for path in sorted(root.rglob("*.py")):
        relative = path.relative_to(root)
        if not _LEFT_OUT.isdisjoint(relative.parts):
            continue
        is_validation = zlib.crc32(relative.as_posix().encode()) % 10 == 0
        if is_validation == (split == "validation"):
            yield path
