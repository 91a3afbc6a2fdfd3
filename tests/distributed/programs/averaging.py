"""Gradients averaged over the ranks."""

from __future__ import annotations

import numpy as np

import tinytorch
from tests.distributed.programs.common import (
    Fails,
    assert_near,
    assert_same_on_all_ranks,
    batches,
    mlp,
    own,
    raises,
    train,
    weights,
)
from tinytorch import nn, optim
from tinytorch.distributed import (
    ProcessGroupError,
    ShardedOptimizer,
    data_parallel,
    gather_objects,
    get_rank,
    get_world_size,
)
from tinytorch.history import owner_of
from tinytorch.nn import functional as F
from tinytorch.tensor import Tensor


def ranks_train_as_one_process() -> None:
    n = get_world_size()
    for kind, options in ((optim.SGD, {"lr": 0.05, "momentum": 0.9}), (optim.Adam, {"lr": 1e-3})):
        alone, model = mlp(), mlp(seed=get_rank())
        handle = data_parallel(model, bucket_mb=0.0005)
        assert len(handle.buckets) > 1
        data = batches(100, n)
        train(model, kind(model.parameters(), **options), data, own)
        handle.remove()
        reference = mlp(seed=0)
        np.testing.assert_array_equal(weights(alone), weights(mlp()))
        train(reference, kind(reference.parameters(), **options), data, lambda t: t)
        assert_same_on_all_ranks(weights(model))
        np.testing.assert_allclose(weights(model), weights(reference), atol=1e-6, rtol=1e-6)


def buckets_leave_while_the_backward_runs() -> None:
    model = nn.Sequential(*[nn.Linear(8, 8) for _ in range(6)])
    handle = data_parallel(model, bucket_mb=8 * 9 * 4 / 1e6)
    model(tinytorch.ones(2, 8)).sum().backward()
    handle.remove()
    assert handle.launched == [2, 4, 6, 8, 10, 12], handle.launched


def accumulation_without_messages() -> None:
    model, (x, y) = mlp(), batches(1, get_world_size())[0]
    mine = own(x), own(y)
    handle = data_parallel(model)
    with handle.no_sync():
        F.cross_entropy(model(mine[0][:2]), mine[1][:2], reduction="sum").backward()
        local = [p.grad.numpy().copy() for p in model.parameters() if p.grad is not None]
    F.cross_entropy(model(mine[0][2:]), mine[1][2:], reduction="sum").backward()
    handle.remove()
    reference = mlp()
    (F.cross_entropy(reference(x), y, reduction="sum") / get_world_size()).backward()
    assert len(set(gather_objects(local[0].tobytes()))) == get_world_size()
    for p, q in zip(model.parameters(), reference.parameters(), strict=True):
        np.testing.assert_allclose(p.grad.numpy(), q.grad.numpy(), atol=1e-5)


def parameters_that_were_not_trained_are_refused() -> None:
    """Each rank would go on with its own gradient of them."""
    model = nn.Sequential(nn.Linear(2, 2), nn.Linear(2, 2))
    model[0].weight.requires_grad = False
    handle = data_parallel(model)
    model(tinytorch.ones(1, 2)).sum().backward()
    model[0].weight.requires_grad = True
    step = model(tinytorch.ones(1, 2)).sum()
    raises(ProcessGroupError, "0.weight of the model has a gradient, but had none", step.backward)
    handle.remove()
    handle = data_parallel(model)
    model(tinytorch.full((1, 2), float(get_rank()))).sum().backward()
    assert len({tuple(map(tuple, g)) for g in gather_objects(model[0].weight.grad.tolist())}) == 1
    model[1] = nn.Linear(2, 2)
    step = model(tinytorch.ones(1, 2)).sum()
    raises(ProcessGroupError, "1.weight of the model has a gradient, but had none", step.backward)
    handle.remove()


def parameters_that_some_ranks_do_not_use() -> None:
    tinytorch.manual_seed(0)
    model = nn.ModuleList([nn.Linear(2, 1, bias=False) for _ in range(3)])
    handle = data_parallel(model)
    used = model[0 if get_rank() == 0 else 1]
    used(tinytorch.ones(1, 2)).sum().backward()
    handle.remove()
    n = get_world_size()
    np.testing.assert_allclose(model[0].weight.grad.numpy(), np.full((1, 2), 1 / n), rtol=1e-6)
    np.testing.assert_allclose(
        model[1].weight.grad.numpy(), np.full((1, 2), (n - 1) / n), rtol=1e-6
    )
    assert model[2].weight.grad is None


def gradients_are_views_that_no_later_backward_writes() -> None:
    model = nn.Sequential(nn.Linear(300, 100), nn.Tanh(), nn.Linear(100, 3))
    handle = data_parallel(model)
    x, params = tinytorch.ones(2, 300) * (1 + get_rank()), list(model.parameters())
    kept: list[tuple[np.ndarray, np.ndarray]] = []
    for step in range(len(params)):
        model.zero_grad()
        (model(x) * (step + 1)).sum().backward()
        grads = [p.grad.numpy() for p in params if p.grad is not None]
        assert len({id(owner_of(g)) for g in grads}) == 1  # all are in one bucket
        assert all(g.ctypes.data % 64 == 0 for g in grads)
        grads[step][...] *= 2  # by its user
        kept += [(g, g.copy()) for g in grads]
        for g, before in kept:
            np.testing.assert_array_equal(g, before)
    assert params[0].grad is not None
    params[0].grad.zero_()  # as zero_grad(set_to_none=False) does; the others are added to
    before = [p.grad.numpy().copy() for p in params if p.grad is not None]
    (model(x) * 4).sum().backward()
    summed = [p.grad.numpy() for p in params if p.grad is not None]
    handle.remove()
    model.zero_grad()
    handle = data_parallel(model)
    (model(x) * 4).sum().backward()
    handle.remove()
    for i, p in enumerate(params):
        assert p.grad is not None
        np.testing.assert_allclose(summed[i], before[i] + p.grad.numpy(), rtol=1e-5)


def what_a_failed_backward_has_sent_is_not_mixed_with_the_next() -> None:
    model = nn.Sequential(nn.Linear(2, 2, bias=False), nn.Linear(2, 1, bias=False))
    handle = data_parallel(model, bucket_mb=1e-6)
    x = tinytorch.full((1, 2), float(get_rank()))
    loss = model[1](Fails.apply(model[0](x))).sum()
    raises(ArithmeticError, "on purpose", loss.backward)
    for _ in range(2):
        raises(ProcessGroupError, "remove() this handle", lambda: model(x).sum().backward())
    assert all(p.grad is None for p in model.parameters())
    handle.remove()
    handle = data_parallel(model, bucket_mb=1e-6)
    model(x).sum().backward()
    handle.remove()
    first, second = (p.grad for p in model.parameters())
    assert first is not None and second is not None
    mean = (get_world_size() - 1) / 2
    assert_near(first, model[1].weight.detach().numpy().T * mean @ np.ones((1, 2)))
    assert_near(second, model[0].weight.detach().numpy().sum(1)[None] * mean)


def batches_of_different_sizes() -> None:
    model = mlp()
    handle = data_parallel(model)
    x = tinytorch.ones(1 + get_rank(), 5)
    F.cross_entropy(model(x), tinytorch.zeros(1 + get_rank(), dtype="int64")).backward()
    handle.remove()
    grads = [p.grad.numpy() for p in model.parameters()]
    assert_same_on_all_ranks(np.concatenate([g.ravel() for g in grads]))


def models_that_differ_are_refused() -> None:
    width = 4 + (get_rank() == 1)
    model = nn.Linear(3, width)
    raises(ProcessGroupError, "weight float32[4, 3]", lambda: data_parallel(model))
    sizes = 25.0 if get_rank() else 0.5
    raises(ProcessGroupError, "bucket_mb=0.5", lambda: data_parallel(nn.Linear(3, 4), sizes))
    params = list(nn.Linear(3, width).parameters())
    raises(ProcessGroupError, "[4, 3]", lambda: ShardedOptimizer(params, optim.Adam))
    frozen = nn.Linear(2, 2).requires_grad_(False)
    raises(ProcessGroupError, "no parameter", lambda: data_parallel(frozen))


def a_trace_is_refused() -> None:
    model = nn.Linear(2, 1)
    handle = data_parallel(model)

    def step(x: Tensor) -> Tensor:
        loss = model(x).sum()
        loss.backward()
        return loss

    raises(
        ProcessGroupError,
        "compile the forward",
        lambda: tinytorch.graph.trace(step, tinytorch.ones(1, 2)),
    )
    handle.remove()


def grad_takes_no_part() -> None:
    model = nn.Linear(2, 1, bias=False)
    handle = data_parallel(model)
    (g,) = tinytorch.autograd.grad(
        model(tinytorch.full((1, 2), 1.0 + get_rank())).sum(), [model.weight]
    )
    handle.remove()
    assert g is not None
    assert g.tolist() == [[1.0 + get_rank()] * 2]
