"""Whether gradients are there, and which parameters a step has, are looked at in each call."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

import tinytorch
from tinytorch import nn, optim
from tinytorch.tensor import Tensor

pytestmark = pytest.mark.usefixtures("backend")


def test_whether_a_gradient_is_there_is_looked_at():
    p = tinytorch.ones(2, requires_grad=True)

    def doubled_or_tripled(x):
        return x * 2.0 if p.grad is None else x * 3.0

    compiled = tinytorch.compile(doubled_or_tripled, mode="python")
    x = tinytorch.ones(2)
    for gradient in (None, tinytorch.ones(2), None, tinytorch.ones(2)):
        p.grad = gradient
        assert compiled(x).tolist() == doubled_or_tripled(x).tolist()
    assert len(compiled.traces) == 2


@pytest.mark.parametrize(
    "change",
    [
        lambda p, optimizer: optimizer.step(),
        lambda p, optimizer: nn.utils.clip_grad_norm_([p], 0.5),
        lambda p, optimizer: optimizer.zero_grad(),
    ],
    ids=["step", "clip", "zero_grad"],
)
@pytest.mark.parametrize("frozen", [False, True])
def test_a_gradient_that_comes_later_is_seen(change, frozen):
    def final(compile):
        p = tinytorch.ones(2, requires_grad=not frozen)
        optimizer = tinytorch.optim.SGD([p], lr=0.5, momentum=0.9)
        step = compile(lambda: change(p, optimizer))
        for gradient in (None, None, tinytorch.ones(2), None, tinytorch.ones(2)):
            p.grad = gradient
            step()
        return p.tolist(), p.grad is None or p.grad.tolist(), len(optimizer.state.get(p, {}))

    assert final(lambda f: tinytorch.compile(f, mode="python")) == final(lambda f: f)


def test_an_argument_that_the_function_also_holds_has_no_pretended_gradient():
    def final(compile):
        holder = SimpleNamespace(w=tinytorch.ones(3, requires_grad=True), x=tinytorch.ones(3))
        optimizer = tinytorch.optim.SGD([holder.w], lr=0.5)

        def step(x):
            loss = (holder.w * x * holder.x).sum()
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            return loss

        run = compile(step)
        return [run(holder.x).item() for _ in range(3)]

    assert final(tinytorch.compile) == final(lambda function: function) == [3.0, 1.5, 0.0]


def test_an_error_that_only_pretended_gradients_have_is_none():
    """The step would write what backward needs, if there were gradients yet."""

    def final(compile):
        net = nn.LayerNorm(2)
        optimizer = tinytorch.optim.SGD(net.parameters(), lr=0.1)

        def step(x):
            out = net(x).relu()
            optimizer.step()
            out.square().mean().backward()
            return out

        return compile(step)(tinytorch.tensor([[1.0, 3.0]])).tolist(), net.weight.grad.tolist()

    assert final(lambda f: tinytorch.compile(f, mode="python")) == final(lambda f: f)


@pytest.mark.parametrize("change", ["fewer parameters", "another group"])
def test_a_step_follows_the_groups_of_its_optimizer(change: str):
    w, b = (tinytorch.ones(2, requires_grad=True) for _ in range(2))
    optimizer = optim.SGD([w, b], lr=0.25)

    @tinytorch.compile
    def step(x: Tensor) -> None:
        optimizer.zero_grad()
        (w * x + b).sum().backward()
        optimizer.step()

    for _ in range(3):
        step(tinytorch.ones(2))
    group = optimizer.param_groups[0]
    if change == "fewer parameters":
        group["params"].pop(0)
        step(tinytorch.ones(2))
        assert w.tolist() == [0.25, 0.25] and b.tolist() == [0.0, 0.0]
    else:
        optimizer.param_groups[0] = {**group, "weight_decay": 1.0}
        step(tinytorch.ones(2))
        assert w.tolist() == b.tolist() == [-0.0625, -0.0625]
