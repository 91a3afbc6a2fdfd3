"""Speculative decoding: a small model proposes tokens, the large one checks them in one pass.

A pass over five tokens reads the weights once, as a pass over one does, and reading them is what
takes the time. What is written has the distribution of the large model, whatever the small one
proposes; only the speed depends on how often the two agree.

Source: Y. Leviathan, M. Kalman, Y. Matias, "Fast inference from transformers via speculative
decoding", 2023, algorithm 1; C. Chen et al., "Accelerating large language model decoding with
speculative sampling", 2023.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from tinytorch.autograd import no_grad
from tinytorch.nn.decoding import DecodeStep
from tinytorch.nn.gpt import GPT
from tinytorch.tensor import Tensor
from tinytorch.text.sampling import Sampling, draw

Compiler = Callable[..., Any]


@dataclass
class Speculation:
    """The tokens that were written, and how many passes they took.

    Attributes:
        tokens: the prompt and its continuation.
        passes: of the large model, the one over the prompt included.
        proposed, accepted: tokens of the small model, and those of them that were kept.
    """

    tokens: list[int]
    passes: int = 0
    proposed: int = 0
    accepted: int = 0


def speculate(
    model: GPT,
    draft: GPT,
    prompt: Sequence[int],
    max_new_tokens: int,
    sampling: Sampling,
    rng: np.random.Generator,
    *,
    draft_tokens: int = 4,
    stop: Collection[int] = (),
    stream: Callable[[int], Any] = lambda token: None,
    readers: Readers | None = None,
) -> Speculation:
    """Continue one prompt; both models are in evaluation mode.

    At temperature 0 the tokens are the model's own likeliest ones. `generate(..., draft=...)` calls
    this, and checks what it is given.

    Args:
        draft: proposes; it has the model's vocabulary, and sees as many tokens.
        draft_tokens: how many it proposes at a time.
        readers: of both models, where several prompts share them.
    """
    done = Speculation([int(token) for token in prompt])
    tokens, end = done.tokens, len(prompt) + max_new_tokens
    target, helper = readers or Readers.of(model, draft, end, draft_tokens)
    with no_grad():
        while len(tokens) < end:
            count = min(draft_tokens, end - len(tokens) - 1)
            proposals, guesses = _propose(helper, tokens, count, sampling, rng)
            logits = target.read(tokens + proposals, count + 1)
            own = [
                sampling.distribution(row, tokens + proposals[:i]) for i, row in enumerate(logits)
            ]
            new = accept(proposals, guesses, own, rng)
            done.passes += 1
            done.proposed += count
            done.accepted += len(new) - 1
            for token in new:
                tokens.append(token)
                stream(token)
                if token in stop:
                    return done
    return done


def accept(
    proposals: Sequence[int],
    guesses: Sequence[np.ndarray],
    own: Sequence[np.ndarray],
    rng: np.random.Generator,
) -> list[int]:
    """The proposals up to the first that is refused, and one token more.

    A proposal x is kept with probability min(1, own[x] / guess[x]). In place of one that is refused
    a token is drawn from max(own - guess, 0): together that is a draw from `own`.

    Args:
        proposals: tokens; number i was drawn from `guesses[i]`.
        guesses: (vocabulary,) for each proposal.
        own: the large model's probabilities there, and after the last proposal.
    """
    kept: list[int] = []
    for token, guess, p in zip(proposals, guesses, own, strict=False):
        if rng.random() * guess[token] >= p[token]:
            return [*kept, draw(np.maximum(p - guess, 0.0), rng)]
        kept.append(token)
    return [*kept, draw(own[-1], rng)]


def _propose(
    helper: Reader, tokens: list[int], count: int, sampling: Sampling, rng: np.random.Generator
) -> tuple[list[int], list[np.ndarray]]:
    """Tokens of the small model, and the probabilities from which each was drawn."""
    proposals: list[int] = []
    guesses: list[np.ndarray] = []
    for _ in range(count):
        (logits,) = helper.read(tokens + proposals, 1)
        guesses.append(sampling.distribution(logits, tokens + proposals))
        proposals.append(draw(guesses[-1], rng))
    return proposals, guesses


class Reader:
    """A model and its cache, which goes back where a sequence has changed.

    Args:
        length: of the cache.
        compile: `tinytorch.compile`, so that to read `counts` new tokens is one call of compiled
            code: see `DecodeStep`.
    """

    def __init__(
        self, model: GPT, length: int, counts: Collection[int], compile: Compiler | None
    ) -> None:
        self.model, self.cache, self.counts = model, model.make_cache(1, length), counts
        self.step = None if compile is None else DecodeStep(model, self.cache, compile)
        self.tokens: list[int] = []  # in the cache

    def read(self, tokens: list[int], count: int) -> np.ndarray:
        """(count, vocabulary): the logits after each of the last `count` tokens."""
        pairs = zip(self.tokens, tokens, strict=False)
        same = next((i for i, (a, b) in enumerate(pairs) if a != b), len(self.tokens))
        same = min(same, len(tokens) - count)
        self.cache.rewind(same)
        new = Tensor.from_numpy(np.array([tokens[same:]]))
        if self.step is not None and len(tokens) - same in self.counts:
            logits = self.step(new)
        else:
            logits = self.model(new, self.cache, keep=count)
        self.tokens = tokens.copy()
        result: np.ndarray = logits.numpy()[0, -count:]
        return result


class Readers(NamedTuple):
    """The large model and the small one."""

    target: Reader
    helper: Reader

    @classmethod
    def of(
        cls, model: GPT, draft: GPT, length: int, draft_tokens: int, compile: Compiler | None = None
    ) -> Readers:
        """Readers of sequences of this length at most.

        Compiled is what comes again and again: the large model reads all that is proposed and its
        own last token, the small one that token, or two where all its proposals were accepted.
        """
        target = Reader(model, length, {draft_tokens + 1}, compile)
        return cls(target, Reader(draft, length, {1, 2}, compile))
