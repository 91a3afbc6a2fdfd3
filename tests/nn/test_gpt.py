"""GPT: the logits of Hugging Face's models, no look at what comes later, and its choices."""

from __future__ import annotations

import inspect
from collections.abc import Iterator
from dataclasses import asdict, replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

import tinytorch
from tests.syntax import code_lines
from tinytorch.compression import quantize_
from tinytorch.errors import ShapeError, StateDictError
from tinytorch.nn import functional as F
from tinytorch.nn.gpt import GPT, GPTConfig
from tinytorch.nn.gpt_config import OPTIONAL_SIZES
from tinytorch.nn.gpt_weights import gpt_from_huggingface
from tinytorch.nn.positions import rotary_table, rotate, sinusoidal_positions

SMALL = GPTConfig(vocab_size=20, context=16, layers=2, heads=4, width=32)
CHOICES: dict[str, dict[str, Any]] = {
    "gpt2": {},
    "grouped queries": {"kv_heads": 2},
    "rms norm, no bias": {"norm": "rms", "bias": False},
    "rotary": {"positions": "rotary"},
    "squared relu": {"activation": "relu2"},
    "swiglu": {"activation": "swiglu", "hidden": 48},
    "qk norm": {"qk_norm": True},
    "sliding window": {"window": 3},
    "untied": {"tied": False},
}


@pytest.fixture(autouse=True, scope="module")
def _fast() -> Iterator[None]:
    """Not on loops: hundreds of tokens."""
    with tinytorch.using_backend("numpy"):
        yield


def make(**choices: Any) -> GPT:
    return GPT(replace(SMALL, **choices)).eval()


@pytest.mark.parametrize("choices", CHOICES.values(), ids=list(CHOICES))
def test_logits_depend_on_no_later_token_and_every_weight_has_a_gradient(
    choices: dict[str, Any], rng: np.random.Generator
) -> None:
    model = make(**choices)
    tokens = rng.integers(0, 20, (2, 8))
    logits = model(tinytorch.tensor(tokens))
    assert logits.shape == (2, 8, 20)
    changed = tokens.copy()
    changed[:, 5:] = (changed[:, 5:] + 1) % 20
    np.testing.assert_allclose(
        model(tinytorch.tensor(changed)).detach().numpy()[:, :5],
        logits.detach().numpy()[:, :5], atol=1e-6,
    )  # fmt: skip
    F.cross_entropy(logits.flatten(0, 1), tinytorch.tensor(tokens).flatten()).backward()
    assert [name for name, p in model.named_parameters() if p.grad is None] == []


@pytest.mark.parametrize("window", [1, 3, 16])
def test_a_window_sees_so_many_tokens(window: int) -> None:
    model = GPT(replace(SMALL, layers=1, window=window)).eval()
    tokens = np.arange(10)[None] % 20
    before = model(tinytorch.tensor(tokens)).detach().numpy()[0]
    changed = tokens.copy()
    changed[0, 2] = 15
    differs = np.abs(model(tinytorch.tensor(changed)).detach().numpy()[0] - before).max(-1) > 1e-7
    assert differs.tolist() == [2 <= i < 2 + window for i in range(10)]


@pytest.mark.parametrize("choices", CHOICES.values(), ids=list(CHOICES))
def test_a_cache_changes_no_logit(choices: dict[str, Any], rng: np.random.Generator) -> None:
    model = make(**choices)
    tokens = rng.integers(0, 20, (2, 12))
    whole = model(tinytorch.tensor(tokens)).detach().numpy()
    with tinytorch.no_grad():
        cache = model.make_cache(2, 12)
        found = [
            model(tinytorch.tensor(tokens[:, a:b]), cache).numpy()
            for a, b in ((0, 5), (5, 6), (6, 9), (9, 12))
        ]
        np.testing.assert_allclose(np.concatenate(found, 1), whole, atol=1e-5)
        with pytest.raises(ShapeError, match="12 tokens and 1 more do not fit into a cache of 12"):
            model(tinytorch.tensor(tokens[:, :1]), cache)
    heads = choices.get("kv_heads", 4)
    assert cache.nbytes == 2 * 2 * 2 * heads * 12 * 8 * 4


def test_a_model_of_fields_by_name() -> None:
    fields = asdict(SMALL) | {"positions": "rotary", "norm": "rms"}
    tinytorch.manual_seed(0)
    by_name = GPT.from_config(fields)
    tinytorch.manual_seed(0)
    by_config = GPT.from_config(GPTConfig(**fields))
    assert by_name.config == by_config.config
    tokens = tinytorch.tensor([[1, 2, 3]])
    assert by_name(tokens).tolist() == by_config(tokens).tolist()
    with pytest.raises(TypeError, match="hiden"):
        GPT.from_config(fields | {"hiden": 3})


def test_the_model_is_short_enough_to_be_read() -> None:
    assert code_lines(Path(inspect.getfile(GPT))) <= 120


def test_what_does_not_fit_is_said() -> None:
    with pytest.raises(ShapeError, match="17 tokens, but the model sees 16"):
        make()(tinytorch.zeros(1, 17, dtype="int64"))
    with pytest.raises(ShapeError, match="17 tokens, but the model sees 16"), tinytorch.no_grad():
        model = make()
        cache = model.make_cache(1, 20)
        model(tinytorch.zeros(1, 16, dtype="int64"), cache)
        model(tinytorch.zeros(1, 1, dtype="int64"), cache)
    with pytest.raises(ShapeError, match=r"must be \(batch, length\), got shape \(3,\)"):
        make()(tinytorch.tensor([1, 2, 3]))
    with pytest.raises(ShapeError, match="3 sequences, but the cache is for 2"):
        make()(tinytorch.zeros(3, 1, dtype="int64"), make().make_cache(2, 8))
    with pytest.raises(IndexError, match="20"):
        make()(tinytorch.tensor([[20]]))
    for name in ("vocab_size", "context", "layers", "heads", "width", *OPTIONAL_SIZES):
        for size in (0, -1, 1.5):
            with pytest.raises(ValueError, match=f"{name} must be an integer .* not {size}"):
                replace(SMALL, **{name: size})
    with pytest.raises(ValueError, match="width 30 must be a multiple of heads 4"):
        replace(SMALL, width=30)
    with pytest.raises(ValueError, match="norm is 'batch'"):
        replace(SMALL, norm="batch")
    with pytest.raises(ValueError, match="even width, got 3"):
        sinusoidal_positions(4, 3)


def test_a_rotated_product_depends_on_the_distance_only(rng: np.random.Generator) -> None:
    q, k = (tinytorch.tensor(rng.standard_normal(8, np.float32)) for _ in range(2))
    cos, sin = rotary_table(20, 8)

    def product(i: int, j: int) -> float:
        return float((rotate(q, cos[i], sin[i]) * rotate(k, cos[j], sin[j])).sum().item())

    assert product(3, 1) == pytest.approx(product(17, 15), abs=1e-5)
    assert product(3, 1) != pytest.approx(product(3, 2), abs=1e-3)


# -- Hugging Face's models -------------------------------------------------------------------------


def _theirs(kind: str) -> Any:
    torch = pytest.importorskip("torch")
    transformers = pytest.importorskip("transformers")
    torch.manual_seed(0)
    if kind.startswith("gpt2"):
        config = transformers.GPT2Config(
            vocab_size=50, n_positions=24, n_embd=32, n_layer=2, n_head=4,
            tie_word_embeddings=kind == "gpt2",
        )  # fmt: skip
        return transformers.GPT2LMHeadModel(config).eval()
    config = transformers.LlamaConfig(
        vocab_size=50, hidden_size=32, intermediate_size=40, num_hidden_layers=2,
        num_attention_heads=4, num_key_value_heads=2, max_position_embeddings=24,
        tie_word_embeddings=kind == "llama, tied",
    )  # fmt: skip
    return transformers.LlamaForCausalLM(config).eval()


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["gpt2", "gpt2, untied", "llama", "llama, tied"])
def test_the_logits_of_hugging_face(kind: str, rng: np.random.Generator) -> None:
    import torch

    theirs = _theirs(kind)
    with torch.no_grad():
        for p in theirs.parameters():  # biases and norms are no longer 0 and 1
            p.add_(0.1 * torch.randn_like(p))
    ours = gpt_from_huggingface(theirs.config, theirs.state_dict())
    tokens = rng.integers(0, 50, (2, 24))
    with torch.no_grad():
        expected = theirs(torch.tensor(tokens)).logits.numpy()
    np.testing.assert_allclose(ours(tinytorch.tensor(tokens)).detach().numpy(), expected, atol=2e-4)


@pytest.mark.slow
def test_a_model_in_bfloat16_is_the_float32_model_of_its_weights() -> None:
    """The form in which Llamas are published: loaded exactly, and stored so again exactly."""
    theirs = _theirs("llama, tied").bfloat16()
    ours = gpt_from_huggingface(theirs.config, theirs.state_dict())
    stored = quantize_(gpt_from_huggingface(theirs.config, theirs.state_dict()), "bfloat16")
    for name, weight in stored.state_dict().items():
        if weight.dtype is tinytorch.bfloat16:
            plain = ours.state_dict()[name.replace("codes", "weight")].numpy()
            np.testing.assert_array_equal(np.asarray(weight[:, : plain.shape[1]]), plain)
    for backend in ("numpy", "optimized"):
        with tinytorch.using_backend(backend), tinytorch.no_grad():
            for tokens in (tinytorch.tensor([[3, 1, 4]]), tinytorch.tensor([[2]])):
                np.testing.assert_allclose(
                    stored(tokens).numpy(), ours(tokens).numpy(), rtol=1e-5, atol=1e-6
                )


def test_a_state_that_is_none_is_refused() -> None:
    class Config:
        model_type = "mamba"

    with pytest.raises(StateDictError, match="'mamba': there are gpt2, llama"):
        gpt_from_huggingface(Config(), {})


@pytest.mark.slow
@pytest.mark.parametrize(
    ("kind", "name", "value", "said"),
    [
        ("gpt2", "scale_attn_weights", False, "scale_attn_weights=False; only True"),
        ("gpt2", "scale_attn_by_inverse_layer_idx", True, "GPT-2 with scale_attn_by_inverse_layer"),
        ("llama", "hidden_act", "gelu", "Llama with hidden_act='gelu'; only 'silu'"),
        ("llama", "mlp_bias", True, "mlp_bias=True"),
        ("llama", "rope_parameters", {"rope_type": "linear"}, "scaled positions: 'linear'"),
    ],
)
def test_a_variant_of_theirs_whose_logits_ours_has_not_is_refused(
    kind: str, name: str, value: object, said: str
) -> None:
    theirs = _theirs(kind)
    setattr(theirs.config, name, value)
    with pytest.raises(StateDictError, match=said):
        gpt_from_huggingface(theirs.config, theirs.state_dict())


@pytest.mark.slow
def test_the_base_of_rotary_positions_in_an_older_config() -> None:
    """transformers 4 and config.json have `rope_theta` in place of `rope_parameters`."""
    theirs = _theirs("llama")
    older = SimpleNamespace(**{**theirs.config.to_dict(), "rope_theta": 500_000.0})
    del older.rope_parameters
    assert gpt_from_huggingface(older, theirs.state_dict()).config.rotary_base == 500_000.0
    older.rope_scaling = {"type": "dynamic", "factor": 2.0}
    with pytest.raises(StateDictError, match="scaled positions: 'dynamic'"):
        gpt_from_huggingface(older, theirs.state_dict())
