"""The next token from its logits: temperature, the likeliest few, a penalty for repeating."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np


@dataclass(frozen=True)
class Sampling:
    """The way to choose a token.

    Attributes:
        temperature: logits are divided by it; 0 takes the largest, without chance.
        top_k: only the k likeliest; None for all.
        top_p: only the likeliest that together reach this probability (Holtzman and others, 2020).
        repetition_penalty: logits of tokens that there have been are divided by it where positive,
            and multiplied where negative (Keskar and others, 2019).

    Raises:
        ValueError: a value is out of range.
    """

    temperature: float = 1.0
    top_k: int | None = None
    top_p: float = 1.0
    repetition_penalty: float = 1.0

    def __post_init__(self) -> None:
        if not self.temperature >= 0:
            raise ValueError(f"temperature must be at least 0, got {self.temperature}")
        is_whole = isinstance(self.top_k, int | np.integer)
        if self.top_k is not None and not (is_whole and self.top_k >= 1):
            raise ValueError(f"top_k must be an integer of at least 1, got {self.top_k}")
        if not 0 < self.top_p <= 1:
            raise ValueError(f"top_p must be above 0 and at most 1, got {self.top_p}")
        if not self.repetition_penalty > 0:
            raise ValueError(f"repetition_penalty must be above 0, got {self.repetition_penalty}")

    def choose(self, logits: np.ndarray, before: list[int], rng: np.random.Generator) -> int:
        """A token.

        Args:
            logits: (vocabulary,)
            before: the tokens of the sequence so far.
            rng: draws one number, at temperatures above 0.

        Raises:
            ValueError: a logit is NaN, or the largest is infinite and the temperature is above 0.
        """
        if self.temperature == 0:
            return _largest(penalized(logits, before, self.repetition_penalty))
        return draw(self.distribution(logits, before), rng)

    def distribution(self, logits: np.ndarray, before: list[int]) -> np.ndarray:
        """(vocabulary,) in float64: the probability with which each token is chosen."""
        logits = penalized(logits.astype(np.float64), before, self.repetition_penalty)
        if self.temperature == 0:
            chosen = np.zeros_like(logits)
            chosen[_largest(logits)] = 1.0
            return chosen
        return probabilities(logits / self.temperature, self.top_k, self.top_p)


def _largest(logits: np.ndarray) -> int:
    token = int(logits.argmax())  # of NaN, if there is one
    if np.isnan(logits[token]):
        raise ValueError(f"the logit of token {token} is NaN")
    return token


def draw(p: np.ndarray, rng: np.random.Generator) -> int:
    """A token with these probabilities, which need not sum to 1; one number is drawn."""
    total = np.cumsum(p)
    return int(np.searchsorted(total, rng.random() * total[-1], side="right"))


def penalized(logits: np.ndarray, before: list[int], penalty: float) -> np.ndarray:
    """Logits with those of the tokens in `before` made smaller."""
    if penalty == 1.0 or not before:
        return logits
    logits, seen = logits.copy(), np.unique(before)
    logits[seen] = np.where(logits[seen] > 0, logits[seen] / penalty, logits[seen] * penalty)
    return logits


def probabilities(logits: np.ndarray, top_k: int | None = None, top_p: float = 1.0) -> np.ndarray:
    """Softmax over the likeliest tokens; 0 for the others. At least one is left.

    Of equally likely tokens at the border the first ones are taken. NaN among the logits, and one
    of plus infinity, raise ValueError.

    >>> probabilities(np.log(np.array([0.1, 0.6, 0.3])), top_k=2).round(3).tolist()
    [0.0, 0.667, 0.333]
    >>> probabilities(np.log(np.array([0.1, 0.6, 0.3])), top_p=0.5).tolist()
    [0.0, 1.0, 0.0]
    """
    p: np.ndarray = np.exp(logits - logits.max())
    if top_k is not None and top_k < len(p):
        # sorting all tokens would take as long as a quantized model's step
        border = np.partition(logits, -top_k)[-top_k]
        p[logits < border] = 0.0
        tied = np.flatnonzero(logits == border)
        p[tied[len(tied) + top_k - np.count_nonzero(logits >= border) :]] = 0.0
    total = p.sum()
    if not total > 0:
        raise ValueError("no token is likely: logits are NaN, or the largest is infinite")
    p /= total
    if top_p == 1.0:
        return p
    # those below the limit have less than 1 - top_p together: none of them is needed
    few = np.flatnonzero(p > (1.0 - top_p) / len(p) * 0.999)
    order = few[np.argsort(-logits[few], kind="stable")]
    kept = order[np.concatenate([[True], np.cumsum(p[order])[:-1] < top_p])]
    result = np.zeros_like(p)
    result[kept] = p[kept] / p[kept].sum()
    return result
