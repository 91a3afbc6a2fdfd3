"""Data parallel training: each rank has the whole model and a part of the batch.

Source: S. Li et al., "PyTorch Distributed: Experiences on Accelerating Data Parallel Training",
2020, section 3.2 (buckets, and their overlap with the backward).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np

from tinytorch.autograd.listeners import listeners
from tinytorch.distributed.buckets import Bucket, make_buckets
from tinytorch.distributed.group import (
    agree,
    broadcast,
    gather_objects,
    get_rank,
    new_communicator,
)
from tinytorch.errors import ProcessGroupError
from tinytorch.nn import Module
from tinytorch.tensor import Tensor


def data_parallel(model: Module, bucket_mb: float = 25.0) -> DataParallel:
    """Make every `backward()` from now on give the mean of the gradients of all ranks.

    The model stays as it is, and so do its names: a checkpoint is that of one process. Its weights
    and buffers become those of rank 0.

        init_process_group()
        data_parallel(model)
        for x, y in loader:  # with a ShardedSampler: each rank has its own part of the batch
            optimizer.zero_grad()
            loss(model(x), y).backward()  # averages while it runs
            optimizer.step()

    Buffers are not sent again: the running statistics of a BatchNorm become those of the rank's
    own part, unless `convert_sync_batch_norm` has made them those of all.

    As the loss is the mean over a part, and the parts have the same size, the mean of the gradients
    is the gradient of the mean over the whole batch.

    Args:
        model: the same on all ranks. What it trains must be the same in each backward, or less: a
            gradient of a parameter that was frozen until now is an error.
        bucket_mb: gradients are sent in messages of about that many MB (10^6 bytes).

    Returns:
        A handle: `no_sync()` for accumulation, `remove()` to end it.

    Raises:
        ProcessGroupError: the models of the ranks differ, or bucket_mb; the message names the first
            difference. No group; nothing to train.
    """
    return DataParallel(model, bucket_mb)


class DataParallel:
    """The handle that `data_parallel` returns.

    Attributes:
        name: in errors: each call of data_parallel has another one.
        buckets: in the order in which they are sent, on every rank the same.
        launched: of the last backward, how many gradients were known when each bucket was sent.
    """

    def __init__(self, model: Module, bucket_mb: float) -> None:
        named = [(name, p) for name, p in model.named_parameters() if p.requires_grad]
        if not named:
            raise ProcessGroupError("data_parallel: no parameter of the model requires a gradient")
        check_same_parameters("data_parallel", [p for _, p in named], [name for name, _ in named])
        agree(f"data_parallel with bucket_mb={bucket_mb}")  # else sums would be of others
        self.model = model
        for tensor in (*model.parameters(), *model.buffers()):
            broadcast(tensor)
        # the last layer's gradients are known first
        self.buckets = make_buckets([p for _, p in reversed(named)], int(bucket_mb * 1e6))
        self._bucket_of = {id(p): bucket for bucket in self.buckets for p in bucket.params}
        self.launched: list[int] = []
        layouts = [bucket.layout for bucket in self.buckets]
        self._communicator = new_communicator("data_parallel", layouts, self._begin)
        self.name = self._communicator.name
        self._sync = True
        self._begin()
        listeners.append(self)

    @contextmanager
    def no_sync(self) -> Iterator[None]:
        """A block whose backwards add up in `.grad` of this rank alone.

        The first backward after it averages all of them.

            with parallel.no_sync():
                loss(model(x1), y1).backward()
            loss(model(x2), y2).backward()
        """
        before, self._sync = self._sync, False
        try:
            yield
        finally:
            self._sync = before

    def remove(self) -> None:
        """Leave gradients alone again."""
        if self in listeners:
            listeners.remove(self)
            self._communicator.release()

    def _begin(self) -> None:
        """Nothing is known or sent of the next backward."""
        for bucket in self.buckets:
            bucket.clear()
        self._known = 0
        self._sent: list[int] = []
        self._is_torn = False

    # -- while a backward runs ---------------------------------------------------------------------

    def ready(self, leaf: Tensor, gradient: Tensor) -> None:
        """Take a gradient into its bucket, and send the buckets that are full."""
        bucket = self._bucket_of.get(id(leaf))
        if bucket is None or not self._sync:
            return
        if not isinstance(gradient._data, np.ndarray):
            raise ProcessGroupError(
                "data_parallel cannot be traced or compiled: compile the forward, and call "
                "backward() outside of it"
            )
        if self._is_torn:
            raise ProcessGroupError(
                "data_parallel: an earlier backward ended with an error while it sent gradients, "
                "and other ranks may wait for the rest. Start again from a checkpoint; or, if the "
                "error was on every rank, remove() this handle and call data_parallel again"
            )
        bucket.put(leaf, gradient, *([] if leaf.grad is None else [leaf.grad]))
        self._known += 1
        self._send_full()

    def end(self, gradients: dict[Any, Tensor]) -> None:
        """Wait for all buckets, and put the means in place of this rank's gradients."""
        if not self._sync:
            return
        self._check_known(gradients)
        if not any(id(leaf) in self._bucket_of for leaf in gradients):
            return
        for p in (p for bucket in self.buckets for p in bucket.params):
            if p.grad is not None and p not in gradients:  # of a backward under no_sync
                self._bucket_of[id(p)].put(p, p.grad)
        self._send_full(all_of_them=True)
        for means in [bucket.means() for bucket in self.buckets]:
            for p, mean in means.items():
                p.grad = mean  # what it was is in the mean
                gradients.pop(p, None)
        self.launched = self._sent
        self._begin()

    def abandon(self) -> None:
        """Note that a backward failed: what is known of it must not be a part of the next one.

        Another rank may be sending what this one has stopped to send. That ends with an error on
        all ranks, when they wait for each other: what was begun is given up, and they can go on.
        """
        self._is_torn = self._known > 0

    def _check_known(self, gradients: dict[Any, Tensor]) -> None:
        """Raise ProcessGroupError for a parameter that is in no bucket: each rank would go on with
        its own gradient of it."""
        others = {id(leaf) for leaf in gradients if id(leaf) not in self._bucket_of}
        if not others:
            return
        for name, p in self.model.named_parameters():
            if id(p) in others:
                raise ProcessGroupError(
                    f"{name} of the model has a gradient, but had none when data_parallel was "
                    "called (it was frozen, or is another object now): remove() this handle and "
                    "call data_parallel again"
                )

    def _send_full(self, all_of_them: bool = False) -> None:
        """Send buckets in their order, which is the same on all ranks, until one is not full."""
        while len(self._sent) < len(self.buckets):
            bucket: Bucket = self.buckets[len(self._sent)]
            if bucket.missing and not all_of_them:
                return
            bucket.start(self._communicator)
            self._sent.append(self._known)


def check_same_parameters(
    what: str, parameters: Sequence[Tensor], names: Sequence[str] = ()
) -> None:
    """All ranks train the same parameters: the first difference is an error on every rank.

    Args:
        what: who asks, for the message.
        parameters: of this rank.
        names: theirs, if they have any.

    Raises:
        ProcessGroupError: they differ.
    """
    named = zip(names or [""] * len(parameters), parameters, strict=True)
    own = [f"{name} {p.dtype.name}{list(p.shape)}".lstrip() for name, p in named]
    for rank, theirs in enumerate(gather_objects(own)):
        if theirs == own:
            continue
        i = next((i for i, (a, b) in enumerate(zip(own, theirs, strict=False)) if a != b), None)
        if i is None:
            which = f"{len(own)} parameters here and {len(theirs)} there"
        else:
            which = f"parameter {i} is {own[i]} here and {theirs[i]} there"
        raise ProcessGroupError(
            f"{what}: the models of rank {get_rank()} and rank {rank} differ: {which}"
        )
