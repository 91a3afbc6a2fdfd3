"""What the ranks of a test run. Each function asserts on every rank, on a group of any size."""

from __future__ import annotations

import os
import signal
import time
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

import tinytorch
from tinytorch import nn, optim
from tinytorch.distributed import (
    ColumnParallelLinear,
    Pipeline,
    ProcessGroupError,
    RowParallelLinear,
    SentBytes,
    ShardedOptimizer,
    ShardedSampler,
    SyncBatchNorm,
    all_gather,
    all_reduce,
    barrier,
    broadcast,
    convert_sync_batch_norm,
    data_parallel,
    gather_objects,
    get_rank,
    get_world_size,
    isend,
    load_checkpoint,
    measure_all_reduce,
    recv,
    reduce_scatter,
    ring_all_reduce,
    save_checkpoint,
    send,
)
from tinytorch.distributed.cost import least_times
from tinytorch.distributed.group import torch_view
from tinytorch.history import owner_of
from tinytorch.nn import functional as F
from tinytorch.tensor import Tensor

BATCH = 6  # of one rank


def raises(error: type[Exception], part: str, call: Callable[[], Any]) -> None:
    try:
        call()
    except error as raised:
        assert part in str(raised), f"{part!r} is not in {raised}"
    else:
        raise AssertionError(f"no {error.__name__}")


def mlp(seed: int = 3) -> nn.Module:
    tinytorch.manual_seed(seed)
    return nn.Sequential(
        nn.Linear(5, 16), nn.Tanh(), nn.Linear(16, 16), nn.Tanh(), nn.Linear(16, 3)
    )


def batches(steps: int, ranks: int) -> list[tuple[Tensor, Tensor]]:
    rng = np.random.default_rng(5)
    shape = (steps, ranks * BATCH)
    x, y = rng.standard_normal((*shape, 5), np.float32), rng.integers(0, 3, shape)
    return [(tinytorch.tensor(a), tinytorch.tensor(b)) for a, b in zip(x, y, strict=True)]


def own(t: Tensor) -> Tensor:
    return t[get_rank() * BATCH : (get_rank() + 1) * BATCH]


def train(model: nn.Module, optimizer: optim.Optimizer, data: list[Any], part: Any) -> None:
    for x, y in data:
        optimizer.zero_grad()
        F.cross_entropy(model(part(x)), part(y)).backward()
        optimizer.step()


def weights(model: nn.Module) -> np.ndarray:
    return np.concatenate([p.detach().numpy().ravel() for p in model.parameters()])


def assert_near(a: Any, b: Any) -> None:
    np.testing.assert_allclose(np.asarray(a), np.asarray(b), rtol=1e-5, atol=1e-5)


def assert_same_on_all_ranks(array: np.ndarray) -> None:
    for theirs in gather_objects(array.tobytes()):
        assert theirs == array.tobytes()


# -- collectives -----------------------------------------------------------------------------------


def collectives() -> None:
    rank, n = get_rank(), get_world_size()
    x = tinytorch.arange(4.0) + rank
    before = torch_view(x).data_ptr()
    all_reduce(x)
    assert torch_view(x).data_ptr() == before == x.numpy().ctypes.data
    assert x.tolist() == [n * i + n * (n - 1) / 2 for i in range(4)]
    for op, expected in (("mean", (n - 1) / 2), ("max", n - 1), ("min", 0)):
        value = tinytorch.tensor([float(rank)])
        work = all_reduce(value, op, async_op=True)
        assert work is not None
        work.wait()
        assert value.item() == expected
    value = tinytorch.tensor([float(rank)])
    broadcast(value, src=n - 1)
    assert value.item() == n - 1
    assert all_gather(tinytorch.tensor([rank, 7])).tolist() == [[r, 7] for r in range(n)]
    rows = tinytorch.arange(n * 2).reshape(n, 2)
    assert reduce_scatter(rows).tolist() == [n * 2 * rank, n * (2 * rank + 1)]


def sends_and_receives() -> None:
    rank, n = get_rank(), get_world_size()
    received = tinytorch.zeros(3)
    sending = isend(tinytorch.full(3, float(rank)), (rank + 1) % n)
    recv(received, (rank - 1) % n)
    sending.wait()
    assert received.tolist() == [(rank - 1) % n] * 3
    with SentBytes() as sent:
        if rank == 0:
            send(tinytorch.zeros(10), 1)
        elif rank == 1:
            recv(tinytorch.zeros(10), 0)
    assert sent.total == (40 if rank == 0 else 0)


def a_copy_is_refused() -> None:
    raises(ProcessGroupError, "not contiguous", lambda: all_reduce(tinytorch.ones(2, 3).t()))
    raises(ValueError, "not 'product'", lambda: all_reduce(tinytorch.ones(2), "product"))
    raises(ProcessGroupError, "number of ranks", lambda: reduce_scatter(tinytorch.ones(9)))


def ranks_that_disagree_are_told_of_each_other() -> None:
    """gloo would abort a process, or fill a tensor in part."""
    rank, n = get_rank(), get_world_size()
    last = rank == n - 1
    x, y = tinytorch.zeros(8 if last else 4), tinytorch.zeros(4)
    theirs = f"rank {n - 1}: "
    raises(ProcessGroupError, theirs + "all_reduce of float32[8] (sum)", lambda: all_reduce(x))
    raises(ProcessGroupError, theirs + "broadcast of float32[8]", lambda: broadcast(x))
    raises(ProcessGroupError, theirs + "all_gather of float32[8]", lambda: all_gather(x))
    double = y.double() if last else y
    raises(ProcessGroupError, theirs + "all_reduce of float64[4]", lambda: all_reduce(double))
    raises(ProcessGroupError, "(mean); ", lambda: all_reduce(y, "sum" if last else "mean"))
    raises(ProcessGroupError, "rank 0: barrier", lambda: all_reduce(y) if last else barrier())
    assert not x.numpy().any()
    model = nn.Linear(2, 1)
    handle = data_parallel(model)  # the last rank has run out of batches
    backward = model(tinytorch.ones(1, 2)).sum().backward
    raises(ProcessGroupError, theirs + "barrier", barrier if last else backward)
    model(tinytorch.full((1, 2), float(rank))).sum().backward()  # and has others
    assert model.weight.grad is not None
    assert model.weight.grad.tolist() == [[(n - 1) / 2] * 2]
    handle.remove()
    raises(ProcessGroupError, f"ranks are 0 to {n - 1}", lambda: broadcast(y, src=n))
    raises(ProcessGroupError, f"it is {n}; ranks are", lambda: send(y, n))
    raises(ProcessGroupError, "this rank itself", lambda: recv(y, rank))
    all_reduce(y)  # and they can go on


def an_overwritten_value_is_noticed() -> None:
    x = tinytorch.ones(2, requires_grad=True)
    y = x * x
    all_reduce(x.detach())
    raises(tinytorch.errors.AutogradError, "overwritten", lambda: y.sum().backward())


# -- data parallel ---------------------------------------------------------------------------------


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


class _Fails(tinytorch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        return x * 1

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> Tensor:
        raise ArithmeticError("on purpose")


def what_a_failed_backward_has_sent_is_not_mixed_with_the_next() -> None:
    model = nn.Sequential(nn.Linear(2, 2, bias=False), nn.Linear(2, 1, bias=False))
    handle = data_parallel(model, bucket_mb=1e-6)
    x = tinytorch.full((1, 2), float(get_rank()))
    loss = model[1](_Fails.apply(model[0](x))).sum()
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


# -- what goes with it -----------------------------------------------------------------------------


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


CHECKS: dict[str, Callable[[], None]] = {
    check.__name__: check
    for check in (
        collectives,
        sends_and_receives,
        a_copy_is_refused,
        ranks_that_disagree_are_told_of_each_other,
        an_overwritten_value_is_noticed,
        ranks_train_as_one_process,
        buckets_leave_while_the_backward_runs,
        accumulation_without_messages,
        parameters_that_some_ranks_do_not_use,
        gradients_are_views_that_no_later_backward_writes,
        what_a_failed_backward_has_sent_is_not_mixed_with_the_next,
        batches_of_different_sizes,
        models_that_differ_are_refused,
        a_trace_is_refused,
        grad_takes_no_part,
        synchronized_batch_norm,
        sharded_optimizer,
        a_row_takes_as_long_as_its_slowest_rank,
        ring,
        tensor_parallel,
        pipeline,
    )
}


def all_checks() -> dict[str, str]:
    """The traceback of each check that failed; empty for the others."""
    found = {}
    for name, check in CHECKS.items():
        try:
            check()
            found[name] = ""
        except Exception:
            found[name] = traceback.format_exc()
    return found


# -- runs that end early ---------------------------------------------------------------------------


def resumable(path: str, until: int, killed_at: int | None = None) -> bytes:
    """A run that saves each step, and goes on from what is saved; the last rank may be killed."""
    model = mlp()
    data_parallel(model)
    optimizer = ShardedOptimizer(model.parameters(), optim.Adam, lr=0.01)
    begin = load_checkpoint(path, model, optimizer)["step"] if Path(path).exists() else 0
    x, y = tinytorch.randn(60, 5), tinytorch.randint(0, 3, (60,))
    broadcast(x)
    broadcast(y)
    for step in range(begin, until):
        sampler = ShardedSampler(range(60), shuffle=True, seed=1)
        sampler.set_epoch(step)
        part = tinytorch.tensor(list(sampler))
        if step == killed_at and get_rank() == get_world_size() - 1:
            os.kill(os.getpid(), signal.SIGKILL)
        train(model, optimizer, [(x[part], y[part])], lambda t: t)
        save_checkpoint(path, model, optimizer, step=step + 1)
    return weights(model).tobytes()


def says_who_was_killed() -> tuple[str, float]:
    """The last rank is killed before a collective: what the others are told, and after how long."""
    if get_rank() == get_world_size() - 1:
        os.kill(os.getpid(), signal.SIGKILL)
    begin = time.monotonic()
    try:
        all_reduce(tinytorch.ones(1000))
    except ProcessGroupError as error:
        raise RuntimeError(f"after {time.monotonic() - begin:.1f} s: {error}") from None
    raise AssertionError("nobody noticed")


def receives_another_shape() -> None:
    """A message of another size is not for this tensor: nothing is filled in part."""
    if get_rank() == 0:
        send(tinytorch.ones(4), 1)
    else:
        recv(tinytorch.zeros(8), 0)


def fails_on_rank_1() -> None:
    if get_rank() == 1:
        raise ValueError("a mistake of rank 1")
    all_reduce(tinytorch.ones(1))
