"""What a training loop does with gradients between the backward and the update, in a graph.

    scaled loss, backward, accumulation, unscaling, clipping, update (left out on inf), new scale

in the order and in the arithmetic of `GradScaler` and `torch.nn.utils.clip_grad_norm_`, with all
that a schedule may change as inputs of the graph.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.utils._foreach_utils import _device_has_foreach_support

from tinytorch.fx.capture.optimizers import setting
from tinytorch.fx.capture.slots import GRADIENT, OUTPUT, STATE, CaptureError, Slot

aten = torch.ops.aten
MAX_NORM, CLIP_VALUE = Slot(STATE, "max_norm"), Slot(STATE, "clip_value")
SCALE, TRACKER = Slot(STATE, "scale"), Slot(STATE, "growth_tracker")
NORM = Slot(OUTPUT, "total_norm")
EPSILON = 1e-6  # that clip_grad_norm_ adds to the norm


@dataclass
class Prepared:
    """Gradients as the optimizer gets them.

    Attributes:
        gradients: by name of the parameter.
        results: what else the graph gives: the norm before clipping, the new scale.
        found_inf: 1 if the update must be left out, else 0; None if it never is.
    """

    gradients: dict[str, Tensor]
    results: dict[Slot, Tensor]
    found_inf: Tensor | None


@dataclass(frozen=True)
class GradientRule:
    """The change of gradients before the update, such as clipping.

    Attributes:
        max_norm: of all gradients together, as of `clip_grad_norm_`; None: not clipped so.
        norm_type: of that norm.
        clip_value: the largest absolute value, as of `clip_grad_value_`; None: not clipped so.
        scaler: the state of a `GradScaler`; None: the loss is not scaled.
        accumulates: gradients are added to those in the state.
    """

    max_norm: float | None = None
    norm_type: float = 2.0
    clip_value: float | None = None
    scaler: dict[str, Any] | None = None
    accumulates: bool = False

    def __post_init__(self) -> None:
        if self.max_norm is not None and self.clip_value is not None:
            raise CaptureError(
                f"max_norm={self.max_norm} and clip_value={self.clip_value}: gradients are clipped "
                "by their norm or by value; give one of them"
            )

    @property
    def settings(self) -> list[Slot]:
        """The inputs that `TrainingStep.run` may set."""
        chosen = {MAX_NORM: self.max_norm, CLIP_VALUE: self.clip_value, SCALE: self.scaler}
        return [slot for slot, value in chosen.items() if value is not None]

    def inputs(
        self, trained: Mapping[str, Tensor], device: torch.device, *, updates: bool
    ) -> dict[Slot, Tensor]:
        """Inputs of the graph, with their values in the first step.

        Args:
            trained: parameters by name.
            updates: the graph updates them; else it only accumulates.
        """
        values: dict[Slot, Tensor] = {}
        if self.max_norm is not None and updates:
            values[MAX_NORM] = setting(self.max_norm, device)
        if self.clip_value is not None and updates:
            values[CLIP_VALUE] = setting(self.clip_value, device)
        if self.scaler is not None:
            values |= scaler_inputs(self.scaler, device)
            if not updates:
                del values[TRACKER]
        if self.accumulates:
            for name, parameter in trained.items():
                values[Slot(GRADIENT, name)] = torch.zeros_like(parameter).detach()
        return values

    def scaled(self, loss: Tensor, given: dict[Slot, Tensor]) -> Tensor:
        """The loss whose gradients are taken."""
        return loss if self.scaler is None else loss * given[SCALE]

    def accumulated(
        self, gradients: dict[str, Tensor], given: dict[Slot, Tensor]
    ) -> dict[str, Tensor]:
        """The gradients of this batch and of those before."""
        if not self.accumulates:
            return gradients
        return {name: given[Slot(GRADIENT, name)] + g for name, g in gradients.items()}

    def prepared(self, gradients: dict[str, Tensor], given: dict[Slot, Tensor]) -> Prepared:
        """Gradients for the update.

        Raises:
            CaptureError: a scaler would have to unscale float16 gradients.
        """
        names, values = list(gradients), list(gradients.values())
        results: dict[Slot, Tensor] = {}
        found_inf = None
        if self.scaler is not None:
            values, found_inf = unscaled(gradients, given[SCALE])
            results[SCALE], results[TRACKER] = aten._amp_update_scale.default(
                given[SCALE], given[TRACKER], found_inf, self.scaler["growth_factor"],
                self.scaler["backoff_factor"], self.scaler["growth_interval"],
            )  # fmt: skip
        if self.max_norm is not None:
            values, results[NORM] = clipped_by_norm(values, given[MAX_NORM], self.norm_type)
        if self.clip_value is not None:
            values = clipped_by_value(values, given[CLIP_VALUE])
        if self.accumulates:  # the next sum begins at zero
            results |= {Slot(GRADIENT, n): torch.zeros_like(g) for n, g in gradients.items()}
        return Prepared(dict(zip(names, values, strict=True)), results, found_inf)


def scaler_inputs(state: dict[str, Any], device: torch.device) -> dict[Slot, Tensor]:
    """Scale and growth tracker of a `GradScaler`, from its `state_dict`."""
    return {
        SCALE: torch.tensor(state["scale"], dtype=torch.float32, device=device),
        TRACKER: torch.tensor(state["_growth_tracker"], dtype=torch.int32, device=device),
    }


def unscaled(gradients: dict[str, Tensor], scale: Tensor) -> tuple[list[Tensor], Tensor]:
    """Gradients divided by the scale, and whether one is inf or NaN; as `GradScaler.unscale_`."""
    halves = [name for name, g in gradients.items() if g.dtype == torch.float16]
    if halves:
        raise CaptureError(
            f"the gradient of {halves[0]!r} is float16, which a GradScaler does not unscale: keep "
            "the parameters in float32 and compute in float16 under torch.autocast"
        )
    is_mps = scale.device.type == "mps"  # it has no float64
    inverse = scale.reciprocal() if is_mps else scale.double().reciprocal().float()
    found = torch.zeros((), dtype=torch.float32, device=scale.device)
    values = dict(gradients)
    for names in _by_kind(gradients):
        new, found = aten._amp_foreach_non_finite_check_and_unscale.default(
            [gradients[name] for name in names], found, inverse
        )
        values |= dict(zip(names, new, strict=True))
    return list(values.values()), found


def _by_kind(gradients: dict[str, Tensor]) -> Iterable[list[str]]:
    """Names of gradients that one kernel takes together."""
    groups: dict[Any, list[str]] = {}
    for name, gradient in gradients.items():
        groups.setdefault((gradient.device, gradient.dtype), []).append(name)
    return groups.values()


def clipped_by_norm(
    gradients: list[Tensor], max_norm: Tensor, norm_type: float
) -> tuple[list[Tensor], Tensor]:
    """Gradients whose norm, all together, is at most this; and the norm before.

    gradient * min(1, max_norm / (norm + 1e-6)), in the arithmetic of `clip_grad_norm_`.
    """
    if not gradients:
        return [], torch.zeros((), device=max_norm.device)
    at_once = all(_device_has_foreach_support(g.device) for g in gradients)
    norm = torch.nn.utils.get_total_norm(gradients, norm_type, foreach=at_once)
    # a number divided by a tensor is the reciprocal times the number, in float32 if not in float64
    kind = torch.float64 if norm.dtype == torch.float64 else torch.float32
    inverse = (norm + EPSILON).reciprocal()
    factor = (inverse.to(kind) * max_norm.to(kind)).to(norm.dtype).clamp(max=1.0)
    new = torch._foreach_mul(gradients, factor)
    return [a.to(g.dtype) for a, g in zip(new, gradients, strict=True)], norm


def clipped_by_value(gradients: list[Tensor], largest: Tensor) -> list[Tensor]:
    """Gradients between plus and minus the largest value, as `clip_grad_value_` makes them."""
    bounds = {dtype: largest.to(dtype) for dtype in {g.dtype for g in gradients}}
    return [g.clamp(-bounds[g.dtype], bounds[g.dtype]) for g in gradients]
