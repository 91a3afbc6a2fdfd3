"""Parameters whose memory another tensor of the model has too.

A captured step takes parameters and gives new ones. What else is in their memory would keep the old
values, where in eager training it has the new ones.
"""

from __future__ import annotations

from collections.abc import Mapping

import torch
import torch.fx
from torch import Tensor

from tinytorch.fx.capture.slots import CaptureError
from tinytorch.fx.diagnosis.reasons import CHECKPOINT_OFF

CONSTANT = "the constant "
FIX = "use the parameter itself in both places, or a copy"
FIX_CONSTANT = (
    "read the parameter through its module only, not from a list or a closure. Layers that run "
    f"again in the backward read it after the call: {CHECKPOINT_OFF}"
)


def check_unshared(tensors: Mapping[str, Tensor], trained: Mapping[str, Tensor]) -> None:
    """Check that each element of a trained parameter belongs to no other tensor.

    Args:
        tensors: parameters, buffers and constants by name, the trained ones among them.
        trained: those that a step changes.

    Raises:
        CaptureError: two have elements in common; the message names them.

    >>> weight = torch.ones(3)
    >>> check_unshared({"w": weight, "old": weight[:1]}, {"w": weight})  # doctest: +ELLIPSIS
    Traceback (most recent call last):
    ...
    tinytorch.fx.capture.slots.CaptureError: old shares memory with w: ...
    """
    owners: dict[int, dict[str, Tensor]] = {}
    for name, tensor in {**trained, **tensors}.items():  # trained ones first
        owners.setdefault(tensor.untyped_storage().data_ptr(), {})[name] = tensor
    for address, group in owners.items():
        if address == 0 or len(group) == 1 or trained.keys().isdisjoint(group):
            continue
        unit = min(t.element_size() for t in group.values())
        nbytes = max(t.untyped_storage().nbytes() for t in group.values())
        marks = torch.zeros(nbytes // unit, dtype=torch.bool)
        for name, tensor in group.items():
            size = tensor.element_size() // unit
            strides = [n * size for n in tensor.stride()]
            elements = marks.as_strided(tensor.shape, strides, tensor.storage_offset() * size)
            if elements.any():
                others = ", ".join(other for other in group if other != name)
                raise CaptureError(
                    f"{name} shares memory with {others}: its new values would not be seen there; "
                    f"{FIX_CONSTANT if name.startswith(CONSTANT) else FIX}"
                )
            if name in trained:
                elements.fill_(True)


def held_tensors(module: torch.fx.GraphModule) -> dict[str, Tensor]:
    """The tensors that a captured graph has as constants."""
    names = {str(node.target) for node in module.graph.find_nodes(op="get_attr")}
    found = {name: getattr(module, name, None) for name in names}
    return {f"{CONSTANT}{n}": x for n, x in found.items() if isinstance(x, Tensor)}


def check_no_hooks(trained: Mapping[str, Tensor]) -> None:
    """Check that no hook changes a gradient.

    Raises:
        CaptureError: a parameter has a hook.
    """
    for name, tensor in trained.items():
        if tensor._backward_hooks or tensor._post_accumulate_grad_hooks:
            raise CaptureError(f"the hooks of {name}'s gradient are not captured; remove them")


def check_dense(name: str, gradient: Tensor) -> None:
    """Check that a gradient is a dense tensor.

    Raises:
        CaptureError: it is a sparse one.
    """
    if gradient.layout != torch.strided:
        raise CaptureError(
            f"the gradient of {name} is sparse, which is not captured: make the layer with "
            "sparse=False (nn.Embedding, nn.EmbeddingBag)"
        )
