"""Speculative decoding, measured on models that have learned something.

With random weights two models agree on nothing, or on repeating the last token. So a GPT learns
from the characters of the corpus for about a minute; its weights are read from memory, not from a
core's cache. Its drafts are a far smaller model that has learned from the same text, and its own
weights in 4 bits.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator
from itertools import islice

import numpy as np
from runner import Case

import tinytorch
from tinytorch import optim
from tinytorch.compression import quantize_
from tinytorch.data import DataLoader
from tinytorch.nn import functional as F
from tinytorch.nn.gpt import GPT, GPTConfig
from tinytorch.text import CharacterTokenizer, Sampling, Windows, corpus
from tinytorch.text.speculative import Reader, Readers, Speculation, speculate

PROMPT = "The value of "
WINDOW, BATCH, NEW = 64, 8, 64
DRAFT_TOKENS = 4
SAMPLINGS = {"greedy": Sampling(temperature=0), "temperature 1": Sampling()}


def learned(config: GPTConfig, ids: np.ndarray, steps: int) -> GPT:
    """A model after so many steps of AdamW."""
    model = GPT(config)
    optimizer = optim.AdamW(model.parameters(), lr=1e-3)
    loader = DataLoader(Windows(ids, WINDOW), BATCH, shuffle=True, generator=0)
    for x, y in islice(loader, steps):
        optimizer.zero_grad()
        F.cross_entropy(model(x).flatten(0, 1), y.flatten()).backward()
        optimizer.step()
    return model.eval()


def one_by_one(model: GPT, prompt: list[int], sampling: Sampling) -> Callable[[], list[int]]:
    """Continues the prompt, compiled, a token in each pass of the model."""
    reader = Reader(model, len(prompt) + NEW, {1}, tinytorch.compile)

    def run() -> list[int]:
        tokens, rng = prompt.copy(), np.random.default_rng(0)
        with tinytorch.no_grad():
            for _ in range(NEW):
                tokens.append(sampling.choose(reader.read(tokens, 1)[0], tokens, rng))
        return tokens

    return run


def with_draft(
    model: GPT, draft: GPT, prompt: list[int], sampling: Sampling
) -> Callable[[], Speculation]:
    """The same by `speculate`; each call draws other numbers."""
    readers = Readers.of(model, draft, len(prompt) + NEW, DRAFT_TOKENS, tinytorch.compile)
    rng = np.random.default_rng(0)

    def run() -> Speculation:
        return speculate(
            model, draft, prompt, NEW, sampling, rng, draft_tokens=DRAFT_TOKENS, readers=readers
        )

    return run


def cases(small: bool) -> Iterator[Case]:
    """How many times longer the tokens take without a draft, and what part of it was accepted.

    Raises:
        AssertionError: the likeliest tokens with a draft are not those without.
    """
    text = corpus.python_docs("train")
    tokenizer = CharacterTokenizer.train(text)
    ids, prompt = tokenizer.encode(text), tokenizer.encode(PROMPT).tolist()
    size, context = len(tokenizer.characters), len(prompt) + NEW
    width, steps = (48, 20) if small else (384, 100)
    model = learned(GPTConfig(size, context, layers=6, heads=6, width=width), ids, steps)
    thin = learned(GPTConfig(size, context, layers=1, heads=2, width=width // 4), ids, 4 * steps)
    drafts = {"1 layer": thin, "itself in 4 bits": quantize_(copy.deepcopy(model), "int4")}
    for chance, sampling in SAMPLINGS.items():
        alone = one_by_one(model, prompt, sampling)
        for name, draft in drafts.items():
            run = with_draft(model, draft, prompt, sampling)
            tried = [run() for _ in range(4)]
            if sampling.temperature == 0:
                assert tried[0].tokens == alone(), f"{name}: other tokens with a draft"
            share = sum(t.accepted for t in tried) / sum(t.proposed for t in tried)
            yield Case(
                f"{NEW} tokens with a draft", f"{chance}, {name}: {share:.0%} accepted",
                {"ours": run, "one by one": alone},
            )  # fmt: skip
