"""Attention as ONNX's own operator, run by ONNX Runtime, and as its parts before opset 23."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import tinytorch
from tests.onnx.test_exporter import run_onnx
from tinytorch.compression import quantize_
from tinytorch.graph import trace
from tinytorch.nn import functional as F
from tinytorch.nn.gpt import GPT, GPTConfig
from tinytorch.onnx import export_onnx, import_onnx
from tinytorch.tensor import Tensor

SIZES: dict[str, Any] = {"vocab_size": 20, "context": 16, "layers": 1, "heads": 4, "width": 32}


@pytest.fixture(autouse=True)
def _numpy_backend() -> Any:
    with tinytorch.using_backend("numpy"), tinytorch.no_grad():
        yield


def drawn(rng: np.random.Generator, *shape: int) -> Tensor:
    return Tensor.from_numpy(rng.standard_normal(shape).astype(np.float32))


def kinds(model: Any) -> set[str]:
    return {node.op_type for node in model.graph.node}


@pytest.mark.parametrize("front", [(2, 4), (4,), ()], ids=str)
def test_it_is_one_operator_from_23_on_and_parts_before(front: Any, rng: Any) -> None:
    given = [drawn(rng, *front, 5, 8), drawn(rng, *front, 7, 8), drawn(rng, *front, 7, 8)]
    for options in ({}, {"is_causal": True}, {"scale": 0.3}):

        def call(q: Tensor, k: Tensor, v: Tensor, options: Any = options) -> Tensor:
            return F.scaled_dot_product_attention(q, k, v, **options)

        expected = call(*given).numpy()
        traced = trace(call, *given, decompose=False)
        for opset, has in ((None, False), (22, False), (23, True)):
            exported = export_onnx(traced, opset=opset)
            assert ("Attention" in kinds(exported)) == has
            (actual,) = run_onnx(exported, *[x.numpy() for x in given])
            np.testing.assert_allclose(actual, expected, atol=1e-5)
        back = import_onnx(exported)(*given)
        np.testing.assert_allclose(back.numpy(), expected, atol=1e-6)


def test_a_gpt_with_shared_heads_and_a_batch_of_any_size(rng: Any) -> None:
    model = GPT(GPTConfig(**SIZES, kv_heads=2, positions="rotary")).eval()
    traced = trace(model, Tensor.from_numpy(rng.integers(0, 20, (2, 8))), decompose=False)
    exported = export_onnx(traced, opset=23, dynamic_axes={"tokens": {0: "batch"}})
    assert "Attention" in kinds(exported)
    assert "Softmax" not in kinds(exported)
    for batch in (1, 5):
        tokens = rng.integers(0, 20, (batch, 8))
        (actual,) = run_onnx(exported, tokens)
        np.testing.assert_allclose(actual, model(Tensor.from_numpy(tokens)).numpy(), atol=1e-5)


def test_what_the_operator_does_not_mean_stays_in_parts(rng: Any) -> None:
    """A query that sees no key gives 0 here, and NaN there; there is no float64."""
    q = drawn(rng, 1, 2, 3, 4)
    mask = Tensor.from_numpy(np.array([[True, False, True], [False] * 3, [True] * 3]))

    def masked(q: Tensor, mask: Tensor) -> Tensor:
        return F.scaled_dot_product_attention(q, q, q, mask)

    exported = export_onnx(trace(masked, q, mask, decompose=False), opset=23)
    assert "Attention" not in kinds(exported)
    (actual,) = run_onnx(exported, q.numpy(), mask.numpy())
    np.testing.assert_allclose(actual, masked(q, mask).numpy(), atol=1e-6)
    assert not actual[0, 0, 1].any()
    double = trace(lambda q: F.scaled_dot_product_attention(q, q, q), q.double(), decompose=False)
    assert "Attention" not in kinds(export_onnx(double, opset=23))


def test_operator_sets_that_do_not_fit_are_refused(rng: Any) -> None:
    model = GPT(GPTConfig(**SIZES)).eval()
    tokens = Tensor.from_numpy(rng.integers(0, 20, (2, 8)))
    for opset in (17, 99):
        with pytest.raises(ValueError, match=f"opset must be from 18 to .*, not {opset}"):
            export_onnx(trace(model, tokens), opset=opset)
    quantize_(model, "int8")
    with pytest.raises(ValueError, match="quantized layers need opset 21, not 20"):
        export_onnx(trace(model, tokens, decompose=False), opset=20)
