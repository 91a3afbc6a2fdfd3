"""tiktoken's files: a line for each token, its bytes in base64 and its rank, which is its id."""

from __future__ import annotations

import base64
import binascii
from collections.abc import Mapping
from pathlib import Path

from tinytorch.errors import DataError
from tinytorch.files import atomic_write
from tinytorch.text.tokenizer import BytePairTokenizer


def write_tiktoken(tokenizer: BytePairTokenizer, path: str | Path) -> None:
    """Write the ranks of a tokenizer as a `.tiktoken` file.

    The file has neither the splitting nor the special tokens: give those to whoever reads it. With
    them tiktoken gives the same ids.

    Raises:
        ValueError: the tokenizer has merges of its own (`read_tokenizer_json`), or does not take
            whole pieces, which the format cannot say.
    """
    if tokenizer.merges is not None or not tokenizer.whole:
        raise ValueError(
            "this tokenizer merges by a list of pairs, which a .tiktoken file cannot hold; "
            "use write_tokenizer_json"
        )
    ranked = sorted(tokenizer.vocabulary.items(), key=lambda item: item[1])
    lines = [f"{base64.b64encode(token).decode()} {rank}\n" for token, rank in ranked]
    with atomic_write(Path(path)) as file:
        file.write("".join(lines).encode())


def read_tiktoken(
    path: str | Path,
    *,
    split: str = "gpt4",
    special: Mapping[str, int] | None = None,
    size: int | None = None,
) -> BytePairTokenizer:
    """A tokenizer from the ranks in a `.tiktoken` file.

    Args:
        path: the file.
        split: how the model's text is cut: "gpt2" for `gpt2` and `r50k_base`, "gpt4" for
            `cl100k_base`.
        special: the id of each special token.
        size: how many ranks there must be. A file that was cut off between two lines looks whole.

    Raises:
        DataError: a line is not a token and a rank, one occurs twice, or there are not `size`.
        FileNotFoundError: there is no such file.
    """
    vocabulary: dict[bytes, int] = {}
    for number, line in enumerate(Path(path).read_bytes().splitlines(), 1):
        token, rank = _parse(line, f"{path}, line {number}")
        if token in vocabulary:
            raise DataError(f"{path}, line {number}: the token {token!r} occurs a second time")
        vocabulary[token] = rank
    if size is not None and len(vocabulary) != size:
        raise DataError(f"{path} has {len(vocabulary)} ranks and should have {size}; copy it again")
    try:
        return BytePairTokenizer(vocabulary, split=split, special=special)
    except ValueError as error:
        raise DataError(f"{path}: {error}") from error


def _parse(line: bytes, where: str) -> tuple[bytes, int]:
    try:
        token, rank = line.split()
        return base64.b64decode(token, validate=True), int(rank)
    except (ValueError, binascii.Error):
        raise DataError(
            f"{where}: expected a token in base64, a space and its rank, found {line[:60]!r}; "
            f"the file is truncated or of another format"
        ) from None
