"""What goes into a captured graph and comes out of it: parameters, buffers, state, batch."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch.fx
from torch import SymInt, Tensor, nn
from torch.fx.experimental.symbolic_shapes import ShapeEnv
from torch.utils._pytree import tree_flatten_with_path

from tinytorch.errors import TinyTorchError
from tinytorch.fx.capture.autocast import present_autocast
from tinytorch.fx.capture.layouts import is_dense, relaid_like
from tinytorch.fx.diagnosis.reasons import Reason

PARAMETER, BUFFER, STATE = "parameter", "buffer", "optimizer_state"
BATCH, TANGENT, LOSS, OUTPUT = "batch", "tangent", "loss", "output"
GRADIENT, INPUT_GRADIENT = "gradient", "input_gradient"


class CaptureError(TinyTorchError, RuntimeError):
    """A model that cannot be captured, or a captured graph that does not fit what it is given.

    Attributes:
        reason: why, where and what to do, if tracing failed.
        output: what the tracer itself wrote meanwhile.
    """

    reason: Reason | None = None
    output: str = ""

    @classmethod
    def because(cls, reason: Reason) -> CaptureError:
        """The error for a reason."""
        error = cls(str(reason))
        error.reason = reason
        return error


class UnrepeatableError(CaptureError):
    """A model that gives other results for the same inputs, weights and seeds."""


@dataclass(frozen=True)
class Slot:
    """One input or output of a captured graph.

    Attributes:
        role: parameter, buffer, optimizer_state, batch, tangent; loss, output, gradient (of a
            parameter), input_gradient (of a tensor of the batch).
        name: within the role: of a parameter its qualified name.
    """

    role: str
    name: str

    def __str__(self) -> str:
        return f"{self.role} {self.name!r}" if self.name else self.role

    @property
    def identifier(self) -> str:
        """The name of its placeholder, if no other has it; a layer's need not be an identifier."""
        prefix = {PARAMETER: "p", BUFFER: "b", STATE: "s"}.get(self.role, self.role)
        return re.sub(r"\W", "_", f"{prefix}_{self.name}")


def model_slots(model: nn.Module) -> tuple[list[Slot], list[Tensor]]:
    """Parameters and buffers of a model, each once, and their values."""
    slots: list[Slot] = []
    tensors: list[Tensor] = []
    for name, parameter in model.named_parameters():
        slots.append(Slot(PARAMETER, name))
        tensors.append(parameter)
    for name, buffer in model.named_buffers():
        slots.append(Slot(BUFFER, name))
        tensors.append(buffer)
    return slots, tensors


def batch_slots(batch: Any) -> tuple[list[Slot], list[Tensor], Any]:
    """Leaves of a batch, which must be tensors, and the form of their nest.

    Raises:
        CaptureError: a leaf is no tensor.
    """
    leaves, spec = tree_flatten_with_path(batch)
    slots = []
    for path, leaf in leaves:
        name = "".join(map(str, path)).strip("[].'\"").replace("']['", ".") or "0"
        if not isinstance(leaf, Tensor):
            raise CaptureError(
                f"{name} of the batch is {leaf!r}, not a tensor; bind it in the model or the loss"
            )
        slots.append(Slot(BATCH, name))
    return slots, [leaf for _, leaf in leaves], spec


FIXED_SIZE = (
    " (the size was to stay open, and the model takes it for a number: use x.shape[0], not len(x) "
    "or int(), and no layer or shape that fits one size only)"
)


def _known_size(size: int | SymInt) -> int | None:
    """A size of a capture; None if it is open. What was open is known where code has fixed it."""
    return size if isinstance(size, int) else size.node.maybe_as_int()


def bind(
    module: torch.fx.GraphModule, slots: Sequence[Slot], known: dict[Slot, Tensor]
) -> list[Tensor]:
    """The arguments of a captured graph, in order, checked and with the strides of the capture.

    Raises:
        CaptureError: one is missing, or has not the dtype or the sizes of the capture; or open
            sizes are not as the captured function asked for; or autocast is on as it was not.
    """
    flat = []
    for slot, node in zip(slots, module.graph.find_nodes(op="placeholder"), strict=True):
        if slot not in known:
            raise CaptureError(f"there is no {slot.role} {slot.name!r} among the inputs")
        tensor, expected = known[slot], node.meta["val"]
        fits = tensor.ndim == expected.ndim and all(
            _known_size(size) in (None, own)
            for own, size in zip(tensor.shape, expected.shape, strict=True)
        )
        if not fits or tensor.dtype != expected.dtype:
            is_fixed = any(isinstance(n, SymInt) and _known_size(n) for n in expected.shape)
            hint = FIXED_SIZE if is_fixed else ""
            raise CaptureError(
                f"{slot.role} {slot.name!r} is {tensor.dtype}{list(tensor.shape)}, but was "
                f"captured as {expected.dtype}{list(expected.shape)}; capture again{hint}"
            )
        if node.meta.get("is_constant") and not tensor.equal(node.meta["example"]):
            raise CaptureError(
                f"{slot} has other values than in the capture, where "
                + ("it was given as a constant" if slot.role == BATCH else "Python asked for them")
                + "; capture again"
            )
        # kernels may read memory as it was laid out in the capture
        flat.append(relaid_like(tensor, expected) if is_dense(expected) else tensor)
    autocast = present_autocast(flat)
    if autocast and autocast != module.meta.get("autocast"):
        raise CaptureError(
            f"autocast to {autocast[0][1]} is on, and was not when the graph was captured: capture "
            "under torch.autocast, or run outside of it"
        )
    guards = module.meta.get("guards")
    if guards and not ShapeEnv().evaluate_guards_expression(guards, flat):
        for i, slot in enumerate(slots):
            guards = guards.replace(f"L['t{i}']", f"{slot.role}_{slot.name}")
        raise CaptureError(f"the graph was captured for sizes with {guards}; capture again")
    return flat
