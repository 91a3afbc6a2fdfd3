"""Runs that end early."""

from __future__ import annotations

import os
import signal
import time
from pathlib import Path

import tinytorch
from tests.distributed.programs.common import (
    mlp,
    train,
    weights,
)
from tinytorch import optim
from tinytorch.distributed import (
    ProcessGroupError,
    ShardedOptimizer,
    ShardedSampler,
    all_reduce,
    broadcast,
    data_parallel,
    destroy_process_group,
    get_rank,
    get_world_size,
    load_checkpoint,
    recv,
    save_checkpoint,
    send,
)


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


def says_who_has_left() -> tuple[str, float]:
    """The last rank leaves the group, and lives on, while the others are in a backward."""
    model = mlp()
    data_parallel(model)
    all_reduce(tinytorch.ones(1))  # so that no rank is still being connected
    begin = time.monotonic()
    if get_rank() == get_world_size() - 1:
        time.sleep(0.5)  # the others have what this one sent them
        destroy_process_group()
        time.sleep(10.0)
        return "", 0.0
    try:
        model(tinytorch.ones(1, 5)).sum().backward()
    except ProcessGroupError as error:
        return str(error), time.monotonic() - begin
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
