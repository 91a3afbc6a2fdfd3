"""Messages and collectives."""

from __future__ import annotations

import tinytorch
from tests.distributed.programs.common import (
    raises,
)
from tinytorch import DTypeError, nn
from tinytorch.distributed import (
    ProcessGroupError,
    SentBytes,
    all_gather,
    all_reduce,
    barrier,
    broadcast,
    data_parallel,
    get_rank,
    get_world_size,
    isend,
    recv,
    reduce_scatter,
    ring_all_reduce,
    send,
)
from tinytorch.distributed.group import torch_view


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
    half_words = tinytorch.tensor([rank, -300], dtype="int16")  # gloo only moves them
    assert all_gather(half_words).tolist() == [[r, -300] for r in range(n)]
    broadcast(half_words, src=n - 1)
    assert half_words.tolist() == [n - 1, -300]
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
    raises(ProcessGroupError, "not contiguous", lambda: ring_all_reduce(tinytorch.ones(2, 3).t()))
    raises(ValueError, "not 'product'", lambda: all_reduce(tinytorch.ones(2), "product"))
    raises(ProcessGroupError, "number of ranks", lambda: reduce_scatter(tinytorch.ones(9)))


def what_gloo_cannot_compute_is_refused() -> None:
    n = get_world_size()
    half_words = tinytorch.ones(n, dtype="int16")
    raises(DTypeError, "no int16", lambda: all_reduce(half_words))
    raises(DTypeError, "no int16", lambda: reduce_scatter(half_words))
    raises(
        DTypeError, "mean of int64", lambda: all_reduce(tinytorch.ones(2, dtype="int64"), "mean")
    )
    flags = tinytorch.tensor([True, False])
    all_reduce(flags)
    row = reduce_scatter(tinytorch.ones(n, 2, dtype="bool"))
    assert [*flags.numpy().tobytes(), *row.numpy().tobytes()] == [1, 0, 1, 1]


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
