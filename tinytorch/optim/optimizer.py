"""`Optimizer`: parameters in groups, state kept for each, and one step over all of them."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping
from typing import Any, ClassVar

import numpy as np

from tinytorch.autograd import enable_grad, no_grad
from tinytorch.dispatch import Input, live_scalar, wrap
from tinytorch.dtypes import Array
from tinytorch.errors import AutogradError, DTypeError, ShapeError
from tinytorch.history import write_clock
from tinytorch.state import current_backend, no_mode_active, phase
from tinytorch.tensor import Tensor

Group = dict[str, Any]
State = dict[str, Any]
Parameters = Iterable[Tensor] | Iterable[Mapping[str, Any]]
Kernel = Callable[..., None]


class Optimizer(ABC):
    """Changes parameters in place, by their gradients.

    A subclass has the arithmetic: `update`, in Tensor ops, and, where backends may have a fused
    kernel for it, `kernel_name` and `update_fused`.

        optimizer = SGD(model.parameters(), lr=0.1)
        optimizer.zero_grad()
        loss(model(x), y).backward()
        optimizer.step()

    Args:
        params: the tensors to change, or groups of them: dicts with the key "params" and options
            that differ from `defaults`.
        defaults: the options of a group that does not say otherwise.

    Attributes:
        param_groups: dicts of the options in force, and "params", the list of tensors.
        state: for each parameter that has been updated what the optimizer remembers of it.

    Raises:
        ValueError: no parameters, one that occurs twice, an unknown option or one out of range.
        TypeError: a parameter is not a floating-point tensor.
        AutogradError: a parameter was computed from others.
    """

    #: Names in the state of a parameter: those it always has once updated, those it may have.
    required_state: ClassVar[tuple[str, ...]] = ()
    optional_state: ClassVar[tuple[str, ...]] = ()

    def __init__(self, params: Parameters, defaults: Group) -> None:
        self.defaults = defaults
        self.param_groups: list[Group] = []
        self.state: defaultdict[Tensor, State] = defaultdict(dict)
        if isinstance(params, Tensor):
            raise TypeError("an optimizer takes several parameters; for one tensor t write [t]")
        given: list[Any] = list(params)
        if not given:
            raise ValueError("an optimizer needs at least one parameter, got none")
        for group in given if isinstance(given[0], Mapping) else [{"params": given}]:
            self.add_param_group(group)

    # -- the arithmetic, by subclasses -------------------------------------------------------------

    @abstractmethod
    def update(self, p: Tensor, g: Tensor, state: State, group: Group) -> None:
        """Change p, and its state, in place. `g` is its gradient. Nothing is being recorded."""

    def kernel_name(self, group: Group) -> str | None:
        """The fused kernel that does `update` with the options of this group; None if none can."""
        return None

    def update_fused(self, kernel: Kernel, p: Tensor, g: Array, state: State, group: Group) -> None:
        """`update` by one call of a kernel; `g` is C-contiguous and of p's shape and dtype."""
        raise NotImplementedError(f"{type(self).__name__} names a kernel but does not call it")

    def check_options(self, group: Group) -> None:
        """Raise ValueError for options out of range."""
        if not group["lr"] >= 0:
            raise ValueError(f"lr must be at least 0, got {group['lr']}")
        if not group["weight_decay"] >= 0:
            raise ValueError(f"weight_decay must be at least 0, got {group['weight_decay']}")

    # -- the step ----------------------------------------------------------------------------------

    def step(self, closure: Callable[[], Tensor] | None = None) -> Tensor | None:
        """Update every parameter that has a gradient.

        Args:
            closure: computes the loss, and the gradients, first.

        Returns:
            What the closure returned, if there is one.

        Raises:
            ShapeError, DTypeError: a gradient is not as its parameter; then none was changed.
        """
        loss = None
        if closure is not None:
            with enable_grad():
                loss = closure()
        self._check_gradients()
        for group in self.param_groups:
            kernel = self._find_kernel(group)
            for p in group["params"]:
                g = p.grad
                if g is None:
                    continue
                if kernel is None or not p._data.flags.carray:
                    with phase("optimizer"), no_grad():
                        self.update(p, g, self.state[p], group)
                    continue
                array = g._data
                if not array.flags.c_contiguous:
                    array = np.ascontiguousarray(array)
                self.update_fused(kernel, p, array, self.state[p], group)
                write_clock.write(p._data)
        return loss

    def _find_kernel(self, group: Group) -> Kernel | None:
        """A fused kernel, if nothing listens that would miss the ops."""
        name = self.kernel_name(group)
        if name is None or not no_mode_active():
            return None
        return getattr(current_backend(), name, None)

    def _check_gradients(self) -> None:
        for group in self.param_groups:
            for p in group["params"]:
                g = p.grad
                if g is None or g.meta is p.meta:
                    continue
                if g.shape != p.shape:
                    raise ShapeError(
                        f"the gradient of a parameter of shape {p.shape} has shape {g.shape}; "
                        f"set p.grad to a tensor of the parameter's shape, or to None"
                    )
                if g.dtype is not p.dtype:
                    raise DTypeError(
                        f"the gradient of a {p.dtype.name} parameter of shape {p.shape} is "
                        f"{g.dtype.name}; set p.grad = p.grad.to(p.dtype)"
                    )

    def zero_grad(self) -> None:
        """Forget all gradients: `p.grad` becomes None."""
        for group in self.param_groups:
            for p in group["params"]:
                p.grad = None

    # -- groups and state --------------------------------------------------------------------------

    def add_param_group(self, group: Mapping[str, Any]) -> None:
        """Take in more parameters, with options of their own.

        Args:
            group: {"params": tensors, option: value, ...}

        Raises:
            As the constructor; then nothing was taken in.
        """
        params = group["params"]
        params = [params] if isinstance(params, Tensor) else list(params)
        unknown = sorted(group.keys() - self.defaults.keys() - {"params"})
        if unknown:
            raise ValueError(
                f"{type(self).__name__} has no option {', '.join(unknown)}; it has "
                f"{', '.join(self.defaults)}"
            )
        new = {**self.defaults, **group, "params": params}
        self.check_options(new)
        known = {id(p) for old in self.param_groups for p in old["params"]}
        for i, p in enumerate(params):
            _check_parameter(i, p)
            if id(p) in known:
                raise ValueError(f"parameter {i} (shape {p.shape}) is given twice")
            known.add(id(p))
        self.param_groups.append(new)

    def state_dict(self) -> dict[str, Any]:
        """Everything but the parameters, with those numbered in order.

        Returns:
            {"param_groups": [{option: value, ..., "params": [number, ...]}, ...],
            "state": [{name: tensor or int, ...}, ...]}, where state i is parameter i's: empty if it
            was never updated. The tensors are the optimizer's own, not copies.
        """
        numbers = {id(p): i for i, p in enumerate(self._params())}
        groups = [
            {**group, "params": [numbers[id(p)] for p in group["params"]]}
            for group in self.param_groups
        ]
        return {
            "param_groups": groups,
            "state": [dict(self.state.get(p, {})) for p in self._params()],
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Take over options and (copies of) state, as `state_dict` returned them.

        Raises:
            ValueError: they do not fit these parameters and this optimizer; the message lists all
                that is wrong, and nothing was changed.
        """
        wrong = self._misfits(state)
        if wrong:
            raise ValueError(
                f"this state does not fit this {type(self).__name__}, which stays as it was:\n  "
                + "\n  ".join(wrong)
            )
        for group, saved in zip(self.param_groups, state["param_groups"], strict=True):
            for name, value in saved.items():
                if name != "params":  # JSON knows no tuples
                    group[name] = tuple(value) if isinstance(value, list) else value
        self.state.clear()
        for p, saved in zip(self._params(), state["state"], strict=True):
            if saved:
                self.state[p] = {
                    name: value.detach().clone() if isinstance(value, Tensor) else value
                    for name, value in saved.items()
                }

    def _misfits(self, state: Mapping[str, Any]) -> list[str]:
        """What is wrong with a state, in sentences."""
        lacking = {"param_groups", "state"} - state.keys()
        if lacking:
            return [f"it has no {', '.join(sorted(lacking))}"]
        sizes = [len(group["params"]) for group in self.param_groups]
        given = [len(group.get("params", ())) for group in state["param_groups"]]
        if sizes != given:
            return [f"groups of {given} parameters, expected groups of {sizes}"]
        if len(state["state"]) != sum(sizes):
            return [f"the state of {len(state['state'])} parameters, expected {sum(sizes)}"]
        wrong = []
        for i, group in enumerate(state["param_groups"]):
            missing = sorted(self.defaults.keys() - group.keys())
            unknown = sorted(group.keys() - self.defaults.keys() - {"params", "initial_lr"})
            if missing or unknown:
                wrong.append(f"group {i}: missing options {missing}, unknown options {unknown}")
        for i, (p, saved) in enumerate(zip(self._params(), state["state"], strict=True)):
            wrong += [f"parameter {i}: {what}" for what in self._state_misfits(p, saved)]
        return wrong

    def _state_misfits(self, p: Tensor, saved: State) -> list[str]:
        if not saved:
            return []
        missing = sorted(set(self.required_state) - saved.keys())
        unknown = sorted(saved.keys() - {*self.required_state, *self.optional_state})
        wrong = [f"missing state {missing}, unknown state {unknown}"] if missing or unknown else []
        for name, value in saved.items():
            if name == "step":
                if not isinstance(value, int):
                    wrong.append(f"step is {value!r}, expected a whole number")
            elif not isinstance(value, Tensor):
                wrong.append(f"{name} is {value!r:.60}, expected a tensor")
            elif (value.shape, value.dtype) != (p.shape, p.dtype):
                wrong.append(f"{name} is {value.meta}, expected {p.meta}")
        return wrong

    def _params(self) -> list[Tensor]:
        return [p for group in self.param_groups for p in group["params"]]

    def __repr__(self) -> str:
        lines = [
            f"  {len(group['params'])} parameters, "
            + ", ".join(f"{name}={v!r}" for name, v in group.items() if name != "params")
            for group in self.param_groups
        ]
        return "\n".join([f"{type(self).__name__}(", *lines, ")"])


def learning_rate(group: Group, p: Tensor) -> Input:
    """The group's lr, which schedules change: a traced step reads it at every call."""
    return live_scalar(lambda: float(group["lr"]), p.dtype, key=(id(group), "lr"))


def zeros_for(p: Tensor) -> Tensor:
    """Zeros like p. Not made by an op: a tracer shall meet them as an input, not as a result."""
    return wrap(np.zeros(p.shape, p.dtype.dtype), p.meta)


def buffer_of(state: State, name: str, p: Tensor) -> Tensor:
    """The tensor of this name in p's state; zeros at first.

    Raises:
        DTypeError: the parameter has been converted since.
    """
    buffer: Tensor | None = state.get(name)
    if buffer is None:
        buffer = state[name] = zeros_for(p)
    elif buffer.meta is not p.meta and (buffer.shape, buffer.dtype) != (p.shape, p.dtype):
        raise DTypeError(
            f"{name} is {buffer.meta}, but its parameter has become {p.meta}; make the optimizer "
            f"after converting the model"
        )
    return buffer


def _check_parameter(number: int, p: Any) -> None:
    if not isinstance(p, Tensor):
        raise TypeError(f"parameter {number} is not a tensor but {type(p).__name__}")
    if not p.dtype.is_floating_point:
        raise DTypeError(
            f"parameter {number} (shape {p.shape}) is {p.dtype.name}; only floats can be optimized"
        )
    if p.history is not None:
        raise AutogradError(
            f"parameter {number} (shape {p.shape}) was computed from other tensors; optimize those"
        )
