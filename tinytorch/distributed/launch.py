"""Start a function on several processes of this machine, and collect what they return."""

from __future__ import annotations

import multiprocessing
import os
import signal
import traceback
from collections.abc import Callable
from multiprocessing.connection import Connection, wait
from multiprocessing.process import BaseProcess
from typing import Any

from tinytorch.distributed.group import destroy_process_group, init_process_group
from tinytorch.errors import ProcessGroupError


def launch(
    function: Callable[..., Any], world_size: int, *args: Any, timeout: float = 300.0
) -> list[Any]:
    """Run `function(*args)` on `world_size` processes that are in one group.

    Args:
        function: of a module that can be imported; it and the arguments are pickled.
        world_size: how many processes.
        timeout: seconds that a collective waits.

    Returns:
        What it returned, for each rank.

    Raises:
        ProcessGroupError: a rank raised an error or was killed. The message has the ranks that
            failed, the first one first, with the traceback. All processes have ended.

        losses = launch(train, 2, "run.safetensors")
    """
    from torch.distributed import TCPStore  # type: ignore[attr-defined]

    if world_size < 1:
        raise ValueError(f"world_size must be at least 1, got {world_size}")
    store = TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False)
    context = multiprocessing.get_context("spawn")
    ranks: dict[int, tuple[BaseProcess, Connection]] = {}
    try:
        for rank in range(world_size):
            ours, theirs = context.Pipe(duplex=False)
            process: BaseProcess = context.Process(
                target=_run, args=(function, args, rank, world_size, store.port, timeout, theirs)
            )
            process.start()
            theirs.close()
            ranks[rank] = process, ours
        return _collect(ranks)
    finally:
        for process, _ in ranks.values():
            if process.is_alive():
                process.kill()
            process.join()


def _run(
    function: Callable[..., Any],
    args: tuple[Any, ...],
    rank: int,
    world_size: int,
    port: int,
    timeout: float,
    answer: Connection,
) -> None:
    """What a process does: join the group, call, and send back the result or the traceback."""
    os.environ.update(
        RANK=str(rank), LOCAL_RANK=str(rank), WORLD_SIZE=str(world_size), MASTER_ADDR="127.0.0.1",
        MASTER_PORT=str(port), TORCHELASTIC_USE_AGENT_STORE="True",
    )  # fmt: skip
    try:
        init_process_group(timeout)
        result = function(*args)
        destroy_process_group()
        answer.send((True, result))
    except BaseException:
        answer.send((False, traceback.format_exc()))
        raise SystemExit(1) from None


def _collect(ranks: dict[int, tuple[BaseProcess, Connection]]) -> list[Any]:
    """The results by rank; once one has failed, the others may say why they did."""
    results: dict[int, Any] = {}
    failures: list[str] = []
    open_pipes: dict[Any, int] = {pipe: rank for rank, (_, pipe) in ranks.items()}
    while open_pipes:
        ready: list[Any] = wait(list(open_pipes), timeout=15.0 if failures else None)
        if not ready:
            break  # the rest waits for a rank that has failed
        for pipe in ready:
            rank = open_pipes.pop(pipe)
            try:
                fine, value = pipe.recv()
            except EOFError:
                process = ranks[rank][0]
                process.join()
                fine, value = False, _ending(process.exitcode or 0)
            if fine:
                results[rank] = value
            else:
                failures.append(f"rank {rank}: {value}")
    if failures:
        raise ProcessGroupError(
            f"{len(failures)} of {len(ranks)} ranks failed, the first one first\n"
            + "\n".join(failures)
        )
    return [results[rank] for rank in range(len(ranks))]


def _ending(code: int) -> str:
    """How a process ended that did not say."""
    return f"was killed by {signal.Signals(-code).name}" if code < 0 else f"exited with {code}"
