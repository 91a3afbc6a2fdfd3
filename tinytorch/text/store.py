"""Tokenizers as files: one small file each, JSON under gzip (`zcat` shows it).

gzip's checksum tells a truncated or damaged file from a whole one.
"""

from __future__ import annotations

import gzip
import json
import zlib
from pathlib import Path
from typing import Any

from tinytorch.errors import DataError
from tinytorch.files import atomic_write
from tinytorch.text.characters import CharacterTokenizer
from tinytorch.text.classes import VERSION
from tinytorch.text.tokenizer import BytePairTokenizer

Tokenizer = CharacterTokenizer | BytePairTokenizer

_FORMAT = "tinytorch tokenizer 1"


def save_tokenizer(tokenizer: Tokenizer, path: str | Path) -> None:
    """Write a tokenizer to a file; `load_tokenizer` reads it."""
    state = {"format": _FORMAT, "special": tokenizer.special, **_state(tokenizer)}
    with atomic_write(Path(path)) as file:
        file.write(gzip.compress(json.dumps(state, separators=(",", ":")).encode(), mtime=0))


def _state(tokenizer: Tokenizer) -> dict[str, Any]:
    if isinstance(tokenizer, CharacterTokenizer):
        return {"kind": "characters", "characters": tokenizer.characters}
    ids = tokenizer.vocabulary
    merges = tokenizer.merges
    return {
        "kind": "byte pairs",
        "unicode": VERSION,
        "split": tokenizer.split,
        "whole": tokenizer.whole,
        "tokens": [token.decode("latin-1") for token in ids],  # a character for each byte
        "ids": None if list(ids.values()) == list(range(len(ids))) else list(ids.values()),
        "merges": merges and [(ids[left], ids[right]) for left, right in merges],
    }


def load_tokenizer(path: str | Path) -> Tokenizer:
    """Read a tokenizer that `save_tokenizer` wrote.

    Raises:
        DataError: the file is truncated, damaged or of another format; the message says which.
        FileNotFoundError: there is no such file.
    """
    content = Path(path).read_bytes()
    if content[:2] != b"\x1f\x8b":
        raise DataError(
            f"{path} is no tokenizer of TinyTorch's: it begins with {content[:16]!r}; "
            f"read_tiktoken and read_tokenizer_json read those of others"
        )
    try:
        state = json.loads(gzip.decompress(content))
    except (EOFError, OSError, zlib.error, ValueError) as error:
        raise DataError(
            f"{path} is truncated or damaged: {len(content)} bytes, {error}; copy it again"
        ) from error
    if not isinstance(state, dict) or state.get("format") != _FORMAT:
        found = state.get("format") if isinstance(state, dict) else type(state).__name__
        raise DataError(f"{path} has the format {found!r}; this version reads {_FORMAT!r}")
    try:
        return _restore(state)
    except (KeyError, TypeError, ValueError, IndexError, AttributeError) as error:
        raise DataError(f"{path} is not what save_tokenizer writes: {error!r}") from error


def _restore(state: dict[str, Any]) -> Tokenizer:
    if state["kind"] == "characters":
        return CharacterTokenizer(state["characters"], state["special"])
    tokens = [token.encode("latin-1") for token in state["tokens"]]
    vocabulary = dict(zip(tokens, state["ids"] or range(len(tokens)), strict=True))
    merges = state["merges"]
    if merges is not None:
        of = {number: token for token, number in vocabulary.items()}
        merges = [(of[left], of[right]) for left, right in merges]
    return BytePairTokenizer(
        vocabulary,
        split=state["split"],
        special=state["special"],
        merges=merges,
        whole=state["whole"],
    )
