"""The state of an optimizer, out and in, in the form that PyTorch's optimizers give theirs."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from tinytorch.creation import tensor
from tinytorch.dtypes import float32
from tinytorch.tensor import Tensor

if TYPE_CHECKING:
    from tinytorch.optim.optimizer import Optimizer

#: Entries of a group that say how PyTorch computes, or what a schedule remembers there.
_FOREIGN = {
    "foreach", "fused", "capturable", "differentiable", "initial_lr", "param_names",
}  # fmt: skip


def state_dict(optimizer: Optimizer) -> dict[str, Any]:
    """The state and the options of an optimizer, with its parameters numbered in order.

    Returns:
        {"state": {number: {name: value, ...}, ...}, "param_groups": [{option: value, ..., "params":
        [number, ...]}, ...]}. A parameter that was never updated has no state. The values are the
        optimizer's own, not copies; the dictionaries are new.
    """
    params = optimizer._params()
    numbers = {id(p): i for i, p in enumerate(params)}
    return {
        "state": {i: dict(s) for i, p in enumerate(params) if (s := optimizer.state.get(p))},
        "param_groups": [
            {**group, "params": [numbers[id(p)] for p in group["params"]]}
            for group in optimizer.param_groups
        ],
    }


def load_state_dict(optimizer: Optimizer, state: Mapping[str, Any]) -> None:
    """`Optimizer.load_state_dict`."""
    params = optimizer._params()
    wrong = _structure_mismatches(optimizer, state)
    saved = {} if wrong else _by_number(state["state"])
    wrong = wrong or _group_mismatches(optimizer, state)
    for i, entries in sorted(saved.items()):
        if not 0 <= i < len(params):
            wrong.append(f"the state of parameter {i}, but there are {len(params)}")
            continue
        wrong += [f"parameter {i}: {w}" for w in _state_mismatches(optimizer, params[i], entries)]
    if wrong:
        raise ValueError(
            f"this state does not fit this {type(optimizer).__name__}, which stays as it was:\n  "
            + "\n  ".join(wrong)
        )
    for group, given in zip(optimizer.param_groups, state["param_groups"], strict=True):
        for name, value in given.items():
            if name != "params":  # JSON knows no tuples
                group[name] = tuple(value) if isinstance(value, list) else value
    optimizer.state.clear()
    for i, entries in saved.items():
        optimizer.state[params[i]] = entries


def _by_number(saved: Any) -> dict[int, dict[str, Any]]:
    """Copies of the states by the parameter's number; JSON makes the numbers strings."""
    numbered = saved.items() if isinstance(saved, Mapping) else enumerate(saved)
    return {
        int(i): {name: _copied(name, value) for name, value in entries.items() if value is not None}
        for i, entries in numbered
        if entries
    }


def _copied(name: str, value: Any) -> Any:
    """A copy with tensors of ours; arrays and PyTorch's tensors become such."""
    if isinstance(value, Tensor):
        return value.detach().clone()
    if isinstance(value, (list, tuple)):
        return [_copied(name, v) for v in value]
    if isinstance(value, Mapping):
        return {key: _copied(name, v) for key, v in value.items()}
    if name == "step" and type(value) in (int, float):
        return tensor(float(value), dtype=float32)
    return tensor(np.asarray(value)) if hasattr(value, "__array__") else value


def _structure_mismatches(optimizer: Optimizer, state: Mapping[str, Any]) -> list[str]:
    """Why a state cannot even be compared with this optimizer, in a sentence."""
    lacking = {"param_groups", "state"} - state.keys()
    if lacking:
        return [f"it has no {', '.join(sorted(lacking))}"]
    sizes = [len(group["params"]) for group in optimizer.param_groups]
    given = [len(group.get("params", ())) for group in state["param_groups"]]
    if sizes != given:
        return [f"groups of {given} parameters, expected groups of {sizes}"]
    return []


def _group_mismatches(optimizer: Optimizer, state: Mapping[str, Any]) -> list[str]:
    """What is wrong with the options of a state, in sentences.

    Options that the optimizer lacks are a program's own (`lr_scale`) or those of a schedule
    (PyTorch's OneCycleLR keeps `max_lr` there), and are wrong only where others are missing.
    """
    wrong = []
    for i, (own, group) in enumerate(
        zip(optimizer.param_groups, state["param_groups"], strict=True)
    ):
        missing = sorted(optimizer.defaults.keys() - group.keys())
        unknown = sorted(group.keys() - own.keys() - _FOREIGN)
        if missing:
            wrong.append(f"group {i}: missing options {missing}, unknown options {unknown}")
        decoupled = "decoupled_weight_decay"
        if decoupled in own and group.get(decoupled, own[decoupled]) != own[decoupled]:
            wrong.append(f"group {i}: {decoupled} is {group[decoupled]}, expected {own[decoupled]}")
    return wrong


def _state_mismatches(optimizer: Optimizer, p: Tensor, saved: Mapping[str, Any]) -> list[str]:
    """What is wrong with the state of p. A user's optimizer that does not say may keep anything."""
    if optimizer.required_state is None:
        return []
    required = set(optimizer.required_state)
    missing = sorted(required - saved.keys())
    unknown = sorted(saved.keys() - required - {*optimizer.optional_state})
    wrong = [f"missing state {missing}, unknown state {unknown}"] if missing or unknown else []
    for name, value in saved.items():
        scalar = name in optimizer.scalar_state
        expected = ((), float32) if scalar else (p.shape, p.dtype)
        if not isinstance(value, Tensor):
            wrong.append(f"{name} is {value!r:.60}, expected a tensor")
        elif (value.shape, value.dtype) != expected:
            wrong.append(f"{name} is {value.meta}, expected {'float32[]' if scalar else p.meta}")
    return wrong
