"""The processes of a run: who they are, and collectives on tensors, by `torch.distributed`.

Names and meaning are those of `torch.distributed`; the transport is its gloo. A tensor's own memory
is what is sent and received: nothing is copied on the way to gloo.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Sequence
from datetime import timedelta
from typing import Any, ClassVar

import numpy as np

from tinytorch.distributed.heartbeat import Heartbeat
from tinytorch.dtypes import bool_, int16
from tinytorch.errors import DTypeError, ProcessGroupError, missing_extra
from tinytorch.history import write_clock
from tinytorch.tensor import Tensor

try:
    import torch
    import torch.distributed as dist
    from torch.distributed.distributed_c10d import _get_default_store

    from tinytorch.distributed.agreement import ask, describe, tag_of
    from tinytorch.distributed.communicator import Communicator
    from tinytorch.distributed.deadlock import DeadlockDetector
except ImportError as error:  # pragma: no cover - tested in an environment without it
    raise missing_extra("torch", "torch", "tinytorch.distributed") from error

#: What SLURM calls that which torchrun puts into the environment.
SLURM_NAMES = {"RANK": "SLURM_PROCID", "WORLD_SIZE": "SLURM_NTASKS", "LOCAL_RANK": "SLURM_LOCALID"}
#: What must be in the environment.
ENVIRONMENT = ("RANK", "WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT")
#: What a collective may make of the values of all ranks.
REDUCTIONS = ("sum", "mean", "max", "min")

_heartbeat: Heartbeat | None = None
_detector: DeadlockDetector | None = None
_timeout: timedelta | None = None  # of a collective; None is PyTorch's


def init_process_group(timeout: float = 300.0) -> None:
    """Join the processes that were started together: by torchrun, by SLURM or by `launch`.

    Args:
        timeout: seconds that a collective waits for the other ranks.

    Raises:
        ProcessGroupError: the environment does not say who the process is; or it is in a group.

    The same program on 2 processes of this machine:

        torchrun --nproc-per-node 2 train.py
    """
    global _heartbeat, _timeout
    if isinstance(timeout, str):  # PyTorch's first argument
        raise TypeError(f"init_process_group takes seconds, not {timeout!r}; the backend is gloo")
    if dist.is_initialized():
        raise ProcessGroupError("this process is in a group already; destroy_process_group() first")
    for name, slurm in SLURM_NAMES.items():
        if name not in os.environ and slurm in os.environ:
            os.environ[name] = os.environ[slurm]
    missing = [name for name in ENVIRONMENT if not os.environ.get(name)]
    if missing:
        raise ProcessGroupError(
            f"the environment lacks {', '.join(missing)}: start the program with "
            f"`torchrun --nproc-per-node 2 program.py`, with srun and MASTER_ADDR and MASTER_PORT "
            f"exported, or by tinytorch.distributed.launch"
        )
    _timeout = timedelta(seconds=timeout)
    dist.init_process_group("gloo", timeout=_timeout)
    address = os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"])
    _heartbeat = Heartbeat(*address, get_rank(), get_world_size())
    barrier()


def destroy_process_group() -> None:
    """Leave the group. Nothing happens outside of one."""
    global _detector, _heartbeat, _timeout
    if _heartbeat is not None:
        _heartbeat.stop()
        _heartbeat = None
    for each in _detector.communicators if _detector is not None else ():
        each.destroy()
    _detector = _timeout = None
    if dist.is_initialized():
        dist.destroy_process_group()


def is_available() -> bool:
    """Whether the installed PyTorch has collectives."""
    return bool(dist.is_available())


def is_initialized() -> bool:
    """Whether this process is in a group."""
    return bool(dist.is_initialized())


def get_rank() -> int:
    """The number of this process, 0 to `get_world_size()` - 1; 0 outside of a group."""
    return dist.get_rank() if dist.is_initialized() else 0


def get_world_size() -> int:
    """How many processes there are; 1 outside of a group."""
    return dist.get_world_size() if dist.is_initialized() else 1


class Work:
    """A collective under way. `wait()` returns when its result is in the tensors."""

    def __init__(self, name: str, wait: Callable[[], Any], finish: Callable[[], None]) -> None:
        self._name, self._wait, self._finish = name, wait, finish

    def wait(self) -> None:
        """Wait for the end.

        Raises:
            ProcessGroupError: a rank has gone, or did not take part in time; the message names it.
        """
        _guarded(self._name, self._wait)
        self._finish()


def agree(call: str) -> None:
    """Ask all ranks whether they are about to do this, and wait for the answer.

    Raises:
        ProcessGroupError: no group; the ranks differ; a rank has gone.
    """
    _need_group(call)
    _guarded(call, lambda: ask(call, _deadlock_detector()))


def new_communicator(
    what: str, arrays: Sequence[tuple[int, np.dtype]], after_deadlock: Callable[[], None]
) -> Communicator:
    """A communicator of all ranks, which must all make it now; for `sum_in`.

    Those that all ranks have released by now are destroyed.

    Args:
        what: needs it, in words.
        arrays, after_deadlock: as of `Communicator`.
    """
    in_use = _deadlock_detector().communicators
    released = gather_objects({each.name: each.begun for each in in_use if each.released})
    for each in in_use[1:]:
        if all(each.name in theirs for theirs in released):
            each.catch_up(max(theirs[each.name] for theirs in released))
            each.destroy()
            in_use.remove(each)
    group = _guarded(what, lambda: dist.new_group(backend="gloo", timeout=_timeout))
    made = Communicator(f"{what} {group.group_name}", group, arrays, after_deadlock)
    in_use.append(made)
    return made


def sum_in(communicator: Communicator, tensor: Tensor, call: str) -> Work:
    """Begin to put the sum of the ranks' tensors into the tensor of each.

    Nobody is asked whether all ranks do so: in this communicator they do nothing else. If some do
    not come to it `wait()` raises an error on all ranks; what was begun is given up.

    Args:
        call: what this is for, in words.
    """
    shared, detector = _reducible_view(tensor), _deadlock_detector()
    work = _guarded(call, lambda: communicator.all_reduce(shared))
    return Work(call, lambda: detector.wait(work, call, communicator), lambda: written(tensor))


def all_reduce(
    tensor: Tensor, op: str = "sum", async_op: bool = False, agreed: bool = False
) -> Work | None:
    """Put the sum (mean, max, min) of the ranks' tensors into the tensor of each.

    Args:
        tensor: the same shape and dtype on all ranks; contiguous; changed in place.
        op: "sum", "mean", "max" or "min".
        async_op: return as soon as all ranks are here, with a `Work` to wait for.
        agreed: it is known that all ranks make this call: they are not asked. Where it is not true
            a process may be aborted, or its result wrong.

    Raises:
        ProcessGroupError: no group; the memory is not contiguous; the ranks do not call the same;
            a rank has gone.
        ValueError: another `op`.
        DTypeError: int16 or bfloat16, which gloo does not know; the mean of integers.
    """
    if op not in REDUCTIONS:
        raise ValueError(f"all_reduce knows {', '.join(REDUCTIONS)}, not {op!r}")
    if op == "mean" and not tensor.dtype.is_floating_point:
        raise DTypeError(f"all_reduce: a mean of {tensor.dtype.name} is none; make it float first")
    shared = _reducible_view(tensor)
    is_sum = op in ("sum", "mean")
    reduction = _sum_of(tensor) if is_sum else getattr(dist.ReduceOp, op.upper())
    if not agreed:
        agree(describe("all_reduce", tensor, f" ({op})"))

    def finish() -> None:
        if op == "mean":
            shared.div_(get_world_size())
        written(tensor)

    work = _started("all_reduce", lambda: dist.all_reduce(shared, reduction, async_op=True), finish)
    return _waited_for(work, async_op)


def broadcast(
    tensor: Tensor, src: int = 0, async_op: bool = False, agreed: bool = False
) -> Work | None:
    """Put the tensor of rank `src` into that of every other rank, in place.

    Args and errors are those of `all_reduce`; but int16 can be sent.
    """
    shared = _bytes(torch_view(tensor))
    _check_rank("broadcast: src", src)
    if not agreed:
        agree(describe("broadcast", tensor, f" from rank {src}"))
    work = _started(
        "broadcast", lambda: dist.broadcast(shared, src, async_op=True), lambda: written(tensor)
    )
    return _waited_for(work, async_op)


def all_gather(tensor: Tensor) -> Tensor:
    """The tensors (...) of all ranks, as (world size, ...); those must have the same shape."""
    gathered = _empty((get_world_size(), *tensor.shape), tensor)
    rows, own = [_bytes(row) for row in torch_view(gathered)], _bytes(torch_view(tensor))
    agree(describe("all_gather", tensor))
    _started(
        "all_gather",
        lambda: dist.all_gather(rows, own, async_op=True),
        lambda: None,
    ).wait()
    return gathered


def reduce_scatter(tensor: Tensor) -> Tensor:
    """Row `rank` of the sum of the ranks' tensors (world size, ...).

    Raises:
        ProcessGroupError: there is not one row for each rank.
    """
    if tensor.ndim == 0 or tensor.shape[0] != get_world_size():
        raise ProcessGroupError(
            f"reduce_scatter of shape {tensor.shape} over {get_world_size()} ranks: the first "
            f"dimension must be the number of ranks"
        )
    result = _empty(tensor.shape[1:], tensor)
    rows, own = list(_reducible_view(tensor)), torch_view(result)
    agree(describe("reduce_scatter", tensor))
    _started(
        "reduce_scatter",
        lambda: dist.reduce_scatter(own, rows, _sum_of(tensor), async_op=True),
        lambda: None,
    ).wait()
    return result


def send(tensor: Tensor, dst: int) -> None:
    """Send a tensor to a rank, and wait until it has left.

    Raises:
        ProcessGroupError: no group; there is no such rank, or it is this one; the memory is not
            contiguous; the rank has gone, or does not receive this shape and dtype in time.
    """
    isend(tensor, dst).wait()


def isend(tensor: Tensor, dst: int) -> Work:
    """Begin to send. The tensor must not change before `wait()` has returned."""
    name = describe("send", tensor, f" to rank {dst}")
    _check_peer(name, dst)
    shared = torch_view(tensor)
    _count_bytes(shared)
    return _started(name, lambda: dist.isend(shared, dst, tag=tag_of(tensor)), lambda: None)


def recv(tensor: Tensor, src: int) -> None:
    """Receive what rank `src` sends into `tensor`: a message of its shape and dtype.

    Raises:
        ProcessGroupError: as `send`.
    """
    name = describe("recv", tensor, f" from rank {src}")
    _check_peer(name, src)
    shared = torch_view(tensor)
    _started(
        name, lambda: dist.irecv(shared, src, tag=tag_of(tensor)), lambda: written(tensor)
    ).wait()


def barrier() -> None:
    """Wait until all ranks are here."""
    agree("barrier")


def gather_objects(value: Any) -> list[Any]:
    """A Python value of each rank, on each rank. They are pickled: for what is small."""
    agree("gather_objects")
    values: list[Any] = [None] * get_world_size()
    _guarded("gather_objects", lambda: dist.all_gather_object(values, value))
    return values


class SentBytes:
    """How many bytes this process has handed to `send` and `isend` inside of the block.

    with SentBytes() as sent:
        ring_all_reduce(gradient)
    sent.total
    """

    _active: ClassVar[list[SentBytes]] = []

    def __enter__(self) -> SentBytes:
        self.total = 0
        self._active.append(self)
        return self

    def __exit__(self, *error: object) -> None:
        self._active.remove(self)


def torch_view(tensor: Tensor) -> Any:
    """PyTorch's tensor on the memory of this one, by DLPack.

    Raises:
        ProcessGroupError: it would be a copy: the memory is not contiguous or not writable.
    """
    array = tensor.detach().numpy()
    if not (array.flags.c_contiguous and array.flags.writeable):
        kind = "contiguous" if array.flags.writeable else "writable"
        raise ProcessGroupError(
            f"the memory of a tensor of shape {tensor.shape} is not {kind}, so a collective would "
            f"work on a copy: pass tensor.contiguous() or tensor.clone()"
        )
    shared = torch.from_dlpack(array)  # type: ignore[attr-defined]
    if array.size and shared.data_ptr() != array.ctypes.data:
        raise ProcessGroupError(f"DLPack copied a tensor of shape {tensor.shape}")
    return shared


def _bytes(shared: Any) -> Any:
    """The memory of PyTorch's tensor as bytes, which gloo moves for every dtype."""
    return shared.reshape(-1).view(torch.uint8)


def _reducible_view(tensor: Tensor) -> Any:
    """`torch_view` of what gloo can compute with.

    Raises:
        DTypeError: of int16.
    """
    if tensor.dtype is int16:
        raise DTypeError("gloo knows no int16: send a copy, tensor.to('int32')")
    return torch_view(tensor)


def _sum_of(tensor: Tensor) -> Any:
    """True + True is True; gloo would add the bytes, and a byte of 2 is no bool."""
    return dist.ReduceOp.MAX if tensor.dtype is bool_ else dist.ReduceOp.SUM


def written(tensor: Tensor) -> None:
    """Note that a collective wrote into a tensor, so that a backward which needs it notices."""
    write_clock.write(tensor.detach().numpy())


def _waited_for(work: Work, async_op: bool) -> Work | None:
    if async_op:
        return work
    work.wait()
    return None


def _empty(shape: tuple[int, ...], like: Tensor) -> Tensor:
    return Tensor.from_numpy(np.empty(shape, like.dtype.dtype))


def _count_bytes(shared: Any) -> None:
    for counter in SentBytes._active:
        counter.total += shared.numel() * shared.element_size()


def _deadlock_detector() -> DeadlockDetector:
    """The one of this group. The first call of all ranks is the same one: they agree on a name."""
    global _detector
    if _detector is None:
        name = torch.tensor([time.time_ns()])  # the store may know of an earlier group
        dist.broadcast(name, 0)
        prefix = f"waits/{name.item()}"
        store = dist.PrefixStore(prefix, _get_default_store())  # type: ignore[attr-defined]
        questions = Communicator("questions", None, [(2, np.dtype(np.int64))])
        _detector = DeadlockDetector(store, questions, get_rank(), get_world_size())
    return _detector


def _need_group(name: str) -> None:
    if not dist.is_initialized():
        raise ProcessGroupError(f"{name}: this process is in no group; call init_process_group()")


def _check_rank(what: str, rank: int) -> None:
    if not 0 <= rank < get_world_size():
        raise ProcessGroupError(f"{what} is {rank}; ranks are 0 to {get_world_size() - 1}")


def _check_peer(name: str, rank: int) -> None:
    _need_group(name)
    _check_rank(f"{name}: it", rank)
    if rank == get_rank():
        raise ProcessGroupError(f"{name}: that is this rank itself")


def _started(name: str, start: Callable[[], Any], finish: Callable[[], None]) -> Work:
    _need_group(name)
    return Work(name, _guarded(name, start).wait, finish)


def _guarded(name: str, call: Callable[[], Any]) -> Any:
    """The result of a call into PyTorch; an error becomes one that names who has gone."""
    try:
        return call()
    except ProcessGroupError:
        raise
    except RuntimeError as error:
        who = _heartbeat.blame() if _heartbeat is not None else "no heartbeat is kept here"
        raise ProcessGroupError(
            f"rank {get_rank()} of {get_world_size()}: {name} failed: {who} "
            f"(PyTorch: {str(error).strip().splitlines()[0]})"
        ) from error
