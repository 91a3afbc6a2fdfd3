"""Code that was written for float32, computed in float64: what errors are measured against.

Many models ask for float32 by name, or draw random numbers in the type that they compute in. Under
`in_float64` they get float64, and the random numbers that float32 would have drawn.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor
from torch.overrides import TorchFunctionMode
from torch.utils._pytree import tree_map

#: What draws other numbers in float64 than in float32 (dropout and bernoulli do not).
NEW_DRAWS: frozenset[Callable[..., Any]] = frozenset((torch.rand, torch.randn))
DRAWS_LIKE: frozenset[Callable[..., Any]] = frozenset((torch.rand_like, torch.randn_like))
DRAWS_INTO: frozenset[Callable[..., Any]] = frozenset(
    (Tensor.uniform_, Tensor.normal_, Tensor.exponential_)
)


@contextmanager
def in_float64() -> Iterator[None]:
    """Give float64 to what asks for float32, inside the block; draws are those of float32."""
    before = torch.get_default_dtype()
    torch.set_default_dtype(torch.float64)
    try:
        with _Float64():
            yield
    finally:
        torch.set_default_dtype(before)


def doubled(nest: Any) -> Any:
    """A nest of tensors with its float32 in float64."""
    return tree_map(
        lambda x: x.double() if isinstance(x, Tensor) and x.dtype == torch.float32 else x, nest
    )


class _Float64(TorchFunctionMode):
    def __torch_function__(
        self, func: Any, types: Any, args: Any = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        kwargs = kwargs or {}
        if func in NEW_DRAWS:
            kind = kwargs.get("dtype")
            drawn = torch.float32 if kind in (None, torch.float64) else kind
            return doubled(func(*args, **{**kwargs, "dtype": drawn}))
        if func in DRAWS_LIKE:
            return doubled(func(args[0].float(), *args[1:], **kwargs))
        if func in DRAWS_INTO:
            return args[0].copy_(func(args[0].float(), *args[1:], **kwargs))
        if func in (torch._grouped_mm, torch.nn.functional.grouped_mm):
            return _grouped_mm(*args, **kwargs)
        if func is Tensor.float:
            func = Tensor.double
        return func(*_wide(args), **_wide(kwargs))


def _wide(nest: Any) -> Any:
    return tree_map(lambda x: torch.float64 if x is torch.float32 else x, nest)


def _grouped_mm(a: Tensor, b: Tensor, *, offs: Tensor, **options: Any) -> Tensor:
    """Rows of `a` up to each offset, times that matrix of `b`; PyTorch has no kernel in float64."""
    ends = offs.tolist()
    parts = [a[i:j] @ matrix for i, j, matrix in zip([0, *ends], ends, b, strict=False)]
    return torch.cat([*parts, a.new_zeros(len(a) - ends[-1], b.shape[-1])])
