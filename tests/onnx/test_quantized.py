"""Quantized models as ONNX with Q/DQ nodes, run by ONNX Runtime."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from onnx import TensorProto

import tinytorch
from tests.onnx.test_exporter import run_onnx
from tinytorch import nn
from tinytorch.compression import SCHEMES, quantize_
from tinytorch.graph import trace
from tinytorch.nn.gpt import GPT, GPTConfig
from tinytorch.onnx import UnsupportedOnnxError, export_onnx


@pytest.mark.parametrize("group_size", [None, 64])
@pytest.mark.parametrize("name", [name for name in SCHEMES if name != "bfloat16"])
def test_a_quantized_model_stores_codes_and_gives_the_same(name: str, group_size: Any) -> None:
    tinytorch.manual_seed(0)
    model = nn.Sequential(nn.Linear(190, 250), nn.ReLU(), nn.Linear(250, 10, bias=False)).eval()
    x = tinytorch.randn(3, 5, 190)
    quantize_(model, name, group_size=group_size, data=[x])
    with tinytorch.using_backend("numpy"), tinytorch.no_grad():
        expected = model(x).numpy()
        exported = export_onnx(trace(model, x, decompose=None))
    kinds = {node.op_type for node in exported.graph.node}
    assert "DequantizeLinear" in kinds
    assert ("QuantizeLinear" in kinds) == (SCHEMES[name].activation != "float")
    stored = len(exported.SerializeToString())
    assert stored < (0.17 if name == "int4" else 0.3) * 4 * (190 * 250 + 250 * 10) + 3000
    (actual,) = run_onnx(exported, x.numpy())
    step = np.abs(expected).max() / 127
    # ONNX divides where we multiply with the reciprocal: now and then a code is the next one
    assert np.abs(actual - expected).max() < 1.5 * step
    if name in ("int8_static", "int4"):  # ONNX Runtime rounds the inputs of "int8" by itself
        assert np.median(np.abs(actual - expected)) < 1e-3 * step


@pytest.mark.parametrize("name", SCHEMES)
def test_a_trace_in_floats_runs_there_too(name: str) -> None:
    tinytorch.manual_seed(0)
    model, x = nn.Sequential(nn.Linear(19, 8), nn.Linear(8, 3)).eval(), tinytorch.randn(5, 19)
    quantize_(model, name, data=[x])
    with tinytorch.using_backend("numpy"), tinytorch.no_grad():
        expected = model(x).numpy()
        exported = export_onnx(trace(model, x))
    (actual,) = run_onnx(exported, x.numpy())
    assert np.abs(actual - expected).max() < 0.02 * np.abs(expected).max()


@pytest.mark.parametrize("decompose", [None, "default"])
def test_a_weight_in_bfloat16_is_stored_as_such(decompose: str | None) -> None:
    tinytorch.manual_seed(0)
    model = nn.Sequential(nn.Linear(70, 50), nn.ReLU(), nn.Linear(50, 10, bias=False)).eval()
    x = tinytorch.randn(3, 5, 70)
    quantize_(model, "bfloat16")
    options = {} if decompose else {"decompose": None}
    with tinytorch.using_backend("numpy"), tinytorch.no_grad():
        expected = model(x).numpy()
        exported = export_onnx(trace(model, x, **options))
    kinds = [tensor.data_type for tensor in exported.graph.initializer]
    assert kinds.count(TensorProto.BFLOAT16) == 2
    (actual,) = run_onnx(exported, x.numpy())
    np.testing.assert_allclose(actual, expected, rtol=1e-5, atol=1e-5)


def test_codes_that_are_read_as_bytes_too_are_stored_twice() -> None:
    config = GPTConfig(vocab_size=11, context=8, layers=1, heads=2, width=32)  # one matrix, tied
    model, tokens = GPT(config).eval(), tinytorch.randint(0, 11, (2, 5))
    quantize_(model, "int4")
    with tinytorch.using_backend("numpy"), tinytorch.no_grad():
        expected = model(tokens).numpy()
        exported = export_onnx(trace(model, tokens, decompose=None))
    (actual,) = run_onnx(exported, tokens.numpy())
    assert np.abs(actual - expected).max() < 0.02 * np.abs(expected).max()


def test_codes_that_are_no_buffers_are_refused() -> None:
    model = quantize_(nn.Sequential(nn.Linear(32, 4)), "int4")
    layer = model[0]

    def call(x: Any, weight: Any) -> Any:
        options = {"bits": 4, "group_size": 32, "activation": "float"}
        given = (x, weight, layer.scale)
        return tinytorch.dispatch.apply(tinytorch.ops.quantized_linear, *given, **options)

    traced = trace(call, tinytorch.ones(2, 32), layer.codes, decompose=None)
    with pytest.raises(UnsupportedOnnxError, match="must be a buffer"):
        export_onnx(traced)
