"""`state_dict` and `load_state_dict`: a module's values by name, out and in."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from tinytorch.autograd import no_grad
from tinytorch.errors import StateDictError
from tinytorch.nn.uninitialized import UninitializedBuffer, UninitializedParameter
from tinytorch.tensor import Tensor

UNINITIALIZED = (UninitializedParameter, UninitializedBuffer)

if TYPE_CHECKING:
    from tinytorch.nn.module import Module


class IncompatibleKeys(NamedTuple):
    """Names that a load with `strict=False` passed over."""

    missing_keys: list[str]
    unexpected_keys: list[str]

    def __repr__(self) -> str:
        if not any(self):
            return "<All keys matched successfully>"
        missing, unexpected = self
        return f"IncompatibleKeys(missing_keys={missing}, unexpected_keys={unexpected})"


def _entries(module: Module) -> dict[str, Tensor]:
    """The tensors themselves; one that is shared is there under each of its names."""
    entries: dict[str, Tensor] = {}
    for path, part in module.named_modules(remove_duplicate=False):
        for name, tensor in (*part.own_parameters(), *part.own_buffers(persistent=True)):
            entries[f"{path}.{name}" if path else name] = tensor
    return entries


def state_dict(module: Module) -> dict[str, Tensor]:
    """All parameters and persistent buffers by dotted name, without history, sharing memory.

    Raises:
        StateDictError: one belongs to a lazy layer that has not been called, and has no values.
    """
    entries = _entries(module)
    for name, tensor in entries.items():
        if isinstance(tensor, UNINITIALIZED):
            raise StateDictError(
                f"{type(module).__name__}: {name} has no values yet; call the model once, so that "
                f"its lazy layers learn their sizes"
            )
    return {name: tensor.detach() for name, tensor in entries.items()}


def load_state_dict(module: Module, state: Mapping[str, Any], strict: bool) -> IncompatibleKeys:
    """Copy `state` into the module, all of it or nothing.

    Raises:
        StateDictError: the two do not fit.
    """
    entries = _entries(module)
    missing = [name for name in entries if name not in state]
    unexpected = [name for name in state if name not in entries]
    shared = [name for name in entries if name in state]
    problems = [p for name in shared if (p := _mismatch(name, entries[name], state[name]))]
    if strict:
        problems += [f"missing: {name} {entries[name].shape}" for name in missing]
        problems += [f"unexpected: {name}" for name in unexpected]
    if problems:
        raise StateDictError(
            f"the state does not fit {type(module).__name__}; nothing was loaded:\n  "
            + "\n  ".join(problems)
        )
    with no_grad():
        for name in shared:
            if isinstance(own := entries[name], UNINITIALIZED):
                own.materialize(state[name].shape)
            entries[name].copy_(state[name])
    return IncompatibleKeys(missing, unexpected)


def _mismatch(name: str, own: Tensor, given: Any) -> str | None:
    """Why `given` cannot be copied into `own`, if so."""
    if not isinstance(given, (Tensor, np.ndarray)):
        return f"wrong type: {name} is {type(given).__name__}, must be a Tensor or NumPy array"
    if given.shape != own.shape and not isinstance(own, UNINITIALIZED):
        return f"wrong shape: {name} is {given.shape}, must be {own.shape}"
    floating = np.dtype(given.dtype).kind == "f"
    if floating and not own.dtype.is_floating_point:
        return f"wrong dtype: {name} is {np.dtype(given.dtype)}, must be {own.dtype.name}"
    return None
