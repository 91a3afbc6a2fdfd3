"""A language model writes: prompts in, one token after another out."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Sequence
from contextlib import nullcontext
from functools import partial
from operator import index
from typing import Any

import numpy as np

from tinytorch.errors import ShapeError
from tinytorch.nn.decoding import DecodeStep
from tinytorch.nn.evaluation import evaluating
from tinytorch.nn.gpt import GPT
from tinytorch.random import default_generator
from tinytorch.replay import programs_at_once
from tinytorch.tensor import Tensor
from tinytorch.text.sampling import Sampling
from tinytorch.text.speculative import Compiler, Readers, speculate

Stream = Callable[[int, int], Any]


def generate(
    model: GPT,
    prompts: Sequence[Iterable[int]],
    max_new_tokens: int,
    sampling: Sampling | None = None,
    *,
    stop: Collection[int] = (),
    seed: int | None = None,
    stream: Stream | None = None,
    use_cache: bool = True,
    compile: Compiler | None = None,
    draft: GPT | None = None,
    draft_tokens: int = 4,
) -> list[list[int]]:
    """Continue each prompt.

    All prompts go through the model in one pass, which fills a cache of keys and values; after it
    every step is one token for each of them. What a prompt gets does not depend on the others.

        ids = generate(model, [tokenizer.encode("def ")], 100, Sampling(temperature=0.8, top_k=40))
        print(tokenizer.decode(ids[0]))

    Args:
        model: a `GPT`; it is in evaluation mode meanwhile.
        prompts: the tokens of each; of different lengths if need be.
        max_new_tokens: how many to add at most.
        sampling: how a token is chosen.
        stop: tokens after which a sequence ends; they are in the result.
        seed: of the choices. None draws one from the default generator.
        stream: called with (number of the prompt, token) for each new token.
        use_cache: False to compute everything anew at every token, to compare.
        compile: `tinytorch.compile`, so that each token is one call of compiled code: see
            `DecodeStep`. Compiling takes a few seconds, once.
        draft: a small model with the same vocabulary that proposes tokens: the result has the same
            distribution (at temperature 0 the same tokens), sooner. The prompts are continued one
            after the other then. See `speculative`.
        draft_tokens: how many it proposes at a time.

    Returns:
        Prompt and continuation, for each prompt.

    Raises:
        ValueError: there is no prompt, or an empty one; the draft does not fit the model; `compile`
            without the cache.
        ShapeError: a prompt and its continuation are longer than the model's context.
        IndexError: a token is outside of the vocabulary.
        TypeError: a prompt is no sequence of integers.
    """
    sequences = [_tokens(i, prompt) for i, prompt in enumerate(prompts)]
    _check(model, sequences, max_new_tokens, stop, seed)
    sampling = sampling or Sampling()
    if seed is None:
        seed = default_generator.draw_seed() % 2**63
    rngs = [np.random.default_rng([seed, i]) for i in range(len(sequences))]
    if compile is not None and not use_cache:
        raise ValueError("compile needs the cache: leave use_cache as it is")
    if draft is not None:
        _check_draft(model, draft, sequences, max_new_tokens, draft_tokens, use_cache)
        return _with_draft(
            model, draft, sequences, max_new_tokens, sampling, rngs, draft_tokens, stop, stream,
            compile,
        )  # fmt: skip
    running = set(range(len(sequences)))
    with evaluating(model):
        step = _Steps(model, sequences, max_new_tokens, use_cache, compile)
        for _ in range(max_new_tokens):
            logits = step(sequences)
            for i, sequence in enumerate(sequences):
                if i not in running:
                    sequence.append(0)  # goes on as padding, taken off below
                    continue
                token = sampling.choose(logits[i], sequence, rngs[i])
                sequence.append(token)
                if stream is not None:
                    stream(i, token)
                if token in stop:
                    running.discard(i)
                    step.ends[i] = len(sequence)
            if not running:
                break
    return [s[: step.ends.get(i)] for i, s in enumerate(sequences)]


def _with_draft(
    model: GPT,
    draft: GPT,
    sequences: list[list[int]],
    new: int,
    sampling: Sampling,
    rngs: list[np.random.Generator],
    draft_tokens: int,
    stop: Collection[int],
    stream: Stream | None,
    compile: Compiler | None,
) -> list[list[int]]:
    """`generate` by `speculate`, one prompt after the other."""
    length = max(map(len, sequences)) + new
    with evaluating(model), evaluating(draft):
        readers = Readers.of(model, draft, length, draft_tokens, compile)
        return [
            speculate(
                model, draft, sequence, new, sampling, rngs[i], draft_tokens=draft_tokens,
                stop=stop, stream=partial(stream, i) if stream is not None else lambda token: None,
                readers=readers,
            ).tokens
            for i, sequence in enumerate(sequences)
        ]  # fmt: skip


class _Steps:
    """The logits of the next token of each sequence, with a cache or without."""

    def __init__(
        self,
        model: GPT,
        sequences: list[list[int]],
        new: int,
        use_cache: bool,
        compile: Compiler | None,
    ) -> None:
        self.model, self.ends = model, dict[int, int]()
        self.longest = longest = max(map(len, sequences))
        self.starts = [longest - len(s) for s in sequences]
        self.cache, self.compiled = None, None
        if use_cache:
            self.cache = model.make_cache(len(sequences), longest + new, self.starts)
        if self.cache is not None and compile is not None:
            self.compiled = DecodeStep(model, self.cache, compile)

    def __call__(self, sequences: list[list[int]]) -> np.ndarray:
        """(sequences, vocabulary)"""
        if self.cache is None:
            rows = [self.model(Tensor.from_numpy(np.array([s])))[0, -1] for s in sequences]
            return np.stack([row.numpy() for row in rows])
        used, rows_of_new = self.cache.used, []
        for start, s in zip(self.starts, sequences, strict=True):
            rows_of_new.append([0] * (start - used) + s[max(used - start, 0) :])
        new = Tensor.from_numpy(np.array(rows_of_new))
        if used and self.compiled is not None:
            return self.compiled(new).numpy()[:, -1]
        is_second = used == self.longest  # behind the prompt: all steps to come are like it
        with programs_at_once() if is_second else nullcontext():
            logits: Tensor = self.model(new, self.cache, keep=1)
        return logits.numpy()[:, -1]


def _check_draft(
    model: GPT, draft: GPT, sequences: list[list[int]], new: int, draft_tokens: int, use_cache: bool
) -> None:
    if not use_cache:
        raise ValueError("a draft needs the cache: leave use_cache as it is")
    if draft_tokens < 1:
        raise ValueError(f"draft_tokens must be at least 1, got {draft_tokens}")
    ours, theirs = model.config.vocab_size, draft.config.vocab_size
    if ours != theirs:
        raise ValueError(f"the draft has a vocabulary of {theirs}, and the model one of {ours}")
    length = max(map(len, sequences)) + new - 1
    if length > draft.config.context:
        raise ValueError(
            f"the draft sees {draft.config.context} tokens, and {length} are to be read: cut the "
            f"prompt, or ask for fewer"
        )


def _tokens(i: int, prompt: Iterable[int]) -> list[int]:
    try:
        return [index(token) for token in prompt]
    except TypeError:
        raise TypeError(
            f"prompt {i} must be a sequence of integers, the ids of tokens, got {prompt!r:.80}"
        ) from None


def _check(
    model: GPT, sequences: list[list[int]], new: int, stop: Collection[int], seed: int | None
) -> None:
    for name, value in (("max_new_tokens", new), ("seed", 0 if seed is None else seed)):
        if not isinstance(value, (int, np.integer)) or value < 0:
            raise ValueError(f"{name} must be an integer of at least 0, got {value!r}")
    if not isinstance(stop, Collection):
        raise TypeError(f"stop must be a collection of tokens, such as {{{stop!r}}}, got {stop!r}")
    if not sequences or not all(sequences):
        raise ValueError("generate: give at least one prompt, and at least one token in each")
    longest, context = max(map(len, sequences)), model.config.context
    if longest + new > context + 1:
        raise ShapeError(
            f"a prompt of {longest} tokens and {new} new ones are more than the model's context "
            f"of {context}: cut the prompt, or ask for {max(context + 1 - longest, 0)}"
        )
    size = model.config.vocab_size
    for i, sequence in enumerate(sequences):
        for token in sequence:
            if not 0 <= token < size:
                raise IndexError(f"prompt {i} has token {token}; the vocabulary has {size}")
    if unknown := [token for token in stop if not 0 <= token < size]:
        raise IndexError(f"stop has token {unknown[0]}; the vocabulary has {size}")
