"""PyTorch's words for scalar definitions: the functions of `torch` by their own names."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch

from tinytorch.dtypes import DType, Shape
from tinytorch.fx.convert.exchange import TORCH_DTYPES
from tinytorch.fx.convert.torch_ops import cast
from tinytorch.scalar import Number, ScalarError, Vocabulary

Torch = torch.fx.Node | Number
#: Functions that take a number behind a tensor.
WITH_NUMBER = frozenset({
    "add", "sub", "mul", "div", "floor_divide", "remainder", "pow", "eq", "ne", "lt", "le", "gt",
    "ge", "bitwise_and", "bitwise_or", "bitwise_xor",
})  # fmt: skip


class TorchVocabulary(Vocabulary[Torch]):
    """Writes nodes of torch.fx.

    Args:
        call: makes a node that calls a function with these arguments and keyword arguments.
        device: where numbers become tensors.
    """

    def __init__(self, call: Callable[..., torch.fx.Node], device: torch.device) -> None:
        self._call = call
        self._device = str(device)

    def constant(self, value: Number, dtype: DType) -> Torch:
        return value

    def cast(self, value: Torch, dtype: DType) -> Torch:
        return self._call(cast, (value,), {"dtype": dtype.name})

    def expand(self, value: Torch, shape: Shape, dtype: DType) -> Torch:
        tensor = value if isinstance(value, torch.fx.Node) else self._tensor(value, dtype)
        return self._call(torch.broadcast_to, (tensor, shape), {})

    def word(self, name: str, operands: Sequence[Torch], dtype: DType) -> Torch:
        function = getattr(torch, name, None)
        if function is None:
            raise ScalarError(f"torch has no function {name}")
        first = 1 if name == "where" else 0  # there a condition comes first
        values: list[Any] = list(operands)
        number_last = name == "where" or name in WITH_NUMBER
        for i in range(first, len(values)):
            is_number = not isinstance(values[i], torch.fx.Node)
            if is_number and (i == first or not number_last):
                values[i] = self._tensor(values[i], dtype)
        return self._call(function, tuple(values), {})

    def _tensor(self, number: Number, dtype: DType) -> torch.fx.Node:
        kind = {"dtype": TORCH_DTYPES[dtype.name], "device": self._device}
        return self._call(torch.scalar_tensor, (number,), kind)
