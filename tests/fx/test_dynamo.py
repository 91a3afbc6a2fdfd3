"""torch.compile(backend=...) on TinyTorch."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from tinytorch.fx import load_model
from tinytorch.fx.dynamo import last_report, tinytorch_backend

NUMPY = {"backend": "numpy", "mode": "python"}  # needs no kernels to be compiled


@pytest.fixture(autouse=True)
def _fresh_dynamo() -> Iterator[None]:
    torch._dynamo.reset()
    torch.manual_seed(0)
    yield
    torch._dynamo.reset()


class LeNet(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = nn.Conv2d(1, 6, 5, padding=2), nn.Conv2d(6, 16, 5)
        self.head = nn.Linear(400, 10)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        for layer in (self.first, self.second):
            x = F.max_pool2d(F.relu(layer(x)), 2)
        return self.head(x.flatten(1))


def compare(
    model: nn.Module, loss: Callable[[Any], torch.Tensor], options: dict[str, Any] = NUMPY
) -> Any:
    """Loss, gradients and buffers of a step, eager and compiled; returns the compiled module."""
    buffers = {name: value.clone() for name, value in model.named_buffers()}

    def step(module: Any) -> tuple[torch.Tensor, list[torch.Tensor], list[torch.Tensor]]:
        model.zero_grad()
        with torch.no_grad():
            for name, value in model.named_buffers():
                value.copy_(buffers[name])
        value = loss(module)
        value.backward()
        grads = [p.grad.clone() for p in model.parameters() if p.grad is not None]
        return value.detach(), grads, [b.clone() for b in model.buffers()]

    compiled = torch.compile(model, backend=tinytorch_backend, options=options)
    expected, actual = step(model), step(compiled)
    torch.testing.assert_close(actual[0], expected[0], rtol=1e-4, atol=1e-5)
    for mine, theirs in zip(actual[1], expected[1], strict=True):
        scale = float(max(g.abs().max() for g in expected[1]))
        torch.testing.assert_close(mine, theirs, rtol=1e-3, atol=1e-5 * scale)
    torch.testing.assert_close(actual[2], expected[2], rtol=1e-4, atol=1e-5)
    return compiled


@pytest.mark.slow
def test_an_mlp_and_a_cnn_train() -> None:
    x, y = torch.randn(8, 20), torch.randint(0, 3, (8,))
    mlp = nn.Sequential(nn.Linear(20, 16), nn.ReLU(), nn.Linear(16, 3))
    compare(mlp, lambda m: F.cross_entropy(m(x), y))
    forward, backward = last_report().graphs
    assert (forward.kind, backward.kind) == ("forward", "backward")
    assert forward.parts == backward.parts == 1
    assert not forward.fallbacks and not backward.fallbacks
    images = torch.randn(4, 1, 28, 28)
    compare(LeNet(), lambda m: F.cross_entropy(m(images), y[:4]))


@pytest.mark.slow
@pytest.mark.parametrize("name", ["hf:resnet152", "hf:bert-base", "hf:gpt2"])
def test_small_transformers_and_resnets_train(name: str) -> None:
    example = load_model(name, small=True, batch=2, dropout=0.0)
    compare(example.model.train(), lambda m: example.loss(m, example.batch))
    assert not any(graph.fallbacks for graph in last_report().graphs)


@pytest.mark.slow
def test_native_code_trains_a_cnn() -> None:
    images, y = torch.randn(4, 1, 28, 28), torch.randint(0, 10, (4,))
    compare(LeNet(), lambda m: F.cross_entropy(m(images), y), {"backend": "optimized"})


def test_inference_and_channels_last() -> None:
    model = LeNet().eval()
    x = torch.randn(2, 1, 28, 28).to(memory_format=torch.channels_last)
    compiled = torch.compile(model, backend=tinytorch_backend, options=NUMPY)
    with torch.no_grad():
        torch.testing.assert_close(compiled(x), model(x), rtol=1e-4, atol=1e-5)
    assert [graph.kind for graph in last_report().graphs] == ["inference"]


def test_what_is_not_supported_stays_with_pytorch_and_is_listed() -> None:
    def f(x: torch.Tensor) -> torch.Tensor:
        return torch.linalg.det(x * 2 + 1).relu() + x.sum()

    x = torch.eye(3) + 0.1
    compiled = torch.compile(f, backend=tinytorch_backend, options=NUMPY)
    torch.testing.assert_close(compiled(x), f(x))
    (graph,) = last_report().graphs
    assert list(graph.fallbacks) == ["aten._linalg_det.default"]
    assert "PyTorch runs 1 x aten._linalg_det.default" in str(last_report())


def test_dropout_keeps_pytorchs_random_numbers() -> None:
    layer = nn.Sequential(nn.Linear(16, 16), nn.Dropout(0.5))
    x = torch.randn(4, 16)
    compiled = torch.compile(layer, backend=tinytorch_backend, options=NUMPY)
    with torch.no_grad():
        torch.manual_seed(3)
        expected = layer(x)
        torch.manual_seed(3)
        torch.testing.assert_close(compiled(x), expected)


@pytest.mark.parametrize("mode", ["reflect", "replicate", "circular"])
@pytest.mark.parametrize("options", [{"mode": "python", "backend": "numpy"}, {"mode": "native"}])
def test_borders_are_read_from_positions_that_are_kept(mode: str, options: Any) -> None:
    torch.manual_seed(0)
    layer = nn.Conv2d(2, 2, 3, padding=(1, 2), padding_mode=mode)
    x = torch.randn(3, 2, 6, 7)
    compiled = compare(layer, lambda module: module(x).square().mean(), options)
    with torch.no_grad():
        torch.testing.assert_close(compiled(x), layer(x))
    assert not any(graph.fallbacks for graph in last_report().graphs)


def test_the_stride_of_a_single_image_stays_open() -> None:
    """Dynamo leaves open what differs between calls, also of a dimension of size 1."""

    def function(x: torch.Tensor) -> torch.Tensor:
        y = x.clone()
        y[:, :, 0] = 0
        return y.mul_(2)

    compiled = torch.compile(function, backend="tinytorch", options=NUMPY)
    for x in (torch.randn(1, 6, 8, 8), torch.randn(1, 8, 8, 6).transpose(1, 3)):
        x.requires_grad_()
        found, expected = compiled(x), function(x)
        assert torch.equal(found, expected)
        found, expected = (torch.autograd.grad(y.sum(), x)[0] for y in (found, expected))
        assert torch.equal(found, expected)


def test_wrong_options_are_refused() -> None:
    f = torch.compile(lambda x: x + 1, backend=tinytorch_backend, options={"mode": "fast"})
    with pytest.raises(Exception, match="there is no mode 'fast'; there are auto, native"):
        f(torch.ones(2))


def test_the_backend_is_registered_under_its_name() -> None:
    assert "tinytorch" in torch._dynamo.list_backends()
    f = torch.compile(lambda x: x * 3, backend="tinytorch", options=NUMPY)
    assert torch.equal(f(torch.ones(2)), torch.full((2,), 3.0))


def test_a_part_that_cannot_be_compiled_is_left_to_pytorch(monkeypatch: pytest.MonkeyPatch) -> None:
    from tinytorch.fx import dynamo
    from tinytorch.graph.compiler import generate

    def broken(*args: Any, **kwargs: Any) -> Any:
        raise ValueError("more than one value to unpack")

    monkeypatch.setattr(dynamo.CompiledPart, "__init__", broken)
    monkeypatch.setattr(generate, "_said", set())
    model = nn.Linear(4, 3)
    compiled = torch.compile(model, backend=tinytorch_backend, options={"backend": "numpy"})
    x = torch.randn(2, 4)
    with pytest.warns(RuntimeWarning, match="a part of a PyTorch .* graph could not be made"):
        out = compiled(x)
        out.sum().backward()
    assert torch.equal(out, model(x))
    assert torch.equal(model.weight.grad, x.sum(0).expand(3, 4))
    report = last_report()
    assert all(graph.parts == graph.compiled == 0 for graph in report.graphs)
    assert "more than one value to unpack" in str(report)
    torch._dynamo.reset()
    with pytest.raises(Exception, match="more than one value to unpack"):
        torch.compile(model, backend=tinytorch_backend, options=NUMPY)(x)


class UsesItsProductTwice(nn.Module):
    """The bias's sum goes into a ReLU and past it, so a product can do neither by itself."""

    def __init__(self) -> None:
        super().__init__()
        self.weight, self.bias = nn.Parameter(torch.randn(8, 8)), nn.Parameter(torch.randn(8))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        h = x @ self.weight + self.bias
        return h.relu() + h


def test_a_product_whose_result_is_used_twice_in_its_group_is_compiled():
    model, x = UsesItsProductTwice(), torch.randn(4, 8)
    compare(model, lambda m: m(x).square().sum(), {"backend": "optimized", "mode": "native"})
    assert not any(graph.fallbacks for graph in last_report().graphs)


def _autocast(x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
    with torch.autocast("cpu", torch.bfloat16):
        return F.relu(x @ w) @ w


def _moved(x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
    return torch.cat([x.bfloat16().t(), w.bfloat16()]) * 2


@pytest.mark.parametrize("function", [_autocast, _moved])
def test_bfloat16_goes_in_and_out_of_compiled_parts(function: Any) -> None:
    """NumPy has no such type: arrays have the bits."""
    parts = [torch.randn(4, 4, requires_grad=True) for _ in range(2)]
    compiled: Any = torch.compile(function, backend=tinytorch_backend, options=NUMPY)
    expected, found = function(*parts), compiled(*parts)
    torch.testing.assert_close(found, expected)
    wanted = torch.autograd.grad(expected.float().sum(), parts)
    grads = torch.autograd.grad(found.float().sum(), parts)
    torch.testing.assert_close(grads, wanted, rtol=2**-7, atol=2**-7)  # of sums in bfloat16
    given = [x.detach().bfloat16() for x in parts]
    torch.testing.assert_close(compiled(*given), function(*given))


def test_numbers_are_drawn_in_the_order_of_eager_mode() -> None:
    """Though parts of two branches are compiled together, and what is between them is moved."""

    def branch(x: torch.Tensor) -> torch.Tensor:
        return F.dropout(F.dropout(x * 2) * torch.rand(8) + 1)

    def both(x: torch.Tensor, y: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        return branch(x), branch(y)

    compiled: Any = torch.compile(both, backend=tinytorch_backend, options=NUMPY)
    x = torch.ones(4, 8, requires_grad=True)
    results = []
    for function in (both, compiled):
        torch.manual_seed(0)
        results.append(function(x, x))
    torch.testing.assert_close(*results)
    wanted, found = (torch.autograd.grad((a * b).sum(), x) for a, b in results)
    torch.testing.assert_close(found, wanted)
