from __future__ import annotations

import pytest
import torch
from torch import nn

from tinytorch.fx.profile.memory_meter import MemoryMeter, PeakMemory, measure_peak
from tinytorch.fx.profile.profiler import _Metered

MiB = 1 << 20


def test_follows_storages_until_they_die() -> None:
    with MemoryMeter() as meter:
        a = torch.ones(MiB // 4)
        b = a * 2
        view = b.view(2, -1)[0]
        del a, b
        assert meter.current == MiB  # the view keeps its base
        del view
        assert meter.current == 0
        torch.ones(1)
    assert meter.peak == 2 * MiB
    assert meter.peak_op == torch.ops.aten.mul.Tensor
    assert len(meter.history) == 5


def test_what_exists_does_not_count() -> None:
    a = torch.ones(MiB // 4)
    layer = nn.Linear(4, 4)
    with MemoryMeter(layer.parameters()) as meter:
        layer.weight.detach().t()
        a.view(2, -1)
    assert meter.peak == MiB  # `a` was not named, and was seen
    with MemoryMeter([layer.weight, {"a": [a]}]) as meter:
        a.view(2, -1)
        a.mul_(2)
    assert meter.peak == 0


def test_backward_counts() -> None:
    x = torch.ones(MiB // 4, requires_grad=True)
    with MemoryMeter(x) as meter:
        x.exp().sum().backward()
    assert meter.peak >= 2 * MiB  # the exponential, and the gradient
    assert meter.current == MiB  # x.grad


def test_sparse_tensors_are_refused() -> None:
    with pytest.raises(NotImplementedError, match="sparse"), MemoryMeter():
        torch.eye(3).to_sparse()


def test_measure_peak() -> None:
    x = torch.ones(MiB // 4)
    found = measure_peak(lambda: x.exp().log(), x, torch.device("cpu"))
    assert found == PeakMemory(2 * MiB, "dispatch")


def test_gradients_of_a_call_before_are_put_aside() -> None:
    """Else the next call accumulates into them, and its peak lacks a set of gradients."""
    x = torch.ones(MiB // 4, requires_grad=True)

    def train() -> None:
        (x * 2).sum().backward()

    first = measure_peak(train, x, torch.device("cpu"))
    assert x.grad is None
    train()
    gradient = x.grad
    assert measure_peak(train, x, torch.device("cpu")) == first
    assert x.grad is gradient


def test_values_that_nothing_uses_are_freed() -> None:
    graph = torch.fx.Graph()
    x = graph.placeholder("x")
    last = graph.call_function(torch.neg, (x,))
    for _ in range(3):
        graph.call_function(torch.exp, (x,))
    graph.output(last)
    module, big = torch.fx.GraphModule({}, graph), torch.ones(MiB // 4)
    with MemoryMeter(big) as meter:
        run = _Metered(module, meter)
        run.run(big)
    assert meter.peak == 2 * MiB
    assert measure_peak(lambda: module(big), big, torch.device("cpu")).peak == meter.peak
