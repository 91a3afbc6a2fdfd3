"""Fingerprints of a text by winnowing: of each window of hashes the least is kept.

Two texts that share a run of `SPAN + WINDOW - 1` tokens share a fingerprint, wherever it is; a run
of fewer than `SPAN` tokens is shared by chance and never found.

Source: Schleimer, Wilkerson and Aiken, "Winnowing: local algorithms for document fingerprinting",
SIGMOD 2003; the rightmost least hash of a window is taken, as there.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from tito.course.similar.tokens import Token

SPAN = 10  # tokens that are hashed together (k)
WINDOW = 5  # hashes of which one is kept (w)


@dataclass(frozen=True)
class Span:
    """The lines of a run, both included."""

    first: int
    last: int


def fingerprints(
    tokens: Sequence[Token], span: int = SPAN, window: int = WINDOW
) -> Mapping[int, list[Span]]:
    """The places of each fingerprint.

    A text that is shorter than a run has one fingerprint, of all of it.
    """
    if not tokens:
        return {}
    span = min(span, len(tokens))
    runs = [tokens[i : i + span] for i in range(len(tokens) - span + 1)]
    hashes = [_hash(run) for run in runs]
    window = min(window, len(hashes))
    kept: dict[int, list[Span]] = {}
    last = -1
    for start in range(len(hashes) - window + 1):
        least = min(range(start, start + window), key=lambda i: (hashes[i], -i))
        if least != last:
            lines = [token.line for token in runs[least]]
            kept.setdefault(hashes[least], []).append(Span(min(lines), max(lines)))
            last = least
    return kept


def _hash(run: Sequence[Token]) -> int:
    text = "\n".join(token.text for token in run)
    return int.from_bytes(hashlib.blake2b(text.encode(), digest_size=8).digest())
