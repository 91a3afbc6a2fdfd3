"""`MemoryMeter`: how many bytes tensors hold while code runs, and the most they ever held.

On the CPU torch keeps no account of its memory, so a dispatch mode looks at what every op returns
and follows the storages until they die. It sees eager code, autograd and graphs alike. On CUDA the
allocator keeps the account; see `measure_peak`.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves


class MemoryMeter(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Follows the storages that ops make in a block, on all devices together.

        with MemoryMeter(model.parameters()) as meter:
            model(x).sum().backward()
        meter.peak

    Args:
        existing: a nest of tensors that are there before; they do not count.

    Attributes:
        current: bytes alive now.
        peak: the most that were ever alive.
        peak_op: the op at which that was.
        history: bytes alive after each op.

    Raises:
        NotImplementedError: an op returns a sparse tensor.
    """

    supports_higher_order_operators = True  # random ops are replayed by such

    def __init__(self, existing: Any = ()) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.current = 0
        self.peak = 0
        self.peak_op: Any = None
        self.history: list[int] = []
        self._alive: dict[int, int] = {}  # address of a storage -> its bytes
        self._existing = {
            t.untyped_storage()._cdata: t for t in tree_leaves(_listed(existing)) if _is_tensor(t)
        }

    def __torch_dispatch__(
        self, func: Any, types: Any, args: Any = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        result = func(*args, **(kwargs or {}))
        for tensor in tree_leaves(result):
            if _is_tensor(tensor):
                self._follow(tensor.untyped_storage(), func)
        self.history.append(self.current)
        return result

    def _follow(self, storage: torch.UntypedStorage, op: Any) -> None:
        key = storage._cdata
        if key in self._alive or key in self._existing:
            return
        self._alive[key] = storage.nbytes()
        self.current += storage.nbytes()
        weakref.finalize(storage, self._release, key)
        if self.current > self.peak:
            self.peak, self.peak_op = self.current, op

    def _release(self, key: int) -> None:
        self.current -= self._alive.pop(key, 0)


def _is_tensor(value: Any) -> bool:
    if isinstance(value, Tensor) and value.layout != torch.strided:
        raise NotImplementedError(
            f"a MemoryMeter follows strided tensors, and this one is {value.layout}"
        )
    return isinstance(value, Tensor)


def _listed(existing: Any) -> Any:
    """Iterators, such as `model.parameters()`, as lists: they are leaves to pytree."""
    return list(existing) if hasattr(existing, "__next__") else existing


@dataclass(frozen=True)
class PeakMemory:
    """The peak of memory in running a function.

    Attributes:
        peak: bytes above what was there before, at the most.
        meter: who says so: "dispatch" or "cuda".
    """

    peak: int
    meter: str


def measure_peak(function: Callable[[], Any], existing: Any, device: torch.device) -> PeakMemory:
    """Peak memory of a call, above what exists before.

    On CUDA the allocator says it, rounding to its blocks and workspaces of kernels included; on
    other devices a `MemoryMeter`. Gradients of the tensors there are put aside meanwhile: one that
    is accumulated into is not allocated, and would not be counted.

    Args:
        existing: tensors that are there before; what the function is given.
    """
    existing = _listed(existing)
    with _gradients_aside(existing):
        return _measure(function, existing, device)


@contextmanager
def _gradients_aside(existing: Any) -> Iterator[None]:
    leaves = [t for t in tree_leaves(existing) if isinstance(t, Tensor) and t.is_leaf]
    before = [t.grad for t in leaves]
    for leaf in leaves:
        leaf.grad = None
    try:
        yield
    finally:
        for leaf, gradient in zip(leaves, before, strict=True):
            leaf.grad = gradient


def _measure(function: Callable[[], Any], existing: Any, device: torch.device) -> PeakMemory:
    if device.type == "cuda":
        torch.cuda.synchronize(device)
        before = torch.cuda.memory_allocated(device)
        torch.cuda.reset_peak_memory_stats(device)
        function()
        torch.cuda.synchronize(device)
        return PeakMemory(torch.cuda.max_memory_allocated(device) - before, "cuda")
    with MemoryMeter(existing) as meter:
        function()
    return PeakMemory(meter.peak, "dispatch")
