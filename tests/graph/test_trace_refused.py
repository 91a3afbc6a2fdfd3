"""What cannot be traced, and calls that a trace does not fit."""

from __future__ import annotations

import threading

import numpy as np
import pytest

import tinytorch
from tests.graph.tensors import floats, same
from tinytorch import nn, optim
from tinytorch.graph import GraphError, TraceError, trace

pytestmark = pytest.mark.usefixtures("numpy_backend")


@pytest.mark.parametrize(
    ("ask", "asked", "advice"),
    [
        (lambda x: x if x.sum() > 0 else -x, "bool", "where(condition, a, b)"),
        (lambda x: x * x.sum().item(), "item", "keep it a 0-d tensor"),
        (lambda x: x * float(x.sum()), "item", "keep it a 0-d tensor"),
        (lambda x: np.sum(x.numpy()), "numpy", "functions of tinytorch"),
        (lambda x: x[x > 0], "a mask as an index", "sums of t * mask"),
        (lambda x: (x * 2).__setitem__(x > 0, 0.0), "a mask as an index", "masked_fill_(mask"),
        (lambda x: x.tolist(), "tolist", "unbind"),
        (lambda x: tinytorch.tensor(x), "tensor", "clone"),
        (lambda x: x.is_contiguous(), "is_contiguous", "compute it outside"),
    ],
)
def test_asking_for_values_says_where_and_what_instead(ask, asked, advice):
    with pytest.raises(TraceError) as error:
        trace(ask, tinytorch.ones(3))
    message = str(error.value)
    assert message.startswith(f"{asked}: a trace knows ") and advice in message
    assert "test_trace_refused.py:" in message and "<lambda>" in message


def test_values_of_state_are_not_frozen_silently(rng):
    w = floats(rng, 3)
    before = w.tolist()

    def reads(x):
        return x * w.sum() if w[0].item() > 0 else x * w.numpy()

    def assigns(x):
        w[0] = 1.0
        return x * w

    with pytest.raises(
        TraceError, match=r"numpy: the values of w \(float32\[3\]\) would be frozen"
    ):
        trace(lambda x: x * w.numpy(), floats(rng, 3))
    with pytest.raises(TraceError, match="item: a trace knows"):
        trace(reads, floats(rng, 3))
    with pytest.raises(TraceError, match="assignment to an index: the values of w") as error:
        trace(assigns, floats(rng, 3))
    assert "where(mask, value, t)" in str(error.value)
    assert w.tolist() == before


def test_iteration_is_known_from_the_shape():
    x = tinytorch.tensor([[1.0, 2.0], [3.0, 4.0]])
    assert trace(lambda x: [row.sum() for row in x], x)(x)[1].item() == 7.0


def test_what_computes_after_the_trace_is_refused():
    def each(x):
        yield x * 2

    for returns in (each, lambda x: map(abs, [x]), lambda x: {"all": iter([x])}):
        with pytest.raises(TraceError, match=r"returned a .*return a list"):
            trace(returns, tinytorch.ones(2))


def test_arrays_are_refused():
    with pytest.raises(TraceError, match=r"argument x is a NumPy array of shape \(2,\)"):
        trace(lambda x: x, np.zeros(2))


def test_symbols_do_not_leak_into_another_trace():
    holder = threading.local()  # where no walk looks

    def f(x):
        holder.tensor = x
        return x

    trace(f, tinytorch.ones(2))
    with pytest.raises(TraceError, match="a tensor of another trace"):
        trace(lambda x: x + holder.tensor, tinytorch.ones(2))


def test_python_state_that_the_function_changes_is_refused(rng):
    class Counting(optim.SGD):
        def update(self, p, g, state, group):
            state["count"] = state.get("count", 0) + 1
            super().update(p, g, state, group)

    w = floats(rng, 3).requires_grad_()
    optimizer = Counting([w], lr=0.1)

    def step(x):
        (w * x).sum().backward()
        optimizer.step()

    with pytest.raises(TraceError, match=r"optimizer.state\[0\]\['count'\] became 1"):
        trace(step, floats(rng, 3))


def test_traced_tensors_must_not_be_left_behind(rng):
    losses = []

    def f(x):
        losses.append(x.sum())

    with pytest.raises(
        TraceError,
        match=r"losses\.0 was set to a traced tensor \(float32\[\]\).*; return it, write",
    ) as error:
        trace(f, floats(rng, 3))
    assert "norm" not in str(error.value)


@pytest.mark.parametrize("name", ["weight_norm", "spectral_norm"])
def test_a_weight_that_a_hook_computes_is_told_what_to_do(rng, name):
    layer, x = getattr(nn.utils, name)(nn.Linear(3, 2)).eval(), floats(rng, 1, 3)
    with pytest.raises(
        TraceError, match=rf"0\.weight was set .*take nn.utils.parametrizations.{name}, which"
    ):
        trace(nn.Sequential(layer), x)


def test_a_weight_that_a_parametrization_computes_is_traced(rng):
    layer, x = nn.utils.weight_norm(nn.Linear(3, 2)), floats(rng, 1, 3)
    expected = layer(x).detach().numpy()
    nn.utils.remove_weight_norm(layer)
    for other in (layer, nn.utils.parametrizations.weight_norm(layer)):
        np.testing.assert_allclose(trace(other, x)(x).detach().numpy(), expected, rtol=1e-6)


# -- when a trace does not fit ---------------------------------------------------------------------


def test_calls_that_do_not_fit_are_refused_with_the_reason(rng):
    model = nn.Sequential(nn.Linear(3, 2), nn.Dropout(0.5))
    scale = 2.0

    def f(x, n):
        return model(x) * scale * n

    x = floats(rng, 4, 3)
    traced = trace(f, x, 1)
    with pytest.raises(GraphError, match=r"argument 0 is float32\[5, 3\], and was float32\[4, 3\]"):
        traced(floats(rng, 5, 3), 1)
    with pytest.raises(GraphError, match=r"argument 1 is 1\.0, and was 1"):
        traced(x, 1.0)
    with pytest.raises(GraphError, match="nested otherwise"):
        traced(x)
    model.eval()
    with pytest.raises(GraphError, match=r"model\.training is False, and was True"):
        traced(x, 1)
    model.train()
    scale = 3.0
    with pytest.raises(GraphError, match=r"scale is 3\.0, and was 2\.0"):
        traced(x, 1)


def test_names_of_attributes_are_not_taken_for_globals(rng, monkeypatch):
    monkeypatch.setitem(globals(), "exp", 1)  # as in `for step in ...: optimizer.step()`
    monkeypatch.setitem(globals(), "SCALE", 2.0)

    def f(x):
        return (lambda y: y * SCALE)(x.exp())  # noqa: F821

    x = floats(rng, 3)
    traced = trace(f, x)
    monkeypatch.setitem(globals(), "exp", 2)
    assert same(traced(x), f(x))
    monkeypatch.setitem(globals(), "SCALE", 3.0)
    with pytest.raises(GraphError, match=r"SCALE is 3\.0, and was 2\.0"):
        traced(x)


def test_other_tensors_in_the_place_of_those_traced_are_noticed(rng):
    model, w = nn.Linear(3, 2), floats(rng, 3)
    optimizer = optim.SGD(model.parameters(), lr=0.1, momentum=0.9)

    def step(x):
        model(x * w).sum().backward()
        optimizer.step()
        optimizer.zero_grad()

    x = floats(rng, 4, 3)
    traced = trace(step, x)
    optimizer.load_state_dict(optimizer.state_dict())
    with pytest.raises(GraphError, match="an optimizer's state has other tensors now"):
        traced(x)
    traced = trace(step, x)
    traced(x)
    w = floats(rng, 3)
    with pytest.raises(GraphError, match=r"w is the float32.* tensor at .*, and was the"):
        traced(x)
    traced = trace(step, x)
    model.bias = nn.Parameter(model.bias)
    with pytest.raises(GraphError, match=r"model\.bias is the float32"):
        traced(x)


def test_attributes_of_modules_are_watched(rng):
    model = nn.Sequential(nn.Linear(3, 2), nn.Dropout(0.5))
    x = floats(rng, 4, 3)
    traced = trace(model, x)
    model[1].p = 0.1
    with pytest.raises(GraphError, match=r"1\.p is 0\.1, and was 0\.5"):
        traced(x)
