"""Values that are known while tracing: of tensors made from numbers and from buffers alone."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor
from torch._ops import OpOverload
from torch._subclasses.fake_tensor import FakeTensor
from torch.utils._python_dispatch import TorchDispatchMode, _disable_current_modes
from torch.utils._pytree import tree_leaves, tree_map
from torch.utils.weak import WeakIdKeyDictionary

from tinytorch.fx.capture.slots import Slot
from tinytorch.fx.diagnosis.reasons import Line, calling_line

LIMIT = 4096  # elements: what a trace asks the value of is small
UNDEFINED = ("empty", "empty_strided", "empty_permuted", "new_empty", "empty_like")


class KnownValues(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Computes constants of the code beside the trace, so that Python may ask for their values.

    Fake tensors have no values: `torch.linspace(0, 0.5, 3).tolist()` would be refused, although it
    depends on nothing. What is made of numbers alone, without random numbers, is computed for real
    too, and `item`, `tolist`, `bool` and `int` read it there. So is what is made of small buffers
    (a padding kept as a tensor); a graph for which one was read is of that value only.

    Attributes:
        read: the buffers on which a value depends that Python has asked for, with the line.
    """

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self._real: Any = WeakIdKeyDictionary()
        self._sources: Any = WeakIdKeyDictionary()  # of a real value: the buffers it is made of
        self.read: dict[Slot, Line | None] = {}

    def follow(self, buffers: Mapping[Slot, tuple[Tensor, Tensor]]) -> None:
        """Treat what is made of these tensors as known.

        Args:
            buffers: for each one what it is traced as, and the buffer itself.
        """
        with _disable_current_modes():
            for slot, (traced, buffer) in buffers.items():
                if buffer.numel() <= LIMIT:
                    self._real[traced] = buffer.detach().clone()
                    self._sources[self._real[traced]] = {slot}

    def __torch_dispatch__(
        self, func: Any, types: Any, args: Any = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        kwargs = kwargs or {}
        given = [x for x in tree_leaves((args, kwargs)) if isinstance(x, Tensor)]
        for tensor in given:
            self._remember_constant(tensor)
        known = all(x in self._real for x in given)
        if func is torch.ops.aten._local_scalar_dense.default and known:
            for slot in self._sources_of(given):
                self.read.setdefault(slot, calling_line())
            return self._evaluate(func, args, kwargs)
        result = func(*args, **kwargs)
        made = [x for x in tree_leaves(result) if isinstance(x, Tensor)]
        if made and known and _is_determined(func, made):
            real = tree_leaves(self._evaluate(func, args, kwargs))
            sources = self._sources_of(given)
            for tensor, value in zip(made, [x for x in real if isinstance(x, Tensor)], strict=True):
                self._real[tensor] = value
            for _, value in self._sharing(made) if sources else ():  # it may be a write to a view
                self._sources[value] = sources | self._sources.get(value, set())
        elif isinstance(func, OpOverload) and func._schema.is_mutable:
            self._invalidate(given)
        return result

    def _remember_constant(self, tensor: Tensor) -> None:
        """A real tensor among the fake ones is a constant; ops may write a copy, not the tensor."""
        if not isinstance(tensor, FakeTensor) and tensor.numel() <= LIMIT:
            with _disable_current_modes():
                self._real.setdefault(tensor, tensor.detach().clone())

    def _sources_of(self, tensors: list[Tensor]) -> set[Slot]:
        """The buffers that these, whose values are known, are made of."""
        return set().union(*(self._sources.get(self._real[x], ()) for x in tensors))

    def _evaluate(self, func: Any, args: Any, kwargs: dict[str, Any]) -> Any:
        def real(x: Any) -> Any:
            return self._real[x] if isinstance(x, Tensor) else x

        with _disable_current_modes(), torch.no_grad():
            return func(*tree_map(real, args), **tree_map(real, kwargs))

    def _invalidate(self, written: list[Tensor]) -> None:
        """What may have been written with unknown values is unknown, and so are its views."""
        for tensor, _ in self._sharing(written):
            del self._real[tensor]

    def _sharing(self, tensors: list[Tensor]) -> list[tuple[Tensor, Tensor]]:
        """These and all others of their memory, with their values; of those that are known."""
        storages = {self._real[x].untyped_storage()._cdata for x in tensors if x in self._real}
        return [(tensor, value) for tensor, value in self._real.items()
                if value.untyped_storage()._cdata in storages]  # fmt: skip


def _is_determined(func: Any, made: list[Tensor]) -> bool:
    """The values follow from those of the arguments, and are few."""
    return (
        isinstance(func, OpOverload)
        and torch.Tag.nondeterministic_seeded not in func.tags
        and func._opname not in UNDEFINED
        and all(isinstance(t, FakeTensor) and t.device.type != "meta" for t in made)
        and all(isinstance(n, int) for t in made for n in t.shape)
        and sum(t.numel() for t in made) <= LIMIT
    )
