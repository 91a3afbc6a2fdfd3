"""`CharacterTokenizer`: a token for each character."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from tinytorch.dtypes import Array
from tinytorch.text.special import (
    Allowed,
    check_special,
    number_special,
    split_special,
    unknown_token,
)


class CharacterTokenizer:
    """A token for each of the characters it was made from, in the order of their code points.

    Args:
        characters: the characters, each once; the id of each is its position.
        special: the id of each special token; see `encode`.

    Raises:
        ValueError: a character occurs twice or is none, or a special token's id is taken.

    >>> tokenizer = CharacterTokenizer.train("hello")
    >>> tokenizer.encode("hole").tolist(), tokenizer.decode([1, 0])
    ([1, 3, 2, 0], 'he')
    """

    def __init__(self, characters: Sequence[str], special: Mapping[str, int] | None = None) -> None:
        self.characters = list(characters)
        self.special = dict(special or {})
        self._ids = {character: i for i, character in enumerate(self.characters)}
        self._texts: dict[int, str] = dict(enumerate(self.characters))
        if wrong := [c for c in self.characters if len(c) != 1]:
            raise ValueError(f"{wrong[0]!r} is not one character")
        if len(self._ids) < len(self.characters):
            twice = next(c for i, c in enumerate(self.characters) if self._ids[c] != i)
            raise ValueError(f"the character {twice!r} occurs twice")
        check_special(self.special, self._texts, "the character")
        self._texts |= {number: name for name, number in self.special.items()}

    @classmethod
    def train(cls, texts: str | Iterable[str], special: Iterable[str] = ()) -> CharacterTokenizer:
        """A tokenizer of the characters that occur in the texts; special tokens come after them."""
        found = sorted(set(texts) if isinstance(texts, str) else set().union(*texts))
        return cls(found, number_special(special, len(found)))

    def __len__(self) -> int:
        return len(self._texts)

    def encode(self, text: str, *, allowed_special: Allowed = ()) -> Array:
        """The ids of a text's characters: int32 of shape (length,).

        Args:
            text: what to encode.
            allowed_special: which special tokens may be in the text; "all" for all. The others
                are text like any other.

        Raises:
            ValueError: a character is not in the vocabulary; the message says which, and where.
        """
        ids: list[int] = []
        try:
            for part in split_special(text.encode(), self.special, allowed_special):
                known = isinstance(part, int)
                ids += [part] if known else [self._ids[c] for c in part.decode()]  # type: ignore
        except KeyError as missing:
            character = missing.args[0]
            raise ValueError(
                f"the character {character!r} (U+{ord(character):04X}) at position "
                f"{text.index(character)} is none of the {len(self.characters)} in the vocabulary"
            ) from None
        return np.array(ids, np.int32)

    def decode(self, ids: Any) -> str:
        """The text of ids.

        Args:
            ids: a list, an array or a tensor, of one dimension.

        Raises:
            ValueError: an id is no token's; the message says which, and where.
        """
        array = np.asarray(ids).reshape(-1)
        try:
            return "".join([self._texts[number] for number in array.tolist()])
        except KeyError:
            raise unknown_token(array, self._texts) from None
