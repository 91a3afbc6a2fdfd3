"""A compiled step of generation: the logits of the model op by op, one trace, no copy."""

from __future__ import annotations

import tracemalloc
from typing import Any

import numpy as np
import pytest

import tinytorch
from tinytorch.compression import quantize_
from tinytorch.errors import ShapeError
from tinytorch.nn.decoding import DecodeStep
from tinytorch.nn.gpt import GPT, GPTConfig
from tinytorch.tensor import Tensor

SIZES: dict[str, Any] = {"vocab_size": 40, "layers": 2, "heads": 4, "width": 64}
CHOICES: dict[str, dict[str, Any]] = {
    "gpt2": {},
    "llama": {"positions": "rotary", "kv_heads": 2, "norm": "rms", "activation": "swiglu",
              "hidden": 96, "window": 3, "qk_norm": True, "tied": False},
}  # fmt: skip


def stepped(model: GPT, length: int, starts: list[int] | None = None) -> tuple[DecodeStep, Any]:
    """A compiled step behind a prompt, and the same op by op."""
    batch = len(starts or [0])
    prompt = Tensor.from_numpy(np.arange(5 * batch).reshape(batch, 5))
    caches = [model.make_cache(batch, length, starts) for _ in range(2)]
    with tinytorch.no_grad():
        for cache in caches:
            model(prompt, cache)
    step = DecodeStep(model, caches[0], tinytorch.compile)
    return step, lambda tokens: model(tokens, caches[1])


@pytest.mark.parametrize("choices", CHOICES.values(), ids=list(CHOICES))
def test_the_logits_are_those_of_the_model_and_one_trace_serves_all_positions(choices):
    with tinytorch.using_backend("numpy"), tinytorch.no_grad():
        model = GPT(GPTConfig(context=32, **SIZES, **choices)).eval()
        for starts in (None, [0, 2]):
            step, eager = stepped(model, 20, starts)
            for token in range(7):
                tokens = Tensor.from_numpy(np.full((len(starts or [0]), 1), token))
                found, wanted = step(tokens).numpy(), eager(tokens).numpy()
                np.testing.assert_allclose(found, wanted, atol=1e-5)
            assert len(step._transform.traces) == 1


@pytest.mark.slow
@pytest.mark.parametrize(
    "scheme",
    [None, "bfloat16", *(pytest.param(s, marks=pytest.mark.slow) for s in ("int8", "int4"))],
)
def test_machine_code_copies_no_cache_and_compiles_no_more(scheme):
    with tinytorch.using_backend("optimized"), tinytorch.no_grad():
        model = GPT(GPTConfig(context=4096, **SIZES)).eval()
        if scheme is not None:
            quantize_(model, scheme)
        step, eager = stepped(model, 4096)
        for token in range(4):
            tokens = Tensor.from_numpy(np.array([[token]]))
            tracemalloc.start()
            found = step(tokens).numpy()
            peak = tracemalloc.get_traced_memory()[1]
            tracemalloc.stop()
            # one code of 16 bits is 3e-5 of the largest
            np.testing.assert_allclose(found, eager(tokens).numpy(), atol=1e-4 if scheme else 1e-5)
            assert token == 0 or peak < step.cache.nbytes / 50
        (trace,) = step._transform.traces
        assert trace.code.mode == "native"
        assert trace.code.schedule.arena_bytes < step.cache.nbytes / 50


def test_what_has_no_room_is_said():
    with tinytorch.using_backend("numpy"), tinytorch.no_grad():
        step, _ = stepped(GPT(GPTConfig(context=6, **SIZES)).eval(), 20)
        step(Tensor.from_numpy(np.array([[1]])))
        with pytest.raises(ShapeError, match="7 tokens, but the model sees 6"):
            step(Tensor.from_numpy(np.array([[1]])))
        step, _ = stepped(GPT(GPTConfig(context=9, **SIZES)).eval(), 5)
        with pytest.raises(ShapeError, match="5 tokens and 1 more do not fit into a cache of 5"):
            step(Tensor.from_numpy(np.array([[1]])))
