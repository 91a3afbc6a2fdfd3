"""`state_dict` and `load_state_dict`: a module's values by name, out and in."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from tinytorch.autograd import no_grad
from tinytorch.creation import from_numpy
from tinytorch.dtypes import as_dtype
from tinytorch.errors import StateDictError
from tinytorch.nn.parameter import Parameter
from tinytorch.nn.uninitialized import UninitializedBuffer, UninitializedParameter
from tinytorch.tensor import Tensor

UNINITIALIZED = (UninitializedParameter, UninitializedBuffer)
EXTRA = "_extra_state"  # the name of what `get_extra_state` gives

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


class Loading:
    """One `load_state_dict` under way: what the modules expect, and what is to be written."""

    def __init__(self, assign: bool) -> None:
        self.assign = assign
        self.expected: dict[str, str] = {}  # the name and what it is
        self.later: list[Callable[[], Any]] = []
        self.undo: list[tuple[Tensor, Tensor]] = []
        self.asked: set[str] = set()  # prefixes of the modules whose names are in `expected`

    def __call__(self, module: Module, name: str, own: Tensor, given: Any, at_once: bool) -> None:
        """Write `given` into a tensor of the module, or, with assign, take it in its place."""
        if self.assign:
            self.later.append(lambda: _assign(module, name, own, given))
        elif at_once and not isinstance(own, UNINITIALIZED):
            self.undo.append((own, own.detach().clone()))
            _copy(own, given)
        else:
            self.later.append(lambda: _copy(own, given))

    def take_back(self) -> None:
        """Give back their values to the tensors that were written at once."""
        with no_grad():
            for own, before in reversed(self.undo):
                own.copy_(before)


def _copy(own: Tensor, given: Any) -> None:
    if isinstance(own, UNINITIALIZED):
        own.materialize(given.shape)
    with no_grad():
        own.copy_(given)


def _assign(module: Module, name: str, own: Tensor, given: Any) -> None:
    given = given if isinstance(given, Tensor) else from_numpy(given)
    if isinstance(own, Parameter):
        given = given if isinstance(given, Parameter) else Parameter(given.detach())
        given.requires_grad_(own.requires_grad)
    setattr(module, name, given)


def _own(module: Module) -> list[tuple[str, Tensor]]:
    return [*module.own_parameters(), *module.own_buffers(persistent=True)]


def _overridden(module: Module, base: type[Module], name: str) -> bool:
    return getattr(type(module), name) is not getattr(base, name)


def save_own(
    module: Module, base: type[Module], destination: dict[str, Any], prefix: str, keep_vars: bool
) -> None:
    """Put the tensors of this very module, and its extra state, into `destination`.

    Args:
        base: `Module` itself, to see what a class overrides.
    """
    for name, tensor in _own(module):
        plain = keep_vars or isinstance(tensor, UNINITIALIZED)
        destination[prefix + name] = tensor if plain else tensor.detach()
    if _overridden(module, base, "get_extra_state"):
        destination[prefix + EXTRA] = module.get_extra_state()


def state_dict(
    module: Module, destination: dict[str, Any] | None, prefix: str, keep_vars: bool
) -> dict[str, Any]:
    """All parameters and persistent buffers by dotted name, without history, sharing memory.

    Raises:
        StateDictError: one belongs to a lazy layer that has not been called, and has no values.
        ValueError: a module contains itself.
    """
    outermost = destination is None
    found: dict[str, Any] = {} if destination is None else destination
    if outermost:
        deque(module.named_modules(remove_duplicate=False), 0)  # which raises, and the calls do not
    module._save_to_state_dict(found, prefix, keep_vars)
    for name, child in module.own_modules():
        child.state_dict(destination=found, prefix=f"{prefix}{name}.", keep_vars=keep_vars)
    for name, tensor in found.items() if outermost else ():
        if isinstance(tensor, UNINITIALIZED):
            raise StateDictError(
                f"{type(module).__name__}: {name} has no values yet; call the model once, so that "
                f"its lazy layers learn their sizes"
            )
    return found


def load_own(
    module: Module,
    base: type[Module],
    state: dict[str, Any],
    prefix: str,
    metadata: Mapping[str, Any],
    missing: list[str],
    errors: list[str],
) -> None:
    """Plan to write what `state` has for this very module into it; `base` as for `save_own`."""
    loading: Loading = metadata["loading"]
    loading.asked.add(prefix)
    at_once = _overridden(module, base, "_load_from_state_dict")  # which may read what is loaded
    for name, own in _own(module):
        key = prefix + name
        loading.expected[key] = str(own.shape)
        if key not in state:
            is_old = any(prefix + other in state for other, _ in _own(module))
            if not (is_old and name in getattr(module, "left_out_of_old_states", ())):
                missing.append(key)
        elif problem := _mismatch(key, own, state[key], name in module._codes):
            errors.append(problem)
        else:
            loading(module, name, own, state[key], at_once)
    if _overridden(module, base, "set_extra_state"):
        key = prefix + EXTRA
        loading.expected[key] = "for set_extra_state"
        if key not in state:
            missing.append(key)
        else:
            loading.later.append(lambda: module.set_extra_state(state[key]))


def load_state_dict(
    module: Module, state: Mapping[str, Any], strict: bool, assign: bool
) -> IncompatibleKeys:
    """Copy `state` into the module, all of it or nothing.

    Raises:
        StateDictError: the two do not fit.
        TypeError: the state is no mapping.
    """
    if not isinstance(state, Mapping):
        raise TypeError(f"a state is a dict of tensors by name, not a {type(state).__name__}")
    given, loading = dict(state), Loading(assign)
    metadata = {"assign_to_params_buffers": assign, "loading": loading}
    missing: list[str] = []
    unexpected: list[str] = []
    problems: list[str] = []
    silent = []
    try:
        for path, part in module.named_modules(remove_duplicate=False):
            prefix = f"{path}." if path else ""
            part._load_from_state_dict(given, prefix, metadata, True, missing, unexpected, problems)
            if prefix not in loading.asked:
                silent.append(prefix)
        unexpected += [
            n for n in given if n not in loading.expected and not n.startswith((*silent,))
        ]
        if strict:
            problems += [f"missing: {name} {loading.expected.get(name, '')}" for name in missing]
            problems += [f"unexpected: {name}" for name in unexpected]
        if problems:
            raise StateDictError(
                f"the state does not fit {type(module).__name__}; nothing was loaded:\n  "
                + "\n  ".join(problems)
            )
    except BaseException:
        loading.take_back()
        raise
    for write in loading.later:
        write()
    return IncompatibleKeys(missing, unexpected)


def _mismatch(name: str, own: Tensor, given: Any, is_code: bool) -> str | None:
    """Why `given` cannot be copied into `own`, if so; a code has a meaning in its dtype only."""
    if not isinstance(given, (Tensor, np.ndarray)):
        return f"wrong type: {name} is {type(given).__name__}, must be a Tensor or NumPy array"
    if given.shape != own.shape and not isinstance(own, UNINITIALIZED):
        return f"wrong shape: {name} is {given.shape}, must be {own.shape}"
    dtype = as_dtype(given.dtype)
    is_rounded = dtype.is_floating_point and not own.dtype.is_floating_point
    if is_rounded or (is_code and dtype is not own.dtype):
        return f"wrong dtype: {name} is {dtype.name}, must be {own.dtype.name}"
    return None
