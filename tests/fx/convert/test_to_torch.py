"""TinyTorch graphs in PyTorch: every op of the table, models, whole training steps."""

from __future__ import annotations

from random import Random
from typing import Any

import numpy as np
import pytest
import torch

import tinytorch
from tests.graph.steps import training_step
from tests.user_ops import DEFINITIONS, registered, rolled
from tinytorch import dtype_rules, nn, optim
from tinytorch.compression import quantize_
from tinytorch.dispatch import apply
from tinytorch.fx.convert.exchange import tensor_from_torch, tensor_to_torch
from tinytorch.fx.convert.to_torch import ConversionError, to_torch
from tinytorch.fx.convert.torch_ops import TORCH_OPS
from tinytorch.graph import trace
from tinytorch.graph.ir import Graph
from tinytorch.op import OPS, Op
from tinytorch.tensor import Tensor
from tinytorch.testing.op_samples import admitted_dtypes, draw_sample

SAMPLES = 8


@pytest.fixture(autouse=True)
def _numpy_backend() -> Any:
    with tinytorch.using_backend("numpy"):
        yield


ELEMENTWISE = {name for name, op in OPS.items() if op.kind == "elementwise"}


def test_the_table_has_only_what_no_scalar_definition_describes() -> None:
    assert TORCH_OPS.keys() <= OPS.keys()
    assert TORCH_OPS.keys() & ELEMENTWISE == {"relu", "sigmoid"}


@pytest.mark.slow_beyond(9)
@pytest.mark.parametrize("name", sorted(TORCH_OPS.keys() | ELEMENTWISE))
def test_every_op_means_the_same_in_torch(name: str) -> None:
    """All samples in one graph: making a module of it costs more than running it."""
    random = Random(name)
    samples = []
    for _ in range(SAMPLES):
        for dtype in admitted_dtypes(name):
            sample = draw_sample(name, random, style="finite", dtype=dtype)
            given = sample.tensors()
            if "pool" in name and any(t.shape[1] == 0 for t in given):
                continue  # PyTorch refuses images without channels
            samples.append((sample, dtype, given))
    assert samples
    tensors = [t for _, _, given in samples for t in given if isinstance(t, Tensor)]

    def call_all(*values: Tensor) -> tuple[Tensor, ...]:
        rest = iter(values)
        return tuple(
            apply(OPS[name], *(next(rest) if isinstance(t, Tensor) else t for t in given),
                  **sample.params)
            for sample, _, given in samples
        )  # fmt: skip

    module = to_torch(trace(call_all, *tensors, decompose=None))
    results = module(*[torch.from_numpy(np.array(t.numpy())) for t in tensors])
    for (sample, dtype, _), result, wanted in zip(
        samples, results, call_all(*tensors), strict=True
    ):
        actual, expected = result.numpy(), wanted.numpy()
        assert actual.dtype == expected.dtype, f"{sample}"
        assert actual.shape == expected.shape, f"{sample}"
        tolerance = 1e-2 if dtype == "float16" else 1e-4
        np.testing.assert_allclose(
            actual, expected, rtol=tolerance, atol=tolerance, err_msg=f"{sample}"
        )


@pytest.mark.parametrize("definition", DEFINITIONS, ids=lambda f: f.__name__)
def test_an_op_that_a_user_adds_needs_no_entry(definition: Any) -> None:
    with registered(definition, dtype_rules.floating) as op:
        for dtype in ("float32", "float64", "int64"):
            x = tinytorch.tensor(np.linspace(-4, 4, 17).astype(dtype))
            given = [x, x.flip(0).reshape(17, 1)][: len(op.inputs)]
            traced = trace(lambda *tensors, op=op: apply(op, *tensors), *given)
            (actual,) = to_torch(traced)(*[torch.from_numpy(np.array(t.numpy())) for t in given])
            expected = apply(op, *given).numpy()
            assert actual.numpy().dtype == expected.dtype
            np.testing.assert_allclose(actual.numpy(), expected, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("number", [-1, 255, 300])
def test_numbers_are_compared_that_the_dtype_has_not(number: int) -> None:
    """PyTorch would take the last bits of -1, and say that 255 is equal to it."""

    def compared(x: Tensor) -> tuple[Tensor, ...]:
        return x >= number, x == number, x < number

    given = np.array([0, 3, 255], np.uint8)
    x = tinytorch.from_numpy(given)
    found = to_torch(trace(compared, x))(torch.from_numpy(given))
    assert [t.tolist() for t in found] == [t.tolist() for t in compared(x)]


def test_an_op_that_cannot_be_described_says_where_to_give_it_a_line() -> None:
    def halved(a):  # type: ignore[no-untyped-def]
        while a > 1:
            a = a / 2
        return a

    with registered(halved, dtype_rules.floating) as op:
        traced = trace(lambda x: apply(op, x), tinytorch.ones(2))
        with pytest.raises(ConversionError, match=r"(?s)op halved .*while a > 1.*torch_ops\.py"):
            to_torch(traced)


def test_an_op_of_another_kind_says_it_too() -> None:
    with rolled() as op:
        traced = trace(lambda x: apply(op, x, shift=1, dim=0), tinytorch.ones(2))
        with pytest.raises(ConversionError, match=r"op rolled .* in TORCH_OPS of .*torch_ops\.py"):
            to_torch(traced)


def small_model() -> nn.Module:
    return nn.Sequential(
        nn.Conv2d(1, 4, 3, padding=1), nn.BatchNorm2d(4), nn.ReLU(), nn.MaxPool2d(2),
        nn.Flatten(), nn.Linear(64, 8), nn.LayerNorm(8), nn.GELU(), nn.Linear(8, 3),
    )  # fmt: skip


def test_a_model_has_its_parameters_and_its_gradients(rng: np.random.Generator) -> None:
    model = small_model().eval()
    x = rng.standard_normal((2, 1, 8, 8)).astype(np.float32)
    module = to_torch(trace(model, tinytorch.tensor(x)))
    assert sum(p.numel() for p in module.parameters()) == sum(p.numel() for p in model.parameters())
    (out,) = module(torch.from_numpy(x))
    expected = model(tinytorch.tensor(x))
    np.testing.assert_allclose(out.detach(), expected.detach().numpy(), rtol=1e-4, atol=1e-5)
    out.square().sum().backward()
    (expected * expected).sum().backward()
    theirs = sorted((p.grad for p in module.parameters()), key=lambda g: (g.shape, g.sum().item()))
    ours = sorted(
        (p.grad.numpy() for p in model.parameters()), key=lambda g: (g.shape, float(g.sum()))
    )
    for a, b in zip(theirs, ours, strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-3, atol=1e-4)


def test_bfloat16_stays_what_it_is(rng: np.random.Generator) -> None:
    ours = tinytorch.tensor([1.0, -2.5, 1e30]).to(tinytorch.bfloat16)
    theirs = tensor_to_torch(ours)
    assert theirs.dtype is torch.bfloat16
    assert torch.equal(theirs, torch.tensor([1.0, -2.5, 1e30], dtype=torch.bfloat16))
    theirs[0] = 7  # the same memory
    back = tensor_from_torch(theirs)
    assert back.dtype is tinytorch.bfloat16 and back.tolist() == ours.tolist() != [1.0, -2.5, 1e30]
    model = quantize_(nn.Sequential(nn.Linear(40, 3)), "bfloat16")
    x = rng.standard_normal((5, 40)).astype(np.float32)
    module = to_torch(trace(model, tinytorch.tensor(x), decompose=None))
    assert torch.bfloat16 in {buffer.dtype for buffer in module.buffers()}
    (out,) = module(torch.from_numpy(x))
    expected = model(tinytorch.tensor(x)).detach().numpy()
    np.testing.assert_allclose(out.detach(), expected, rtol=1e-5, atol=1e-6)


def test_a_training_step_runs_in_torch(rng: np.random.Generator) -> None:
    model = nn.Sequential(nn.Linear(5, 8), nn.Tanh(), nn.Dropout(0.5), nn.Linear(8, 3))
    optimizer = optim.Adam(model.parameters(), lr=0.01)

    step = training_step(model, optimizer)

    x = tinytorch.tensor(rng.standard_normal((4, 5)).astype(np.float32))
    y = tinytorch.tensor(np.array([0, 2, 1, 1]))
    step(x, y)  # makes the optimizer's state
    traced = trace(step, x, y, keep_grads=False)
    module = to_torch(traced)
    leaves = [x, y]
    inputs = [binding.read(leaves) for binding in traced.signature.inputs]
    names = [node.target for node in module.graph.find_nodes(op="placeholder")]
    placeholders = traced.graph.find_nodes(op="placeholder")
    given = {
        node.name: torch.from_numpy(np.array(value.detach().numpy()))
        for node, value in zip(placeholders, inputs, strict=True)
    }
    loss, *updated = module(*[given[name] for name in names])
    values = traced.graph and tinytorch.graph.Interpreter(traced.graph).run(*inputs)
    np.testing.assert_allclose(loss.detach(), values[0].detach().numpy(), rtol=1e-5)
    for ours, theirs in zip(values[1:], updated, strict=True):
        np.testing.assert_allclose(theirs.detach(), ours.detach().numpy(), rtol=1e-4, atol=1e-6)


@pytest.mark.slow
def test_torch_compile_takes_the_module(rng: np.random.Generator) -> None:
    model = small_model().eval()
    x = rng.standard_normal((2, 1, 8, 8)).astype(np.float32)
    module = to_torch(trace(model, tinytorch.tensor(x)))
    (out,) = torch.compile(module, fullgraph=True)(torch.from_numpy(x))
    expected = model(tinytorch.tensor(x)).detach().numpy()
    np.testing.assert_allclose(out.detach(), expected, rtol=1e-4, atol=1e-5)


def test_an_op_without_a_counterpart_is_named() -> None:
    row = OPS["neg"]
    foreign = Op("cube", "a", "elementwise", row._shape_rule, row._dtype_rule, row._flops)
    graph = Graph()
    x = graph.placeholder("x")
    x.meta["tensor_meta"] = tinytorch.ones(2).meta
    cube = graph.call_function(foreign, (x,))
    cube.meta["tensor_meta"] = x.meta["tensor_meta"]
    graph.output((cube,))
    with pytest.raises(ConversionError, match=r"op cube \(of cube\) has no counterpart"):
        to_torch(graph)


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
def test_a_model_runs_on_cuda(rng: np.random.Generator) -> None:
    model = small_model().eval()
    x = rng.standard_normal((2, 1, 8, 8)).astype(np.float32)
    module = to_torch(trace(model, tinytorch.tensor(x)), device="cuda")
    (out,) = module(torch.from_numpy(x).cuda())
    expected = model(tinytorch.tensor(x)).detach().numpy()
    np.testing.assert_allclose(out.detach().cpu(), expected, rtol=1e-3, atol=1e-4)


def test_a_model_that_is_not_traced_is_refused() -> None:
    with pytest.raises(TypeError, match=r"takes what trace\(model, .* returns, not Linear"):
        to_torch(nn.Linear(2, 2))  # type: ignore[arg-type]
