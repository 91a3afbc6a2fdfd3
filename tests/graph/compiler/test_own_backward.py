"""A compiled forward with an `autograd.Function` inside: its own backward is compiled, too."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import tinytorch
import tinytorch.nn.functional as F
from tinytorch import Tensor, autograd, nn, ones, tensor
from tinytorch.autograd import Function
from tinytorch.errors import AutogradError
from tinytorch.graph import TraceError, trace

FACTOR = 3.0
OUTSIDE = tensor([2.0, 5.0])
LAYER = nn.Linear(2, 2)


class Rounded(Function):
    """A gradient that the ops of the forward do not have."""

    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        return x.round()

    @staticmethod
    def backward(ctx: Any, g: Tensor) -> Tensor:
        return g * FACTOR


class Product(Function):
    """Gradients for two arguments, made of what was saved, and a third that has none."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, w: Tensor, scale: float) -> Tensor:
        ctx.save_for_backward(x, w)
        ctx.scale = scale
        return x * w * scale

    @staticmethod
    def backward(ctx: Any, g: Tensor) -> tuple[Tensor | None, Tensor | None, None]:
        x, w = ctx.saved_tensors
        by_x, by_w = ctx.needs_input_grad[:2]
        return g * w.sign() if by_x else None, (g * x * 7.0).sum(0) if by_w else None, None


class FromOutside(Rounded):
    """Its backward reads a tensor that the forward does not."""

    @staticmethod
    def backward(ctx: Any, g: Tensor) -> Tensor:
        return g * OUTSIDE


class Valued(Rounded):
    """Its backward asks for values."""

    @staticmethod
    def backward(ctx: Any, g: Tensor) -> Tensor:
        return tensor(g.numpy() * 2.0)


class Counted(Rounded):
    """Its backward changes a Python value."""

    calls = 0

    @staticmethod
    def backward(ctx: Any, g: Tensor) -> Tensor:
        Counted.calls += 1
        return g * 2.0


def gradients_by(function: Callable[[Tensor], Tensor]) -> list[float]:
    x = tensor([0.3, 0.9], requires_grad=True)
    function(x).sum().backward()
    return x.grad.tolist()  # type: ignore[union-attr]


@pytest.mark.parametrize(
    "inner",
    [
        Rounded.apply,
        lambda x: autograd.checkpoint(lambda x: x * x, x),
        lambda x: autograd.checkpoint(LAYER, x),
        lambda x: F.binary_cross_entropy(x, x.detach()),
        lambda x: Rounded.apply(Rounded.apply(x * 3.0) * x),
    ],
)
def test_it_is_compiled(inner: Any) -> None:
    def call(x: Tensor) -> Tensor:
        return inner(x * 0.5) + x.sum()

    compiled = tinytorch.compile(call)
    expected = gradients_by(call)
    for _ in range(2):  # the second call is recognised by its guard
        assert gradients_by(compiled) == pytest.approx(expected)
    assert compiled.uncompiled_calls == 0 and len(compiled.reasons) == 1
    with tinytorch.no_grad():
        assert not compiled(ones(2, requires_grad=True)).requires_grad

    @tinytorch.compile
    def step(x: Tensor) -> None:
        call(x).sum().backward()

    x = tensor([0.3, 0.9], requires_grad=True)
    step(x)
    assert x.grad.tolist() == pytest.approx(expected)  # type: ignore[union-attr]
    assert step.uncompiled_calls == 0


def test_a_trace_of_the_forward_alone_is_refused() -> None:
    traced = trace(Rounded.apply, ones(2, requires_grad=True))
    with pytest.raises(TraceError, match="a backward of its own"):
        traced(ones(2, requires_grad=True))


@pytest.mark.parametrize("inner", [FromOutside.apply, Valued.apply, Counted.apply])
@pytest.mark.parametrize("mode", ["auto", "native"])
def test_what_cannot_be_compiled_runs_op_by_op(inner: Any, mode: str) -> None:
    def call(x: Tensor) -> Tensor:
        return inner(x * 2.0)

    compiled = tinytorch.compile(call, mode=mode, backend="optimized")
    with pytest.warns(RuntimeWarning, match=r"was not compiled, .* op by op: TraceError"):
        assert gradients_by(compiled) == gradients_by(call)
    assert compiled.uncompiled_calls == 1
    assert "is not compiled" in str(compiled.explain())


def test_python_values_of_the_backward_are_guarded(monkeypatch: pytest.MonkeyPatch) -> None:
    compiled = tinytorch.compile(lambda x: Rounded.apply(x * 2.0))
    for factor in (3.0, 5.0):
        monkeypatch.setattr(f"{__name__}.FACTOR", factor)
        assert gradients_by(compiled) == [2.0 * factor] * 2
    assert compiled.reasons[1] == "FACTOR is 5.0, and was 3.0"


@pytest.mark.parametrize("with_x, with_w", [(True, True), (True, False), (False, True)])
def test_only_what_is_wanted_has_gradients(with_x: bool, with_w: bool) -> None:
    def call(x: Tensor, w: Tensor) -> tuple[Tensor, ...]:
        y = Product.apply(x, w, 2.0)
        return x, y, (y > 0).float(), y * x

    found = []
    for each in (call, tinytorch.compile(call)):
        x = tensor([[1.0, -2.0], [3.0, 0.5]], requires_grad=with_x)
        w = tensor([1.5, -0.5], requires_grad=with_w)
        results = each(x, w)
        (results[1] * 2.0 + results[3]).sum().backward()
        grads = [None if t.grad is None else t.grad.tolist() for t in (x, w)]
        found.append([*[r.tolist() for r in results], *grads])
    assert found[0] == found[1]
    assert [grad is None for grad in found[0][-2:]] == [not with_x, not with_w]


def test_a_gradient_of_the_gradient_is_refused() -> None:
    x = tensor([0.3, 0.9], requires_grad=True)
    y = tinytorch.compile(lambda x: Rounded.apply(x) ** 2)(x).sum()
    with pytest.raises(AutogradError, match=r"Rounded .* create_graph=True"):
        autograd.grad(y, x, create_graph=True)


def test_training_with_buffers_and_dropout_is_that_of_eager_code() -> None:
    """Inputs, seeds and written buffers are found again in the trace with the gradients."""
    model = nn.Sequential(
        nn.Linear(4, 8), nn.BatchNorm1d(8), nn.Dropout(0.5), nn.Linear(8, 1), nn.Sigmoid()
    )
    criterion = nn.BCELoss()

    def forward(x: Tensor, y: Tensor, *, scale: float = 1.0) -> Tensor:
        return criterion(model(x)[:, 0], y) * scale

    start = {name: value.clone() for name, value in model.state_dict().items()}
    generator = tinytorch.Generator().manual_seed(1)
    x, y = tinytorch.randn(6, 4, generator=generator), ones(6) / 2.0
    states = []
    for each in (forward, tinytorch.compile(forward)):
        model.load_state_dict(start)
        tinytorch.manual_seed(2)
        optimizer = tinytorch.optim.SGD(model.parameters(), lr=0.1)
        for _ in range(3):
            optimizer.zero_grad()
            each(x, y, scale=2.0).backward()
            optimizer.step()
        states.append({name: value.numpy().copy() for name, value in model.state_dict().items()})
    for name, value in states[0].items():
        np.testing.assert_allclose(states[1][name], value, rtol=1e-4, atol=1e-6, err_msg=name)
