"""What is simulated of a graph's memory is what running it takes."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import Tensor, nn
from torch.fx.experimental.proxy_tensor import make_fx

from tests.fx.small import SEMANTICS, ConvNet, joint_of, mlp
from tinytorch.fx.capture.joint import capture_joint
from tinytorch.fx.capture.slots import CaptureError
from tinytorch.fx.profile.memory_meter import MemoryMeter
from tinytorch.graph.memory import accumulate, lifetimes, timeline


def tuples_and_views(x: Tensor) -> Tensor:
    values, places = x.max(1)
    return (values.view(-1, 1) * x.t().t()).cumsum(0)[places]


def views_outlive_their_base(x: Tensor) -> Tensor:
    part = (x + 1)[0]
    return part + x.exp().sum()


def in_place(x: Tensor) -> Tensor:
    y = x * 2
    y.add_(1)
    return y.exp_().sum()


def constants(x: Tensor) -> Tensor:
    return x + torch.arange(64.0).view(1, 64)


FUNCTIONS = [tuples_and_views, views_outlive_their_base, in_place, constants]


@pytest.mark.parametrize("function", FUNCTIONS, ids=lambda f: f.__name__)
def test_simulated_is_measured(function: Callable[[Tensor], Tensor]) -> None:
    x = torch.randn(64, 64, generator=torch.Generator().manual_seed(0))
    graph = make_fx(function, tracing_mode="fake")(x)
    own = [getattr(graph, str(n.target)) for n in graph.graph.find_nodes(op="get_attr")]
    with MemoryMeter([x, *own]) as meter:
        graph(x)
    assert timeline(graph.graph, SEMANTICS).peak == meter.peak > 0


@pytest.mark.parametrize(("model", "shape"), [(mlp(), (16, 32)), (ConvNet(), (2, 3, 8, 8))])
def test_joint_graphs(model: nn.Module, shape: tuple[int, ...]) -> None:
    batch = (torch.randn(shape, generator=torch.Generator().manual_seed(0)),)
    joint = joint_of(model, batch)
    inputs = joint.flat_inputs(model, batch)
    with MemoryMeter(inputs) as meter, torch.no_grad():
        joint.module(*inputs)
    assert timeline(joint.module.graph, SEMANTICS).peak == meter.peak


def test_lifetimes() -> None:
    graph = make_fx(views_outlive_their_base, tracing_mode="fake")(torch.ones(4, 4))
    found = SEMANTICS.storages(graph.graph)
    spans = {t.node.name: (t.nbytes, t.first, t.last)
             for t in lifetimes(graph.graph, found).values()}  # fmt: skip
    ranks = {n.name: i for i, n in enumerate(graph.graph.nodes)}
    # a view keeps all of what it views
    assert spans["add"] == (64, ranks["add"], ranks["add_1"])
    assert found.external_bytes == 64


def test_an_input_is_not_counted_but_kept() -> None:
    graph = make_fx(lambda x: (x.t(), x), tracing_mode="fake")(torch.ones(3, 5))
    assert timeline(graph.graph, SEMANTICS).peak == 0
    assert SEMANTICS.storages(graph.graph).external_bytes == 60


def test_inputs_can_be_given() -> None:
    graph = make_fx(lambda x: x.exp())(torch.ones(3))
    for node in graph.graph.nodes:
        node.meta.clear()
    with pytest.raises(CaptureError, match="the shapes of x_1 are unknown: pass inputs"):
        SEMANTICS.storages(graph.graph)
    found = SEMANTICS.storages(graph.graph, [torch.ones(7)])
    values = lifetimes(graph.graph, found).values()
    assert accumulate(graph.graph, values).peak == 28


def test_open_dimensions_have_no_memory() -> None:
    model, batch = mlp(1), (torch.ones(4, 32),)
    joint = capture_joint(model, batch, dynamic_dims=(0,))
    with pytest.raises(CaptureError, match="depends on an open dimension"):
        SEMANTICS.storages(joint.module.graph)


def test_new_memory_has_the_layout_that_the_graph_knows_of():
    """A real run may have shown another than the fake kernel gives; later views count on it."""
    graph = make_fx(lambda x: x.exp().t().clone(), tracing_mode="fake")(torch.ones(2, 3))
    made, turned, last = (n for n in graph.graph.nodes if n.op == "call_function")
    with made.meta["val"].fake_mode:
        made.meta["val"] = torch.empty_strided((2, 3), (1, 2))
    last.target, last.args, last.kwargs = torch.ops.aten.view.default, (turned, [6]), {}
    last.meta.pop("val")
    found = SEMANTICS.storages(graph.graph)
    # of the input, and of one that all three values are in: `view` has seen the strides
    assert found.sizes == [24, 24]
