"""Special tokens: marks such as the end of a document, which no ordinary text can produce."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Iterator, Mapping
from typing import Literal

from tinytorch.dtypes import Array

Allowed = Collection[str] | Literal["all"]


def as_bytes(text: str | bytes | bytearray | memoryview) -> bytes:
    """Text as UTF-8; bytes as they are.

    Raises:
        TypeError: neither.
        UnicodeEncodeError: a lone surrogate, such as "\\ud800", which is no character.
    """
    if isinstance(text, str):
        return text.encode()
    if isinstance(text, (bytes, bytearray, memoryview)):
        return bytes(text)
    raise TypeError(f"text is a str or bytes, not {type(text).__name__}")


def check_special(special: Mapping[str, int], taken: Mapping[int, object], shown: str) -> None:
    """Refuse special tokens without a text, or with an id that is not their own.

    Raises:
        ValueError: which one, and why.
    """
    seen: dict[int, str] = {}
    for name, number in special.items():
        if not name:
            raise ValueError(f"a special token needs a text; that of id {number} is empty")
        if number < 0:
            raise ValueError(f"the id of the special token {name!r} is {number}, below 0")
        other = seen.get(number, taken.get(number))
        if other is not None:
            raise ValueError(
                f"the special token {name!r} has the id {number}, which {shown} {other!r} has"
            )
        seen[number] = name


def number_special(names: Iterable[str], first: int) -> dict[str, int]:
    """Ids for special tokens, from `first` on.

    Raises:
        ValueError: one is named twice.
        TypeError: one name alone, which is also a sequence of its characters.
    """
    if isinstance(names, str):
        raise TypeError(f"special must be texts of tokens, such as [{names!r}]")
    found: dict[str, int] = {}
    for number, name in enumerate(names, first):
        if found.setdefault(name, number) != number:
            raise ValueError(f"the special token {name!r} is named twice")
    return found


def split_special(
    data: bytes, special: Mapping[str, int], allowed: Allowed
) -> Iterator[bytes | int]:
    """Cut a text at its special tokens: the ordinary parts as bytes, special tokens as ids.

    Where two special tokens begin at the same place, the longer one counts.

    Args:
        data: UTF-8.
        special: the id of each special token.
        allowed: which special tokens count; the text of the others is ordinary. "all" for all.

    Raises:
        ValueError: an allowed name is no special token; the message lists those there are.
        TypeError: one name alone, which is also a collection of its characters.

    >>> list(split_special(b"one<|end|>two", {"<|end|>": 9}, "all"))
    [b'one', 9, b'two']
    >>> list(split_special(b"one<|end|>two", {"<|end|>": 9}, ()))
    [b'one<|end|>two']
    """
    if isinstance(allowed, str) and allowed != "all":
        raise TypeError(f'allowed_special must be "all" or names, such as {{{allowed!r}}}')
    names = set(special if allowed == "all" else allowed)
    if unknown := names - special.keys():
        known = ", ".join(map(repr, special)) or "none"
        raise ValueError(f"{sorted(unknown)[0]!r} is no special token; there are: {known}")
    marks = sorted((name.encode() for name in names), key=len, reverse=True)
    parts = re.split(b"(" + b"|".join(map(re.escape, marks)) + b")", data) if marks else [data]
    for i, part in enumerate(parts):
        if i % 2:
            yield special[part.decode()]
        elif part:
            yield part


def unknown_token(ids: Array, known: Collection[int]) -> ValueError:
    """The error for ids of which one is no token's."""
    position = next(i for i, number in enumerate(ids.tolist()) if number not in known)
    return ValueError(
        f"token {ids[position]} at position {position} is not in the vocabulary of {len(known)} "
        f"tokens (ids {min(known)} to {max(known)})"
    )
