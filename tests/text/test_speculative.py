"""A draft changes how fast tokens come, and never which, or how likely."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from itertools import product
from typing import Any

import numpy as np
import pytest

import tinytorch
from tinytorch.nn.gpt import GPT, GPTConfig
from tinytorch.tensor import Tensor
from tinytorch.text.generate import generate
from tinytorch.text.sampling import Sampling, draw
from tinytorch.text.speculative import accept, speculate

CONFIG = GPTConfig(vocab_size=12, context=64, layers=2, heads=2, width=16)
GREEDY = Sampling(temperature=0)


@pytest.fixture(autouse=True, scope="module")
def _fast() -> Iterator[None]:
    with tinytorch.using_backend("numpy"):
        yield


def model(seed: int, scale: float = 20.0, **choices: object) -> GPT:
    tinytorch.manual_seed(seed)
    made = GPT(replace(CONFIG, **choices)).eval()  # type: ignore[arg-type]
    for p in made.parameters():
        p.data *= scale  # at 20 the largest logit is clear
    return made


@pytest.mark.slow_beyond(1)
@pytest.mark.parametrize("choices", [{}, {"positions": "rotary", "window": 5, "kv_heads": 1}])
def test_greedy_tokens_are_the_models_own_with_any_draft(choices: dict[str, object]) -> None:
    large, prompts = model(0, **choices), [[1, 2, 3], [4], [5, 6]]
    expected = generate(large, prompts, 24, GREEDY)
    for draft in (model(1, layers=1), large):
        for count in (1, 4):
            got = generate(large, prompts, 24, GREEDY, draft=draft, draft_tokens=count)
            assert got == expected
    penalized = replace(GREEDY, repetition_penalty=1.5)
    assert generate(large, prompts, 20, penalized, draft=model(1)) == generate(
        large, prompts, 20, penalized
    )


def test_logits_that_are_nan_are_named_as_without_a_draft() -> None:
    large = model(0)
    large.norm.weight.data *= float("nan")
    with pytest.raises(ValueError, match="is NaN"):
        generate(large, [[1]], 2, GREEDY, draft=model(1))


def test_compiled_code_writes_the_same_and_is_traced_once_for_all_prompts() -> None:
    large, small, prompts = model(0, tied=False), model(1, layers=1), [[1, 2, 3], [4]]
    expected = generate(large, prompts, 24, GREEDY)
    compiled: list[Any] = []

    def compile(function: Any) -> Any:
        compiled.append(tinytorch.compile(function))
        return compiled[-1]

    for draft in (small, large):
        compiled.clear()
        got = generate(large, prompts, 24, GREEDY, draft=draft, compile=compile)
        assert got == expected
        target, helper = compiled
        assert len(target.traces) == 1  # five tokens
        assert len(helper.traces) == (2 if draft is large else 1)  # two, where all were accepted


def test_a_draft_that_always_agrees_saves_four_passes_of_five() -> None:
    large = model(0)
    done = speculate(large, large, [1, 2], 40, GREEDY, np.random.default_rng(0))
    assert (done.passes, done.proposed, done.accepted) == (8, 32, 32)
    other = speculate(large, model(1), [1, 2], 40, GREEDY, np.random.default_rng(0))
    assert other.tokens == done.tokens
    assert other.passes == 40 - other.accepted and other.accepted < other.proposed


def test_a_stop_token_ends_the_sequence_amid_what_was_accepted() -> None:
    large, seen = model(0), list[tuple[int, int]]()
    (free,) = generate(large, [[1, 2]], 20, GREEDY)
    stop = free[7]
    (got,) = generate(
        large,
        [[1, 2]],
        20,
        GREEDY,
        stop={stop},
        draft=large,
        stream=lambda i, t: seen.append((i, t)),
    )
    assert got == free[: free.index(stop, 2) + 1]
    assert [t for _, t in seen] == got[2:]


def test_what_is_kept_or_drawn_instead_has_the_models_distribution() -> None:
    rng = np.random.default_rng(0)
    guess, own = np.array([0.6, 0.3, 0.1, 0.0]), np.array([0.1, 0.3, 0.35, 0.25])
    after = np.array([0.25, 0.25, 0.25, 0.25])
    drawn = [accept([draw(guess, rng)], [guess], [own, after], rng) for _ in range(20_000)]
    first = np.bincount([tokens[0] for tokens in drawn], minlength=4) / len(drawn)
    np.testing.assert_allclose(first, own, atol=0.015)  # 4.5 standard deviations
    kept = sum(len(tokens) == 2 for tokens in drawn) / len(drawn)
    assert kept == pytest.approx(np.minimum(guess, own).sum(), abs=0.015)


@pytest.mark.slow
def test_pairs_of_tokens_are_as_likely_as_the_model_says() -> None:
    """Chi-squared over all pairs of a vocabulary of three, with top-p and temperature."""
    large, small = model(0, 3, vocab_size=3), model(3, 4, vocab_size=3, layers=1)
    sampling, prompt, n = Sampling(1.0, top_p=0.9), [0, 1], 500

    def distribution(tokens: list[int]) -> np.ndarray:
        with tinytorch.no_grad():
            logits = large(Tensor.from_numpy(np.array([tokens]))).numpy()[0, -1]
        return sampling.distribution(logits, tokens)

    first = distribution(prompt)
    expected = {
        (a, b): n * first[a] * distribution([*prompt, a])[b] for a, b in product(range(3), repeat=2)
    }
    rng, counts = np.random.default_rng(1), dict.fromkeys(expected, 0)
    for _ in range(n):
        a, b = speculate(large, small, prompt, 2, sampling, rng, draft_tokens=3).tokens[2:]
        counts[a, b] += 1
    assert all(counts[pair] == 0 for pair, e in expected.items() if e == 0)
    terms = [(counts[pair] - e) ** 2 / e for pair, e in expected.items() if e > 0]
    assert len(terms) == 8  # top-p leaves one out
    assert sum(terms) < 24.3  # 0.1 % of the chi-squared distribution with 7 degrees of freedom


def test_a_draft_that_does_not_fit_is_refused() -> None:
    large = model(0)
    with pytest.raises(ValueError, match="draft has a vocabulary of 7, and the model one of 12"):
        generate(large, [[1]], 3, draft=model(1, vocab_size=7))
    with pytest.raises(ValueError, match="draft sees 4 tokens, and 6 are to be read"):
        generate(large, [[1, 2]], 5, draft=model(1, context=4))
    with pytest.raises(ValueError, match="draft_tokens must be at least 1, got 0"):
        generate(large, [[1]], 3, draft=large, draft_tokens=0)
    with pytest.raises(ValueError, match="a draft needs the cache"):
        generate(large, [[1]], 3, draft=large, use_cache=False)
    with pytest.raises(ValueError, match="max_new_tokens must be an integer of at least 0, got -1"):
        generate(large, [[1]], -1)
