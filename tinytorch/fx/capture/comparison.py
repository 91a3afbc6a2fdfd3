"""How the results of a captured graph may differ from eager's: by rounding, and no more."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

from tinytorch.fx.capture.slots import PARAMETER, STATE, Slot
from tinytorch.graph.passes.manager import TOLERANCES

#: Adam divides a gradient by its own size: below rounding, the sign of an update means nothing.
NOISE = 1e-4


def first_difference(found: Mapping[Slot, Any], expected: Mapping[Slot, Any]) -> str | None:
    """The first result that differs from eager's beyond rounding, and how; None if none does.

    What is rounding is measured against the largest value among the results of the same role.
    """
    scales: dict[str, float] = {}
    for slot, value in expected.items():
        scales[slot.role] = max(scales.get(slot.role, 0.0), largest(value))
    for slot, value in expected.items():
        other = found[slot]
        moment = expected.get(Slot(STATE, f"exp_avg.{slot.name}"))
        if slot.role == PARAMETER and moment is not None and other.shape == value.shape:
            size = moment.abs()
            other = torch.where(size > NOISE * size.amax(), other, value) if size.numel() else other
        why = difference(other, value, scales[slot.role])
        if why is not None:
            return f"{slot} {why}"
    return None


def difference(found: Any, expected: Any, scale: float | None = None) -> str | None:
    """The difference of two values beyond rounding, as the end of a sentence; None if not.

    Args:
        scale: the value to whose rounding absolute errors are compared; by default the largest.

    >>> difference(torch.ones(2), torch.tensor([1.0, 1.5]))
    'differs by up to 0.5'
    >>> difference(torch.tensor([-torch.inf]), torch.tensor([-torch.inf]))
    """
    if not isinstance(found, Tensor) or not isinstance(expected, Tensor):
        return None if found is expected or found == expected else f"is {found!r:.60}"
    if found.shape != expected.shape or found.dtype != expected.dtype:
        kinds = [f"{x.dtype}{list(x.shape)}" for x in (found, expected)]
        return f"is {kinds[0]}, and eager's is {kinds[1]}"
    a, b = found.detach().cpu(), expected.detach().cpu()
    rtol, atol = tolerance(b, largest(b) if scale is None else scale)
    if a.equal(b) or torch.allclose(a, b, rtol, atol, equal_nan=True):
        return None
    kind = torch.complex128 if a.is_complex() else torch.float64
    gap = (a.to(kind) - b.to(kind)).abs()
    same = (a == b) | (a.isnan() & b.isnan())  # infinities of the same sign are no difference
    return f"differs by up to {gap.masked_fill(same, 0.0).max().item():.3g}"


def tolerance(expected: Tensor, scale: float) -> tuple[float, float]:
    """(rtol, atol) of what is no more than rounding."""
    if not is_inexact(expected):
        return 0.0, 0.0
    kind = str(expected.real.dtype if expected.is_complex() else expected.dtype)
    rtol, atol = TOLERANCES.get(kind.removeprefix("torch."), TOLERANCES["float16"])
    return rtol, atol * max(scale, 1e-6)


def largest(value: Any) -> float:
    """The largest absolute value of a tensor that is finite; 0 of anything else."""
    if not isinstance(value, Tensor) or not is_inexact(value):
        return 0.0
    sizes = value.detach().abs()
    sizes = sizes[sizes.isfinite()]
    return float(sizes.max()) if sizes.numel() else 0.0


def is_inexact(tensor: Tensor) -> bool:
    """Whether values are rounded, real or complex: only such a tensor can have a gradient."""
    return tensor.is_floating_point() or tensor.is_complex()
