"""Generation: with a cache and without, alone and in a batch; and how a token is chosen."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, strategies as st

import tinytorch
from tinytorch.backends.optimized import OptimizedBackend
from tinytorch.errors import ShapeError
from tinytorch.nn.gpt import GPT, GPTConfig
from tinytorch.text.generate import generate
from tinytorch.text.sampling import Sampling, penalized, probabilities

CONFIG = GPTConfig(vocab_size=30, context=280, layers=2, heads=2, width=16)
GREEDY = Sampling(temperature=0)


@pytest.fixture(autouse=True, scope="module")
def _fast() -> Iterator[None]:
    """Not on loops: hundreds of tokens."""
    with tinytorch.using_backend("numpy"):
        yield


def model(**choices: object) -> GPT:
    made = GPT(replace(CONFIG, **choices))  # type: ignore[arg-type]
    for p in made.parameters():
        p.data *= 20  # so that the largest logit is clear
    return made


@pytest.mark.slow
@pytest.mark.parametrize("choices", [{}, {"positions": "rotary", "kv_heads": 1, "window": 9}])
def test_256_greedy_tokens_are_those_without_a_cache(choices: dict[str, object]) -> None:
    net = model(**choices)
    prompt = [[3, 1, 4, 1, 5]]
    cached = generate(net, prompt, 256, GREEDY)
    assert cached == generate(net, prompt, 256, GREEDY, use_cache=False)
    assert len(cached[0]) == 261


@pytest.mark.slow
@pytest.mark.parametrize("choices", [{}, {"positions": "rotary", "kv_heads": 1, "window": 9}])
def test_256_tokens_of_compiled_code_are_those_without_a_cache(choices: dict[str, object]) -> None:
    net, prompt = model(**choices), [[3, 1, 4, 1, 5], [9, 2]]
    with tinytorch.using_backend("optimized"):
        compiled = generate(net, prompt, 256, GREEDY, compile=tinytorch.compile)
        assert compiled == generate(net, prompt, 256, GREEDY)
    assert compiled == generate(net, prompt, 256, GREEDY, use_cache=False)


@pytest.mark.parametrize("choices", [{}, {"positions": "rotary", "qk_norm": True, "window": 9}])
def test_what_a_step_repeats_is_compiled_at_the_first_of_them(
    choices: dict[str, object],
) -> None:
    """Not at the 32nd call of a function, in the middle of a text."""
    backend = OptimizedBackend()
    programs: list[int] = []  # so many after each token
    with tinytorch.using_backend(backend):
        generate(
            model(**choices), [[3, 1, 4]], 60, GREEDY,
            stream=lambda _, token: programs.append(_programs_of(backend)),
        )  # fmt: skip
    assert programs[0] < programs[1] == programs[-1]


def _programs_of(backend: OptimizedBackend) -> int:
    assert backend.programs is not None
    return sum(not isinstance(each, int) for each in backend.programs.values())


def test_compiled_code_goes_with_a_cache() -> None:
    with pytest.raises(ValueError, match="compile needs the cache"):
        generate(model(), [[1]], 2, compile=tinytorch.compile, use_cache=False)


@pytest.mark.parametrize("sampling", [GREEDY, Sampling(0.9, top_k=9, repetition_penalty=1.2)])
def test_a_batch_gives_each_prompt_what_it_gets_alone(sampling: Sampling) -> None:
    net, prompts = model(), [[1], [2, 3, 4, 5, 6, 7], [8, 9]]
    together = generate(net, prompts, 20, GREEDY)
    assert together == [generate(net, [p], 20, GREEDY)[0] for p in prompts]
    assert generate(net, prompts, 20, sampling, seed=1) == generate(
        net, prompts, 20, sampling, seed=1, use_cache=False
    )


def test_the_seed_decides_and_the_mode_is_given_back() -> None:
    net = model(dropout=0.5).train()
    a = generate(net, [[1, 2]], 12, Sampling(5.0), seed=1)
    assert a == generate(net, [[1, 2]], 12, Sampling(5.0), seed=1)
    assert a != generate(net, [[1, 2]], 12, Sampling(5.0), seed=2)
    assert net.training


@pytest.mark.parametrize("with_draft", [False, True])
def test_a_part_that_is_kept_in_evaluation_mode_stays_so(with_draft: bool) -> None:
    net, draft = model(), model()
    for each in (net, draft):
        each.train().blocks[0].eval()
    generate(net, [[1, 2]], 3, seed=0, draft=draft if with_draft else None)
    for each in (net, draft):
        assert each.training and not each.blocks[0].training and not each.blocks[0].mlp.training


def test_a_sequence_ends_at_a_stop_token_and_the_others_go_on() -> None:
    net, prompts = model(), [[1], [2, 3]]
    free = generate(net, prompts, 15, GREEDY)
    stop = free[0][4]
    found = generate(net, prompts, 15, GREEDY, stop={stop})
    for got, whole, prompt in zip(found, free, prompts, strict=True):
        new = whole[len(prompt) :]
        end = len(prompt) + (new.index(stop) + 1 if stop in new else len(new))
        assert got == whole[:end]


def test_tokens_are_streamed_as_they_come() -> None:
    seen: list[tuple[int, int]] = []
    result = generate(model(), [[1], [2]], 3, GREEDY, stream=lambda i, t: seen.append((i, t)))
    assert [i for i, _ in seen] == [0, 1, 0, 1, 0, 1]
    assert [t for i, t in seen if i == 0] == result[0][1:]


def test_a_model_trains_on_where_its_cache_could_not_be_made() -> None:
    net = model()
    net.make_cache = lambda *args: np.zeros(-1)  # type: ignore[method-assign, assignment, return-value]
    with pytest.raises(ValueError, match="negative"):
        generate(net, [[1]], 1)
    assert net.training


def test_what_cannot_be_continued_is_refused() -> None:
    net = model(context=8)
    with pytest.raises(ShapeError, match=r"a prompt of 6 tokens and 4 new .* of 8.* for 3"):
        generate(net, [[1] * 6], 4)
    assert len(generate(net, [[1] * 6], 3, GREEDY)[0]) == 9
    with pytest.raises(IndexError, match="prompt 1 has token 30; the vocabulary has 30"):
        generate(net, [[1], [30]], 1)
    with pytest.raises(IndexError, match="stop has token 31; the vocabulary has 30"):
        generate(net, [[1]], 1, stop=[2, 31])
    with pytest.raises(ValueError, match="at least one token"):
        generate(net, [[1], []], 1)
    for prompt, said in ((5, "got 5"), ([1.5], r"got \[1.5\]"), ("ab", "got 'ab'")):
        with pytest.raises(TypeError, match=f"prompt 1 must be a sequence of integers.*{said}"):
            generate(net, [[1], prompt], 1)  # type: ignore[list-item]
    with pytest.raises(ValueError, match=r"max_new_tokens must be an integer .* 0, got 2\.5"):
        generate(net, [[1]], 2.5)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="seed must be an integer of at least 0, got -1"):
        generate(net, [[1]], 1, seed=-1)
    with pytest.raises(TypeError, match=r"stop must be .* such as \{5\}, got 5"):
        generate(net, [[1]], 1, stop=5)  # type: ignore[arg-type]
    wrong = {
        "temperature": [-1.0],
        "top_k": [0, 2.5, 2.0],
        "top_p": [0.0],
        "repetition_penalty": [0.0],
    }
    for name, values in wrong.items():
        for value in values:
            with pytest.raises(ValueError, match=f"{name} must be .* got {value}"):
                Sampling(**{name: value})  # type: ignore[arg-type]


@given(
    st.lists(st.floats(-20, 20), min_size=1, max_size=30),
    st.none() | st.integers(1, 40),
    st.floats(0.01, 1.0),
)
def test_what_is_left_is_the_likeliest_and_sums_to_1(
    logits: list[float], k: int | None, top_p: float
) -> None:
    x = np.array(logits)
    p = probabilities(x, k, top_p)
    assert p.sum() == pytest.approx(1.0)
    left = p > 0
    assert 1 <= left.sum() <= (k or len(x))
    if (~left).any():
        assert x[left].min() >= x[~left & (p == 0)].max() or np.exp(x.min() - x.max()) < 1e-8
    whole = np.exp(x - x.max())
    whole /= whole.sum()
    if k is None:
        assert whole[left].sum() >= min(top_p, 1.0) - 1e-9


def test_a_penalty_makes_seen_tokens_less_likely() -> None:
    logits = np.array([2.0, -2.0, 1.0])
    assert penalized(logits, [0, 1, 1], 2.0).tolist() == [1.0, -4.0, 1.0]
    assert logits.tolist() == [2.0, -2.0, 1.0]


def test_choices_follow_the_probabilities() -> None:
    rng, sampling = np.random.default_rng(0), Sampling()
    logits = np.log(np.array([0.5, 0.2, 0.3]))
    drawn = np.bincount([sampling.choose(logits, [], rng) for _ in range(20_000)], minlength=3)
    np.testing.assert_allclose(drawn / 20_000, [0.5, 0.2, 0.3], atol=0.015)


@pytest.mark.filterwarnings("ignore:invalid value:RuntimeWarning")
@pytest.mark.parametrize("sampling", [GREEDY, Sampling(), Sampling(top_k=2), Sampling(top_p=0.5)])
@pytest.mark.parametrize("wrong", [np.nan, np.inf])
def test_logits_that_are_no_numbers_choose_no_token(sampling: Sampling, wrong: float) -> None:
    logits = np.array([0.0, wrong, 1.0], np.float32)
    if sampling is GREEDY and wrong == np.inf:
        assert sampling.choose(logits, [], np.random.default_rng(0)) == 1
        return
    with pytest.raises(ValueError, match="NaN"):
        sampling.choose(logits, [], np.random.default_rng(0))
