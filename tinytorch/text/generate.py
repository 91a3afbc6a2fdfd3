"""A language model writes: prompts in, one token after another out."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Sequence
from typing import Any

import numpy as np

from tinytorch.autograd import no_grad
from tinytorch.errors import ShapeError
from tinytorch.nn.gpt import GPT
from tinytorch.random import default_generator
from tinytorch.tensor import Tensor
from tinytorch.text.sampling import Sampling

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

    Returns:
        Prompt and continuation, for each prompt.

    Raises:
        ValueError: there is no prompt, or an empty one.
        ShapeError: a prompt and its continuation are longer than the model's context.
        IndexError: a token is outside of the vocabulary.
    """
    sequences = [[int(token) for token in prompt] for prompt in prompts]
    _check(model, sequences, max_new_tokens)
    sampling = sampling or Sampling()
    if seed is None:
        seed = default_generator.draw_seed() % 2**63
    rngs = [np.random.default_rng([seed, i]) for i in range(len(sequences))]
    running = set(range(len(sequences)))
    training, step = model.training, _Steps(model.eval(), sequences, max_new_tokens, use_cache)
    try:
        with no_grad():
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
    finally:
        model.train(training)
    return [s[: step.ends.get(i)] for i, s in enumerate(sequences)]


class _Steps:
    """The logits of the next token of each sequence, with a cache or without."""

    def __init__(self, model: GPT, sequences: list[list[int]], new: int, use_cache: bool) -> None:
        self.model, self.ends = model, dict[int, int]()
        longest = max(map(len, sequences))
        self.starts = [longest - len(s) for s in sequences]
        self.cache = None
        if use_cache:
            self.cache = model.make_cache(len(sequences), longest + new, self.starts)

    def __call__(self, sequences: list[list[int]]) -> np.ndarray:
        """(sequences, vocabulary)"""
        if self.cache is None:
            rows = [self.model(Tensor.from_numpy(np.array([s])))[0, -1] for s in sequences]
            return np.stack([row.numpy() for row in rows])
        padded = np.array([[0] * n + s for n, s in zip(self.starts, sequences, strict=True)])
        new = Tensor.from_numpy(padded[:, self.cache.used :].copy())
        logits: Tensor = self.model(new, self.cache, keep=1)
        return logits.numpy()[:, -1]


def _check(model: GPT, sequences: list[list[int]], new: int) -> None:
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
