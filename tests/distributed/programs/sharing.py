"""What ranks share besides gradients: statistics, state, layers, a model."""

from __future__ import annotations

import time
from functools import partial

import numpy as np

import tinytorch
from tests.distributed.programs.common import (
    BATCH,
    batches,
    mlp,
    own,
    raises,
    train,
    weights,
)
from tinytorch import nn, optim
from tinytorch.distributed import (
    ColumnParallelLinear,
    Pipeline,
    ProcessGroupError,
    RowParallelLinear,
    SentBytes,
    ShardedOptimizer,
    SyncBatchNorm,
    all_reduce,
    broadcast,
    convert_sync_batch_norm,
    data_parallel,
    gather_objects,
    get_rank,
    get_world_size,
    measure_all_reduce,
    ring_all_reduce,
    save_checkpoint,
)
from tinytorch.distributed.cost import least_times
from tinytorch.errors import ShapeError
from tinytorch.nn import functional as F
from tinytorch.tensor import Tensor


def synchronized_batch_norm() -> None:
    n, rng = get_world_size(), np.random.default_rng(0)
    x = tinytorch.tensor(rng.standard_normal((n * BATCH, 4, 3, 3), np.float32) * 3 + 1)
    model = nn.Sequential(nn.Conv2d(4, 4, 1), nn.BatchNorm2d(4))
    state = {name: t.clone() for name, t in model.state_dict().items()}
    for name, t in state.items():
        broadcast(t)
        assert name in state
    model.load_state_dict(state)
    reference = nn.Sequential(nn.Conv2d(4, 4, 1), nn.BatchNorm2d(4))
    reference.load_state_dict(state)
    converted = convert_sync_batch_norm(model)
    assert isinstance(converted[1], SyncBatchNorm)
    handle = data_parallel(converted)
    for _ in range(2):
        out = converted(own(x))
        (out**3).mean().backward()
        whole = reference(x)
        (whole**3).mean().backward()
    handle.remove()
    np.testing.assert_allclose(out.detach().numpy(), own(whole).detach().numpy(), atol=1e-4)
    for p, q in zip(converted.parameters(), reference.parameters(), strict=True):
        np.testing.assert_allclose(p.grad.numpy(), q.grad.numpy(), atol=1e-4)
    for name, buffer in reference.named_buffers():
        np.testing.assert_allclose(
            dict(converted.named_buffers())[name].numpy(), buffer.numpy(), rtol=1e-4, err_msg=name
        )
    converted.eval()
    reference.eval()
    np.testing.assert_allclose(
        converted(x).detach().numpy(), reference(x).detach().numpy(), atol=1e-4
    )


def sharded_optimizer() -> None:
    data = batches(20, 1)
    for kind, options in ((optim.AdamW, {"lr": 0.01}), (optim.SGD, {"lr": 0.1, "momentum": 0.9})):
        model, reference = mlp(), mlp()
        sharded = ShardedOptimizer(model.parameters(), kind, **options)
        whole = kind(reference.parameters(), **options)
        schedule = optim.lr_scheduler.StepLR(sharded, 5)
        other = optim.lr_scheduler.StepLR(whole, 5)
        for batch in data:
            train(model, sharded, [batch], lambda t: t)
            train(reference, whole, [batch], lambda t: t)
            schedule.step()
            other.step()
        np.testing.assert_array_equal(weights(model), weights(reference))
        if sharded.local is not None and get_world_size() > 1:
            assert len(sharded.local.state) < len(whole.state)
        again = kind(mlp().parameters(), **options)
        again.load_state_dict(sharded.state_dict())
        for mine, theirs in zip(again.state.values(), whole.state.values(), strict=True):
            for name in theirs:
                np.testing.assert_array_equal(mine[name].numpy(), theirs[name].numpy())
        sharded.load_state_dict(whole.state_dict())
        train(model, sharded, data[:3], lambda t: t)
        train(reference, whole, data[:3], lambda t: t)
        np.testing.assert_array_equal(weights(model), weights(reference))


def shares_are_of_one_group_of_parameters() -> None:
    first, second = nn.Linear(2, 1), nn.Linear(2, 1)
    groups = [{"params": list(first.parameters())}]
    raises(ProcessGroupError, "no groups", lambda: ShardedOptimizer(groups, optim.SGD, lr=0.1))
    sharded = ShardedOptimizer(first.parameters(), optim.SGD, lr=0.1)
    more = {"params": list(second.parameters())}
    raises(ProcessGroupError, "one group", lambda: sharded.add_param_group(more))


def a_batch_norm_with_two_names_stays_one() -> None:
    model = nn.Module()
    model.a = model.b = nn.BatchNorm1d(3)
    convert_sync_batch_norm(model)
    assert isinstance(model.a, SyncBatchNorm) and model.b is model.a


def a_batch_norm_needs_two_values_on_all_ranks_together() -> None:
    """Of one there is no variance to keep: it was NaN from then on."""
    layer, alone = SyncBatchNorm(3), int(get_rank() == 0)
    raises(
        ValueError,
        "more than one value for each channel, and all",
        partial(layer, _own_rows(alone)),
    )
    assert bool((layer.running_var == 1).all())
    layer(_own_rows(1))  # one on each rank
    assert bool(layer.running_var.isfinite().all())
    raises(ShapeError, "3 channels in the second", partial(layer, tinytorch.ones(2, 4)))


def _own_rows(count: int) -> Tensor:
    return tinytorch.full((count, 3), 1.0 + get_rank())


def a_checkpoint_that_is_not_written_is_an_error_of_all_ranks() -> None:
    model = nn.Linear(2, 1)
    optimizer = optim.SGD(model.parameters(), lr=0.1)
    call = partial(save_checkpoint, "nowhere", model, optimizer, x=object())
    raises(ProcessGroupError, "could not write nowhere", call)


def a_row_takes_as_long_as_its_slowest_rank() -> None:
    calls = []

    def reduce(tensor: Tensor) -> None:
        calls.append(tensor.numel())
        if get_rank() == 0:
            time.sleep(0.02)

    times = measure_all_reduce([20_000_000, 5_000_000], 2, reduce)
    assert calls == [5_000_000, 1_250_000] * 3  # the sizes take turns
    assert min(times) >= 0.02
    assert gather_objects(times) == [times] * get_world_size()
    own = np.array([[5.0, 1.0 + get_rank()], [4.0 - get_rank(), 9.0]])
    assert least_times(own) == [4.0, float(get_world_size())]


def ring() -> None:
    n = get_world_size()
    for size in (n * 12, 1, n * 3 + 1):
        rng = np.random.default_rng([get_rank(), size])
        values = rng.integers(-1000, 1000, size).astype(np.float32)  # sums are exact
        a, b = tinytorch.tensor(values), tinytorch.tensor(values)
        with SentBytes() as sent:
            ring_all_reduce(a)
        all_reduce(b)
        np.testing.assert_array_equal(a.numpy(), b.numpy())
        if size % n == 0:
            assert sent.total == 2 * (n - 1) * 4 * size // n


def tensor_parallel() -> None:
    tinytorch.manual_seed(1)
    first, second = nn.Linear(6, 8), nn.Linear(8, 6)
    x = tinytorch.randn(3, 6)
    y = x.clone()
    x.requires_grad = y.requires_grad = True
    column, row = ColumnParallelLinear(first), RowParallelLinear(second)
    out, whole = row(F.gelu(column(x))), second(F.gelu(first(y)))
    np.testing.assert_allclose(out.detach().numpy(), whole.detach().numpy(), atol=1e-6)
    (out**2).sum().backward()
    (whole**2).sum().backward()
    np.testing.assert_allclose(x.grad.numpy(), y.grad.numpy(), atol=1e-5)
    part = 8 // get_world_size()
    rows = slice(get_rank() * part, (get_rank() + 1) * part)
    np.testing.assert_allclose(
        column.weight.grad.numpy(), first.weight.grad.numpy()[rows], atol=1e-5
    )
    np.testing.assert_allclose(
        row.weight.grad.numpy(), second.weight.grad.numpy()[:, rows], atol=1e-5
    )
    np.testing.assert_allclose(row.bias.grad.numpy(), second.bias.grad.numpy(), atol=1e-5)
    if get_world_size() > 1:
        raises(ProcessGroupError, "cannot be cut", lambda: ColumnParallelLinear(nn.Linear(2, 7)))


def pipeline() -> None:
    n = get_world_size()
    tinytorch.manual_seed(2)
    stages = [nn.Sequential(nn.Linear(5, 5), nn.Tanh()) for _ in range(n)]
    x, targets = tinytorch.randn(4, 2, 5), tinytorch.randn(4, 2, 5)
    run = Pipeline(stages[get_rank()], (2, 5))
    loss = run.backward(list(x), lambda y, i: F.mse_loss(y, targets[i]))
    mine = [p.grad.numpy().copy() for p in stages[get_rank()].parameters()]
    assert (loss is None) == (get_rank() < n - 1)
    for stage in stages:
        stage.zero_grad()
    whole = x.reshape(8, 5)
    for stage in stages:
        whole = stage(whole)
    expected = F.mse_loss(whole, targets.reshape(8, 5))
    expected.backward()
    if loss is not None:
        assert abs(loss - expected.item()) < 1e-6
    for g, p in zip(mine, stages[get_rank()].parameters(), strict=True):
        np.testing.assert_allclose(g, p.grad.numpy(), atol=1e-6)


def micro_batches_of_a_pipeline_have_one_shape() -> None:
    if get_rank() == 0:
        run = Pipeline(nn.Linear(2, 2), (3, 2))
        xs = [tinytorch.ones(3, 2), tinytorch.ones(1, 2)]
        raises(ProcessGroupError, "(1, 2), (3, 2)", lambda: run.backward(xs, lambda y, _: y.sum()))


def gradients_of_a_pipeline_have_the_dtype_of_its_outputs() -> None:
    stage = nn.Linear(2, 2).double()
    options = {} if get_rank() == 0 else {"dtype": tinytorch.float64}  # of what it receives
    run = Pipeline(stage, (1, 2), **options)
    run.backward([tinytorch.ones(1, 2, dtype="float64")], lambda y, _: y.sum())
    assert stage.weight.grad is not None and stage.weight.grad.dtype is tinytorch.float64
