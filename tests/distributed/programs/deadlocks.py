"""Ranks that wait for each other: each is told what all wait for, and all can go on."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np

import tinytorch
from tests.distributed.programs.common import Fails, raises
from tinytorch import nn, optim
from tinytorch.distributed import (
    DataParallel,
    ProcessGroupError,
    ShardedOptimizer,
    all_reduce,
    barrier,
    data_parallel,
    deadlock,
    gather_objects,
    get_rank,
    get_world_size,
)
from tinytorch.distributed.group import _deadlock_detector

Call = Callable[[], Any]


@contextmanager
def _impatient() -> Iterator[None]:
    before, deadlock.PATIENCE = deadlock.PATIENCE, 0.2
    try:
        yield
    finally:
        deadlock.PATIENCE = before


def _three_layers() -> tuple[nn.Module, DataParallel]:
    tinytorch.manual_seed(0)
    model = nn.Sequential(*[nn.Linear(2, 2, bias=False) for _ in range(3)])
    handle = data_parallel(model, bucket_mb=1e-6)
    assert len(handle.buckets) == 3
    return model, handle


def _backward(*models: nn.Module) -> Call:
    x = tinytorch.full((1, 2), 1.0 + get_rank())
    total = models[0](x).sum()
    for model in models[1:]:
        total = total + model(x).sum()
    return total.backward


def _is_last() -> bool:
    return get_rank() == get_world_size() - 1


def _differ(of_last: str, last: Call, of_others: str, others: Call) -> None:
    """The last rank makes another call than the others: both calls are in the error of each."""
    try:
        last() if _is_last() else others()
    except ProcessGroupError as error:
        calls = [of_others] * (get_world_size() - 1) + [of_last]
        each = "; ".join(f"rank {rank}: {call}" for rank, call in enumerate(calls))
        assert str(error).endswith(f": {each}"), error
    else:
        raise AssertionError("no ProcessGroupError")


def _assert_all_can_go_on(model: nn.Module, handle: DataParallel) -> None:
    model.zero_grad()
    _backward(model)()
    found = [p.grad.numpy().copy() for p in model.parameters() if p.grad is not None]
    model.zero_grad()
    with handle.no_sync():  # the loss is linear in its input
        model(tinytorch.full((1, 2), (1 + get_world_size()) / 2)).sum().backward()
    for p, g in zip(model.parameters(), found, strict=True):
        assert p.grad is not None
        np.testing.assert_allclose(g, p.grad.numpy(), rtol=1e-5)
    model.zero_grad()
    assert gather_objects(get_rank()) == list(range(get_world_size()))


def a_backward_and_another_call() -> None:
    model, handle = _three_layers()
    name = f"backward of {handle.name}"
    x = tinytorch.ones(handle.buckets[0].layout[0])  # as long as a bucket
    optimizer = ShardedOptimizer(model.parameters(), optim.SGD, lr=0.1)
    others = {
        "barrier": barrier,
        f"all_reduce of float32[{x.numel()}] (sum)": lambda: all_reduce(x),
        "gather_objects": lambda: gather_objects(1),
        "ShardedOptimizer.step": optimizer.step,
    }
    with _impatient():
        for call, make in others.items():  # each time from the same weights
            _differ(call, make, name, _backward(model))
            assert all(p.grad is None for p in model.parameters())
        _differ(name, _backward(model), "barrier", barrier)
        assert x.tolist() == [1.0] * x.numel()
        _assert_all_can_go_on(model, handle)
    handle.remove()


def a_backward_more_than_the_others() -> None:
    model, handle = _three_layers()
    for _ in range(2):
        _backward(model)()
    model.zero_grad()
    with _impatient():
        _differ("barrier", barrier, f"backward of {handle.name}", _backward(model))
        _assert_all_can_go_on(model, handle)
    handle.remove()


def two_models() -> None:
    (one, first), (two, second) = _three_layers(), _three_layers()
    names = [f"backward of {handle.name}" for handle in (first, second)]
    assert names[0] != names[1]
    with _impatient():
        _differ(names[0], _backward(one), names[1], _backward(two))
        _differ("barrier", barrier, names[0], _backward(one, two))
        _backward(one, two)()
        both = [[p.grad.numpy().copy() for p in model.parameters()] for model in (one, two)]
        np.testing.assert_array_equal(both[0], both[1])
        for model, handle in ((one, first), (two, second)):
            _assert_all_can_go_on(model, handle)
            handle.remove()


def a_part_of_a_backward() -> None:
    """The last rank fails between two buckets, says nothing, and goes on to another call."""
    model, handle = _three_layers()
    with _impatient():
        if _is_last():
            raises(ArithmeticError, "on purpose", _failing(model, 1))
        _differ("barrier", barrier, f"backward of {handle.name}", _backward(model))
        _assert_all_can_go_on(model, handle)
    raises(ArithmeticError, "on purpose", _failing(model, 1 if _is_last() else 2))
    handle.remove()
    model, handle = _three_layers()
    _assert_all_can_go_on(model, handle)  # and what is under way of the first one ends
    handle.remove()


def a_handle_that_one_rank_has_removed() -> None:
    model, handle = _three_layers()
    if _is_last():
        handle.remove()
    with _impatient():
        _differ("barrier", barrier, f"backward of {handle.name}", _backward(model))
    handle.remove()
    again = data_parallel(model)
    _assert_all_can_go_on(model, again)
    assert [each.name for each in _deadlock_detector().communicators] == ["questions", again.name]
    again.remove()


def a_slow_rank_is_waited_for() -> None:
    model, handle = _three_layers()
    with _impatient():
        for slow in range(get_world_size()):  # the others have written of earlier waits
            if get_rank() == slow:
                time.sleep(3.0 if slow == 0 else 0.5)
            _assert_all_can_go_on(model, handle)
            if get_rank() == slow:
                time.sleep(0.5)
            barrier()
    handle.remove()


def _failing(model: nn.Module, layers: int) -> Call:
    """A backward that fails when it knows the gradients of the last layers, so many."""
    first, last = model[: len(model) - layers], model[len(model) - layers :]
    return last(Fails.apply(first(tinytorch.ones(1, 2)))).sum().backward
