"""`BytePairTokenizer`: byte-pair encoding for use; `bpe` has the algorithm to read."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any

import numpy as np

from tinytorch.dtypes import Array
from tinytorch.state import current_backend, using_backend
from tinytorch.text import bpe
from tinytorch.text.bpe import Pair
from tinytorch.text.special import (
    Allowed,
    as_bytes,
    check_special,
    number_special,
    split_special,
    unknown_token,
)
from tinytorch.text.splitting import get_splitting, split as cut

if TYPE_CHECKING:
    from tinytorch.text.kernels.encoder import Encoder

Text = str | bytes

_COMPILING = "tinytorch.backends.optimized.backend"


def is_compiling() -> bool:
    """Whether the backend in force is `optimized`, or derived from it."""
    return any(cls.__module__ == _COMPILING for cls in type(current_backend()).__mro__)


class BytePairTokenizer:
    """Text to ids and back, by a vocabulary of byte strings.

    On the `optimized` backend encoding and training run compiled, on the others in Python, with the
    same results. Any bytes can be encoded, and decode to the same bytes.

    Args:
        vocabulary: the id of each token. Every single byte is one.
        split: how text is cut before pairs are merged: "gpt2", "gpt4" or "llama3".
        special: the id of each special token; they are never merged, and no text produces them
            unless `encode` allows it.
        merges: the pairs that may be merged, the first ones first. None, as for tiktoken: all whose
            joined bytes are a token, those of the smallest id first.
        whole: a piece that is a token is that token, however it would be merged.

    Raises:
        ValueError: a byte has no token, an id has two tokens, or the merges make no tokens.

    >>> tokenizer = BytePairTokenizer.train("the cat and the hat and the rat", 262)
    >>> tokenizer.encode("the hat").tolist()
    [258, 32, 104, 256]
    >>> tokenizer.decode([258, 32, 104, 256])
    'the hat'
    """

    def __init__(
        self,
        vocabulary: Mapping[bytes, int],
        *,
        split: str = "gpt4",
        special: Mapping[str, int] | None = None,
        merges: Sequence[Pair] | None = None,
        whole: bool = True,
    ) -> None:
        get_splitting(split)
        self.vocabulary = dict(vocabulary)
        self.split = split
        self.special = dict(special or {})
        self.merges = None if merges is None else list(merges)
        self.whole = whole
        self._ranks = {pair: rank for rank, pair in reversed([*enumerate(merges or ())])}
        self._tokens = {number: token for token, number in self.vocabulary.items()}
        self._check()
        check_special(self.special, self._tokens, "the token")
        self._tokens |= {number: name.encode() for name, number in self.special.items()}

        self._encoder: Encoder | None = None

    def _check(self) -> None:
        if missing := [b for b in range(256) if bytes([b]) not in self.vocabulary]:
            raise ValueError(
                f"the vocabulary has no token for {len(missing)} of the 256 bytes, the first is "
                f"{bytes([missing[0]])!r}: not every text could be encoded"
            )
        if len(self._tokens) < len(self.vocabulary):
            token, number = next((t, i) for t, i in self.vocabulary.items() if self._tokens[i] != t)
            raise ValueError(
                f"the id {number} has two tokens, {token!r} and {self._tokens[number]!r}"
            )
        for number, token in self._tokens.items():
            if not 0 <= number < 2**30:
                raise ValueError(f"the id of {token!r} is {number}; ids are from 0 to 2**30 - 1")
            if not token:
                raise ValueError(f"the token of id {number} is empty")
        for left, right in self.merges or ():
            for token in (left, right, left + right):
                if token not in self.vocabulary:
                    raise ValueError(
                        f"the merge of {left!r} and {right!r} needs the token {token!r}"
                    )

    @classmethod
    def train(
        cls,
        texts: Text | Iterable[Text],
        size: int,
        *,
        split: str = "gpt4",
        special: Iterable[str] = (),
    ) -> BytePairTokenizer:
        """A tokenizer whose vocabulary is learned from texts (see `bpe.train`).

        Args:
            texts: a text, or several. No piece reaches from one to the next.
            size: how many tokens to have, at least 256, without the special ones. There are fewer
                where the texts are too short.
            split: how text is cut; as for the class.
            special: texts of special tokens; their ids follow the others. In the texts to learn
                from they are ordinary text.

        Raises:
            ValueError: a size below 256, an unknown splitting, or a special token named twice.
        """
        get_splitting(split)
        if size < 256 or size != int(size):
            raise ValueError(
                f"size must be an integer of at least 256, for the single bytes, got {size}"
            )
        several = [texts] if isinstance(texts, (str, bytes)) else texts
        data = (as_bytes(text) for text in several)
        if is_compiling():
            from tinytorch.text.kernels.trainer import train

            vocabulary = train(data, size, split)
        else:
            pieces = Counter(piece for text in data for piece in cut(text, split))
            vocabulary = bpe.train(pieces, size)
        numbers = number_special(special, len(vocabulary))
        return cls(vocabulary, split=split, special=numbers)

    def __len__(self) -> int:
        return len(self._tokens)

    def encode(self, text: Text, *, allowed_special: Allowed = ()) -> Array:
        """The ids of a text: int32 of shape (tokens,).

        Args:
            text: a str, or any bytes.
            allowed_special: which special tokens may be in the text; "all" for all. The others
                are text like any other, so a text from outside cannot forge them.

        Raises:
            ValueError: an allowed name is no special token, or the text has a lone surrogate.
        """
        parts = [
            np.array([part], np.int32) if isinstance(part, int) else self._encode(part)
            for part in split_special(as_bytes(text), self.special, allowed_special)
        ]
        return parts[0] if len(parts) == 1 else np.concatenate([np.empty(0, np.int32), *parts])

    def encode_batch(
        self, texts: Iterable[Text], *, allowed_special: Allowed = (), threads: int = 1
    ) -> list[Array]:
        """`encode` of each text. Several threads help where encoding is compiled."""
        if threads < 1:
            raise ValueError(f"threads must be at least 1, got {threads}")
        if threads == 1:
            return [self.encode(text, allowed_special=allowed_special) for text in texts]
        backend = current_backend()  # of this thread

        def encode(text: Text) -> Array:
            with using_backend(backend):
                return self.encode(text, allowed_special=allowed_special)

        with ThreadPoolExecutor(threads) as pool:
            return list(pool.map(encode, texts))

    def decode_bytes(self, ids: Any) -> bytes:
        """The bytes of ids; special tokens as their text.

        Args:
            ids: a list, an array or a tensor, of one dimension.

        Raises:
            ValueError: an id is no token's; the message says which, and where.
        """
        array = np.asarray(ids).reshape(-1)
        try:
            return b"".join([self._tokens[number] for number in array.tolist()])
        except KeyError:
            raise unknown_token(array, self._tokens) from None

    def decode(self, ids: Any, errors: str = "replace") -> str:
        """The text of ids. Bytes that are no UTF-8, as where a character is cut, become U+FFFD.

        Args:
            ids: as for `decode_bytes`.
            errors: what to do with such bytes, as for `bytes.decode`.
        """
        return self.decode_bytes(ids).decode("utf-8", errors)

    def _encode(self, data: bytes) -> Array:
        """The ids of bytes without special tokens."""
        if is_compiling():
            return self._compiled().encode(data)
        known: dict[bytes, list[int]] = {}
        ids: list[int] = []
        for piece in cut(data, self.split):
            if piece not in known:
                known[piece] = self.encode_piece(piece)
            ids += known[piece]
        return np.array(ids, np.int32)

    def _compiled(self) -> Encoder:
        if self._encoder is None:
            from tinytorch.text.kernels.encoder import Encoder

            self._encoder = Encoder(self.vocabulary, self.merges, self.split, self.whole)
        return self._encoder

    def encode_piece(self, piece: bytes) -> list[int]:
        """The ids of one piece, in Python."""
        if self.merges is None and self.whole:
            return bpe.encode_piece(piece, self.vocabulary)
        if self.whole and piece in self.vocabulary:
            return [self.vocabulary[piece]]
        return [self.vocabulary[part] for part in bpe.join_by_rank(piece, self._rank)]

    def _rank(self, left: bytes, right: bytes) -> float:
        if self.merges is None:
            return self.vocabulary.get(left + right, math.inf)
        return self._ranks.get((left, right), math.inf)
