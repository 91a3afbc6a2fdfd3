"""`nn.DataParallel` on no GPU, the tuples of `torch.nn.modules.utils`, the fans of `nn.init`."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from itertools import repeat
from typing import Any

from tinytorch.nn import Module
from tinytorch.nn.init import fan_in_and_fan_out
from tinytorch.tensor import Tensor


def _ntuple(n: int, name: str = "parse") -> Callable[[Any], tuple[Any, ...]]:
    def parse(x: Any) -> tuple[Any, ...]:
        return tuple(x) if isinstance(x, Iterable) else tuple(repeat(x, n))

    parse.__name__ = name
    return parse


_single, _pair, _triple, _quadruple = (_ntuple(n) for n in (1, 2, 3, 4))


def _calculate_fan_in_and_fan_out(tensor: Tensor) -> tuple[int, int]:
    return fan_in_and_fan_out(tensor.shape)


def _calculate_correct_fan(tensor: Tensor, mode: str) -> int:
    fans = dict(zip(("fan_in", "fan_out"), fan_in_and_fan_out(tensor.shape), strict=True))
    if mode.lower() not in fans:
        raise ValueError(f"mode must be 'fan_in' or 'fan_out', not {mode!r}")
    return fans[mode.lower()]


class DataParallel(Module):
    """The module itself as `.module`: batches are split over GPUs, and there are none.

    >>> from tinytorch.nn import Linear
    >>> list(DataParallel(Linear(2, 1)).state_dict())
    ['module.weight', 'module.bias']
    """

    def __init__(
        self, module: Module, device_ids: Any = None, output_device: Any = None, dim: int = 0
    ) -> None:
        super().__init__()
        self.module = module

    def forward(self, *args: Any, **keywords: Any) -> Any:
        """The module's result."""
        return self.module(*args, **keywords)


class DistributedDataParallel(Module):
    """Raises an error when it is made: a program runs in one process here."""

    def __new__(cls, *args: Any, **options: Any) -> Any:
        raise NotImplementedError(
            "DistributedDataParallel needs several processes: leave it out, the module itself "
            "trains in this one"
        )
