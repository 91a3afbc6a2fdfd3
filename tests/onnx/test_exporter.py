"""Export to ONNX, checked by running the models in ONNX Runtime."""

from __future__ import annotations

import math
from pathlib import Path
from random import Random
from typing import Any

import numpy as np
import onnx
import onnxruntime
import pytest

import tinytorch
from tests.graph.steps import training_step
from tests.user_ops import DEFINITIONS, registered, rolled
from tinytorch import dtype_rules, nn, optim
from tinytorch.dispatch import apply
from tinytorch.graph import trace
from tinytorch.nn import functional as F
from tinytorch.nn.gpt import GPT
from tinytorch.onnx import UnsupportedOnnxError, export_onnx, import_onnx
from tinytorch.onnx.lowerings import LOWERINGS
from tinytorch.op import OPS
from tinytorch.tensor import Tensor
from tinytorch.testing.op_samples import admitted_dtypes, draw_sample

SAMPLES = 6


@pytest.fixture(autouse=True)
def _numpy_backend() -> Any:
    with tinytorch.using_backend("numpy"):
        yield


def run_onnx(model: onnx.ModelProto, *inputs: Any) -> list[Any]:
    """The outputs of a model in ONNX Runtime."""
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 1
    session = onnxruntime.InferenceSession(
        model.SerializeToString(), options, providers=["CPUExecutionProvider"]
    )
    names = [i.name for i in session.get_inputs()]
    return session.run(None, dict(zip(names, inputs, strict=True)))


ELEMENTWISE = {name for name, op in OPS.items() if op.kind == "elementwise"}


def test_the_table_has_only_primitives_that_no_scalar_definition_describes() -> None:
    assert LOWERINGS.keys() <= {name for name, op in OPS.items() if op.decomposition is None}
    assert LOWERINGS.keys() & ELEMENTWISE == {"relu", "sigmoid"}


@pytest.mark.slow_beyond(6)
@pytest.mark.parametrize("name", sorted(LOWERINGS.keys() | ELEMENTWISE))
def test_every_op_means_the_same_in_onnx_runtime(name: str) -> None:
    dtypes = [d for d in admitted_dtypes(name) if d in ("float32", "int64", "bool")]
    random = Random(name)
    checked = 0
    for _ in range(SAMPLES):
        for dtype in dtypes:
            sample = draw_sample(name, random, style="finite", dtype=dtype)
            tensors = [t for t in sample.tensors() if isinstance(t, Tensor)]
            if any(t.numel() == 0 for t in tensors):
                continue  # ONNX Runtime refuses many of them
            checked += _compare(name, sample, tensors)
    assert checked


def _compare(name: str, sample: Any, tensors: list[Tensor]) -> int:
    def call(*given: Tensor) -> Tensor:
        rest = iter(given)
        args = [next(rest) if isinstance(t, Tensor) else t for t in sample.tensors()]
        return apply(OPS[name], *args, **sample.params)

    traced = trace(call, *tensors)
    expected = call(*tensors).numpy()
    (actual,) = run_onnx(export_onnx(traced), *[t.numpy() for t in tensors])
    assert actual.dtype == expected.dtype
    assert actual.shape == expected.shape
    np.testing.assert_allclose(actual, expected, rtol=1e-4, atol=1e-4)
    return 1


#: Operands for which a formula of ONNX's words may overflow, cancel or round otherwise.
CORNERS = {
    "expm1": ([-3e38, -200.0, -178.0, -100.0, -0.6, -0.4, -1e-7, 1e-7, 5.0, 80.0],),
    "floor_divide": ([1.0, 1.0, -1.0, 5.0, -7.5, 7.5, 2.0, -2.0, 3.0, -1.0],
                     [0.1, -0.1, 0.1, 0.05, 2.5, 2.5, 0.0, 0.0, np.inf, np.inf]),
    "atan2": ([1e20, -1e20, 1e-25, 1e-25, 0.0, -0.0, 0.0, 1.0, 2.0, -2.0, np.inf],
              [1e20, -1e20, 1e-25, -1e-25, 0.0, -1.0, -1.0, np.inf, 0.0, -0.0, 1.0]),
}  # fmt: skip


@pytest.mark.parametrize("name", sorted(CORNERS))
def test_words_that_onnx_has_not_mean_the_same_for_large_and_small_numbers(name: str) -> None:
    given = [tinytorch.tensor(np.array(values, np.float32)) for values in CORNERS[name]]
    exported = export_onnx(trace(lambda *tensors: apply(OPS[name], *tensors), *given))
    expected = apply(OPS[name], *given).numpy()
    (actual,) = run_onnx(exported, *[x.numpy() for x in given])
    for found in (actual, import_onnx(exported)(*given).numpy()):
        np.testing.assert_allclose(found, expected, rtol=1e-5)


@pytest.mark.parametrize(
    "name", ["asin", "acos", "atan", "bitwise_and", "bitwise_or", "bitwise_xor"]
)
def test_what_is_exported_as_an_operator_of_its_own_is_imported_again(name: str) -> None:
    floats = tinytorch.tensor([-0.5, 0.0, 1.0])
    given = [tinytorch.tensor([6, -3, 12]), tinytorch.tensor([3, 5, -8])]
    given = given if name.startswith("bitwise") else [floats]
    exported = export_onnx(trace(lambda *tensors: apply(OPS[name], *tensors), *given))
    expected = apply(OPS[name], *given).numpy()
    np.testing.assert_array_equal(import_onnx(exported)(*given).numpy(), expected)


@pytest.mark.parametrize("definition", DEFINITIONS, ids=lambda f: f.__name__)
def test_an_op_that_a_user_adds_needs_no_entry(definition: Any) -> None:
    with registered(definition, dtype_rules.floating) as op:
        for dtype in ("float32", "int64"):
            x = tinytorch.tensor(np.linspace(-4, 4, 17).astype(dtype))
            given = [x, x.flip(0).reshape(17, 1)][: len(op.inputs)]
            traced = trace(lambda *tensors, op=op: apply(op, *tensors), *given)
            (actual,) = run_onnx(export_onnx(traced), *[t.numpy() for t in given])
            expected = apply(op, *given).numpy()
            assert actual.dtype == expected.dtype
            np.testing.assert_allclose(actual, expected, rtol=1e-5, atol=1e-6)


def test_an_op_that_onnx_has_no_word_for_says_where_to_give_it_a_line() -> None:
    def gamma(a):  # type: ignore[no-untyped-def]
        return math.lgamma(a)

    with registered(gamma, dtype_rules.floating) as op:
        traced = trace(lambda x: apply(op, x), tinytorch.ones(2))
        with pytest.raises(UnsupportedOnnxError, match=r"(?s)op gamma .*lgamma.*lowerings\.py"):
            export_onnx(traced)


def test_an_op_of_another_kind_says_it_too() -> None:
    with rolled() as op:
        traced = trace(lambda x: apply(op, x, shift=1, dim=0), tinytorch.ones(2))
        with pytest.raises(UnsupportedOnnxError, match=r"op rolled .* in .*onnx/lowerings\.py"):
            export_onnx(traced)


def test_a_model_keeps_its_parameters_as_initializers(rng: np.random.Generator) -> None:
    model = nn.Sequential(
        nn.Conv2d(1, 4, 3), nn.BatchNorm2d(4), nn.ReLU(), nn.MaxPool2d(2), nn.Flatten(),
        nn.Linear(36, 10), nn.Softmax(-1),
    ).eval()  # fmt: skip
    x = tinytorch.tensor(rng.standard_normal((2, 1, 8, 8)).astype(np.float32))
    exported = export_onnx(trace(model, x))
    assert [i.name for i in exported.graph.input] == ["x"]
    stored = {i.name for i in exported.graph.initializer}
    assert len([name for name in stored if "weight" in name]) == 3
    (actual,) = run_onnx(exported, x.numpy())
    np.testing.assert_allclose(actual, model(x).detach().numpy(), rtol=1e-4, atol=1e-6)


def test_a_whole_training_step_can_be_exported(rng: np.random.Generator) -> None:
    model = nn.Sequential(nn.Linear(5, 8), nn.GELU(), nn.LayerNorm(8), nn.Linear(8, 3))
    optimizer = optim.SGD(model.parameters(), lr=0.1)

    step = training_step(model, optimizer)

    x = tinytorch.tensor(rng.standard_normal((4, 5)).astype(np.float32))
    y = tinytorch.tensor(np.array([0, 2, 1, 1]))
    traced = trace(step, x, y, keep_grads=False)
    exported = export_onnx(traced)
    given = {"x": x.numpy(), "y": y.numpy()}
    rest = [i.name for i in exported.graph.input if i.name not in given]
    assert len(rest) == 1  # the learning rate, which is read anew at each call
    loss, *updated = run_onnx(
        exported, *[given.get(i.name, np.array(0.1, np.float32)) for i in exported.graph.input]
    )
    expected = step(x, y)
    np.testing.assert_allclose(loss, expected.item(), rtol=1e-5)
    shapes = sorted(p.shape for p in model.parameters())
    assert sorted(u.shape for u in updated) == shapes
    for p in model.parameters():
        same = [u for u in updated if u.shape == p.shape]
        assert any(np.allclose(u, p.detach().numpy(), atol=1e-5) for u in same)


def test_a_model_survives_the_way_out_and_in(tmp_path: Path, rng: np.random.Generator) -> None:
    model = nn.Sequential(nn.Linear(6, 4), nn.Tanh(), nn.Linear(4, 2))
    x = tinytorch.tensor(rng.standard_normal((3, 6)).astype(np.float32))
    path = tmp_path / "model.onnx"
    export_onnx(trace(model, x), path)
    back = import_onnx(path)
    np.testing.assert_allclose(back(x).detach().numpy(), model(x).detach().numpy(), rtol=1e-5)
    assert sum(p.numel() for p in back.parameters()) == sum(p.numel() for p in model.parameters())
    back(x).sum().backward()
    assert all(p.grad is not None for p in back.parameters())


def test_a_model_that_is_not_traced_is_refused() -> None:
    with pytest.raises(TypeError, match=r"takes what trace\(model, .* returns, not Linear"):
        export_onnx(nn.Linear(2, 2))  # type: ignore[arg-type]


def test_random_numbers_cannot_be_exported() -> None:
    layer = nn.Dropout(0.5)
    traced = trace(layer, tinytorch.ones(3))
    with pytest.raises(UnsupportedOnnxError, match=r"op uniform \(of .*\) cannot be said in ONNX"):
        export_onnx(traced)


# -- dynamic axes ----------------------------------------------------------------------------------


class Attention(nn.Module):
    """Shapes, a mean and a reshape depend on both sizes."""

    def __init__(self) -> None:
        super().__init__()
        self.query, self.value = nn.Linear(6, 6), nn.Linear(6, 6)
        self.norm = nn.LayerNorm(6)

    def forward(self, x: Tensor) -> Tensor:
        batch, length, width = x.shape
        q = self.query(x).reshape(batch, length, 2, 3).transpose(1, 2)
        v = self.value(x).reshape(batch, length, 2, 3).transpose(1, 2)
        h = (q @ q.transpose(-2, -1)).softmax(-1) @ v
        h = self.norm(h.transpose(1, 2).reshape(batch, length, width) + x)
        return h.reshape(batch * length, width).mean(0) + h.mean((0, 1))


MODELS: dict[str, tuple[Any, tuple[int, ...], dict[int, str]]] = {
    "mlp": (lambda: nn.Sequential(nn.Linear(5, 4), nn.GELU(), nn.Softmax(-1)), (1, 5), {0: "n"}),
    "convolutions": (
        lambda: nn.Sequential(
            nn.Conv2d(1, 4, 3), nn.ReLU(), nn.MaxPool2d(2), nn.Flatten(), nn.Linear(36, 3)
        ),
        (8, 1, 8, 8),
        {0: "batch"},
    ),
    "attention": (Attention, (2, 8, 6), {0: "batch", 1: "length"}),
}


@pytest.mark.parametrize("name", MODELS)
def test_dynamic_axes_run_at_other_sizes(name: str, rng: np.random.Generator) -> None:
    make, shape, axes = MODELS[name]
    model = make().eval()
    exported = export_onnx(trace(model, tinytorch.ones(*shape)), dynamic_axes={"x": axes})
    dims = exported.graph.input[0].type.tensor_type.shape.dim
    assert {i: d.dim_param for i, d in enumerate(dims) if d.dim_param} == axes
    back = import_onnx(exported)
    for sizes in ((3, 5), (2, 8), (7, 2), (5, 11)):
        given = list(shape)
        for axis, size in zip(axes, sizes, strict=False):
            given[axis] = size
        x = tinytorch.tensor(rng.standard_normal(given).astype(np.float32))
        expected = model(x).detach().numpy()
        (actual,) = run_onnx(exported, x.numpy())
        np.testing.assert_allclose(actual, expected, rtol=1e-4, atol=1e-5)
        np.testing.assert_allclose(back(x).detach().numpy(), expected, rtol=1e-4, atol=1e-5)


def test_what_depends_on_a_dynamic_size_otherwise_is_refused() -> None:
    half = trace(lambda x: x.reshape(-1)[: x.shape[0] // 2], tinytorch.ones(8))
    with pytest.raises(UnsupportedOnnxError, match=r"depends on a dynamic size|no polynomial"):
        export_onnx(half, dynamic_axes={"x": {0: "n"}})
    branch = trace(lambda x: x * 2.0 if x.shape[0] > 7 else x, tinytorch.ones(8))
    with pytest.raises(UnsupportedOnnxError, match="which ops run"):
        export_onnx(branch, dynamic_axes={"x": {0: "n"}})
    plain = trace(lambda x: x * 2.0, tinytorch.ones(8))
    with pytest.raises(ValueError, match="there is no argument 'y'; there are x"):
        export_onnx(plain, dynamic_axes={"y": {0: "n"}})
    with pytest.raises(ValueError, match="has no axis 1"):
        export_onnx(plain, dynamic_axes={"x": {1: "n"}})


# -- attention -------------------------------------------------------------------------------------

SEES_NOTHING = np.random.default_rng(0).random((5, 7)) > 0.3
SEES_NOTHING[2] = False


def grouped_causal(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    return F.scaled_dot_product_attention(q, k, v, is_causal=True, enable_gqa=True)


def masked(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    mask = tinytorch.tensor(SEES_NOTHING)
    return F.scaled_dot_product_attention(q, k, v, mask, scale=0.3, enable_gqa=True)


@pytest.mark.parametrize("function", [grouped_causal, masked])
def test_attention_is_exported_as_what_it_is_made_of(function: Any, rng: np.random.Generator):
    q, k, v = (
        rng.standard_normal(shape, np.float32)
        for shape in ((2, 4, 5, 8), (2, 2, 7, 8), (2, 2, 7, 3))
    )
    inputs = [tinytorch.tensor(x) for x in (q, k, v)]
    model = export_onnx(trace(function, *inputs))
    expected = function(*inputs).numpy()
    np.testing.assert_allclose(run_onnx(model, q, k, v)[0], expected, atol=1e-6)
    np.testing.assert_allclose(import_onnx(model)(*inputs).numpy(), expected, atol=1e-6)


def test_a_gpt_is_exported(rng: np.random.Generator) -> None:
    model = GPT.from_config(
        {
            "vocab_size": 20, "context": 16, "layers": 1, "heads": 4, "width": 32, "kv_heads": 2,
            "positions": "rotary", "norm": "rms", "qk_norm": True, "activation": "swiglu",
            "window": 3,
        }
    ).eval()  # fmt: skip
    tokens = rng.integers(0, 20, (2, 8))
    expected = model(tinytorch.tensor(tokens)).detach().numpy()
    exported = export_onnx(trace(model, tinytorch.tensor(tokens)))
    np.testing.assert_allclose(run_onnx(exported, tokens)[0], expected, atol=1e-5)
    back = import_onnx(exported)(tinytorch.tensor(tokens))
    np.testing.assert_allclose(back.detach().numpy(), expected, atol=1e-5)
