"""`Optimizer`: parameters in groups, state kept for each, and one step over all of them."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping
from difflib import get_close_matches
from typing import Any, ClassVar

import numpy as np

from tinytorch.autograd import enable_grad, no_grad
from tinytorch.dispatch import Input, live_scalar, wrap
from tinytorch.dtypes import DType, float32, tensor_meta
from tinytorch.errors import AutogradError, DTypeError, ShapeError
from tinytorch.nn.hooks import Hook, RemovableHandle
from tinytorch.optim import state
from tinytorch.optim.hooks import StepHooks, with_hooks
from tinytorch.state import no_mode_active, optimizer_mode
from tinytorch.tensor import Tensor

Group = dict[str, Any]
State = dict[str, Any]
Parameters = Iterable[Tensor] | Iterable[tuple[str, Tensor]] | Iterable[Mapping[str, Any]]

#: Options of PyTorch's that choose how a step is computed, and not what: taken, without effect.
EXECUTION_HINTS = frozenset({"foreach", "fused", "capturable"})
#: Names that are tried for options, and would be kept in a group without effect.
MISSPELLED = {
    "learning_rate": "lr", "lrate": "lr", "wd": "weight_decay", "decay": "weight_decay",
    "beta1": "betas", "beta2": "betas", "epsilon": "eps",
}  # fmt: skip


class Optimizer:
    """Changes parameters in place, by their gradients.

    A subclass has the arithmetic of one parameter, `update`, and may have that of a group at once,
    `update_group`; or it writes `step` itself, as programs for PyTorch do, with `self.param_groups`
    and `self.state`.

        optimizer = SGD(model.parameters(), lr=0.1)
        optimizer.zero_grad()
        loss(model(x), y).backward()
        optimizer.step()

    Args:
        params: the tensors to change, or groups of them: dicts with the key "params" and options
            that differ from `defaults`.
        defaults: the options of a group that does not say otherwise.
        hints: options of PyTorch's that choose how it computes (`foreach`, `fused`, `capturable`):
            taken, without effect.

    Attributes:
        param_groups: dicts of the options in force, and "params", the list of tensors.
        state: for each parameter that has been updated what the optimizer remembers of it.

    Raises:
        ValueError: no parameters, one that occurs twice, a misspelled option or one out of range.
        TypeError: a parameter is not a floating-point tensor; an unknown keyword.
        AutogradError: a parameter was computed from others.
    """

    #: Names in the state of a parameter: those it always has once updated, those it may have, and
    #: those of them that are 0-d. None in place of the first: a subclass that does not say.
    required_state: ClassVar[tuple[str, ...] | None] = None
    optional_state: ClassVar[tuple[str, ...]] = ()
    scalar_state: ClassVar[tuple[str, ...]] = ("step",)
    #: Options that must be at least 0.
    not_negative: ClassVar[tuple[str, ...]] = ("lr", "weight_decay", "momentum", "eps")
    _step_hooks: StepHooks | None = None

    def __init__(
        self, params: Parameters, defaults: Group, hints: Mapping[str, Any] | None = None
    ) -> None:
        for name, value in (hints or {}).items():
            self._check_hint(name, value, defaults)
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

    def update(self, p: Tensor, g: Tensor, state: State, group: Group) -> None:
        """Change p, and its state, in place. `g` is its gradient. Nothing is being recorded."""
        raise NotImplementedError(
            f"{type(self).__name__} must define update(p, g, state, group), or step()"
        )

    def __init_subclass__(cls) -> None:
        if "update" in vars(cls) and "update_group" not in vars(cls):
            cls.update_group = Optimizer.update_group  # type: ignore[method-assign]
        if "step" in vars(cls):
            cls.step = with_hooks(cls.step)  # type: ignore[method-assign]

    def update_group(self, params: list[Tensor], group: Group) -> None:
        """Change parameters of one group and dtype, which have gradients: here one by one."""
        for p in params:
            assert p.grad is not None
            self.update(p, p.grad, self.state[p], group)

    def _check_hint(self, name: str, value: Any, defaults: Group) -> None:
        if name == "differentiable" and value:
            raise ValueError(
                "differentiable=True: a step changes parameters in place, without history; write "
                "the update as p = p - lr * g to differentiate through it"
            )
        if name not in EXECUTION_HINTS and name != "differentiable":
            raise TypeError(
                f"{type(self).__name__} got an unexpected keyword {name!r}; its options are "
                f"{', '.join(defaults)}"
            )

    def check_options(self, group: Group) -> None:
        """Raise ValueError for options out of range."""
        for name in self.not_negative:
            if not group.get(name, 0) >= 0:
                raise ValueError(f"{name} must be at least 0, got {group[name]}")
        betas = group.get("betas", (0, 0))
        if len(betas) != 2 or not all(0 <= beta < 1 for beta in betas):
            raise ValueError(f"betas must be two numbers in [0, 1), got {betas}")

    # -- the step ----------------------------------------------------------------------------------

    @with_hooks
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
        with optimizer_mode():
            for group in self.param_groups:
                for params in _with_gradients(group["params"]):
                    self.update_group(params, group)
        return loss

    def register_step_pre_hook(self, hook: Hook) -> RemovableHandle:
        """Call `hook(optimizer, args, kwargs)` before each step; `args` begins with the optimizer.

        What the hook returns, (args, kwargs), is what the step is called with.

        >>> from tinytorch import ones
        >>> from tinytorch.optim import SGD
        >>> optimizer = SGD([ones(2, requires_grad=True)], lr=0.1)
        >>> with optimizer.register_step_pre_hook(lambda *_: print("now")):
        ...     optimizer.step()
        now
        """
        return self._own_hooks().before.add(hook)

    def register_step_post_hook(self, hook: Hook) -> RemovableHandle:
        """Call `hook(optimizer, args, kwargs)` after each step."""
        return self._own_hooks().after.add(hook)

    def _own_hooks(self) -> StepHooks:
        if self._step_hooks is None:
            self._step_hooks = StepHooks()
        return self._step_hooks

    def __getstate__(self) -> dict[str, Any]:
        """All but the hooks: a copy has none."""
        return {name: value for name, value in vars(self).items() if name != "_step_hooks"}

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

    def zero_grad(self, set_to_none: bool = True) -> None:
        """Drop all gradients, or, with `set_to_none=False`, set them to zeros in place."""
        for p in self._params():
            if set_to_none:
                p.grad = None
            elif p.grad is not None:
                with no_grad():
                    p.grad.zero_()

    # -- groups and state --------------------------------------------------------------------------

    def add_param_group(self, param_group: Mapping[str, Any]) -> None:
        """Take in more parameters, with options of their own.

        Args:
            param_group: {"params": tensors or (name, tensor) pairs, option: value, ...}. Options
                that are not in it are those of `defaults`. What is no option of this optimizer, say
                {"name": "decoder"}, is kept in the group.

        Raises:
            ValueError: a tensor is in a group already, or twice in this one; an option is out of
                range (`check_options`) or misspelled (`_check_extra_option`).
            TypeError, DTypeError, AutogradError: `_check_parameter` refuses one of the tensors, or
                `_listed` a set, whose order changes. In all cases nothing was taken in.
        """
        new = {**self.defaults, **param_group, **_listed(param_group["params"])}
        for name in param_group.keys() - self.defaults.keys() - {"params"}:
            self._check_extra_option(name)
        self.check_options(new)
        known = {id(p) for p in self._params()}
        for i, p in enumerate(new["params"]):
            _check_parameter(i, p)
            if id(p) in known:
                raise ValueError(f"parameter {i} (shape {p.shape}) is given twice")
            known.add(id(p))
        self.param_groups.append(new)

    def _check_extra_option(self, name: str) -> None:
        """Raise ValueError for an option written wrong, which would have no effect."""
        if name in EXECUTION_HINTS | {"differentiable"}:
            return
        similar = get_close_matches(name, self.defaults, 1, 0.7)
        meant = MISSPELLED.get(name) or next(iter(similar), "")
        if meant in self.defaults:
            raise ValueError(
                f"{type(self).__name__} has no option {name}; it has {', '.join(self.defaults)}. "
                f"Did you mean {meant}?"
            )

    def state_dict(self) -> dict[str, Any]:
        """The state of the optimizer, with parameters numbered in order, as in PyTorch.

        Returns:
            {"state": {number: {name: value, ...}, ...}, "param_groups": [{option: value, ...,
            "params": [number, ...]}, ...]}. A parameter that was never updated has no state. The
            tensors are the optimizer's own, not copies.
        """
        return state.state_dict(self)

    def load_state_dict(self, state_dict: Mapping[str, Any]) -> None:
        """Take over options and (copies of) state, as `state_dict` returned them.

        The state of PyTorch's optimizer of the same name fits; its tensors become TinyTorch's.

        Raises:
            ValueError: they do not fit these parameters and this optimizer; the message lists all
                that is wrong, and nothing was changed.
        """
        state.load_state_dict(self, state_dict)

    def _params(self) -> list[Tensor]:
        return [p for group in self.param_groups for p in group["params"]]

    def __repr__(self) -> str:
        lines = [
            f"  {len(group['params'])} parameters, "
            + ", ".join(f"{name}={v!r}" for name, v in group.items() if name != "params")
            for group in self.param_groups
        ]
        return "\n".join([f"{type(self).__name__}(", *lines, ")"])


def _with_gradients(params: Iterable[Tensor]) -> Iterable[list[Tensor]]:
    """The parameters that have gradients, those of each dtype in a list of their own."""
    lists: dict[DType, list[Tensor]] = {}
    for p in params:
        if p.grad is not None:
            lists.setdefault(p.meta.dtype, []).append(p)
    return lists.values()


def learning_rate(group: Group, p: Tensor) -> Input:
    """The group's lr, which schedules change: a traced step reads it at every call."""
    if no_mode_active():
        return float(group["lr"])
    return live_scalar(lambda: float(group["lr"]), p.dtype, key=(id(group), "lr"))


def penalized(p: Tensor, g: Tensor, group: Group) -> Tensor:
    """The gradient to go down along: of -f under `maximize`, plus weight_decay p."""
    if group["maximize"]:
        g = -g
    return g + p * group["weight_decay"] if group["weight_decay"] else g


def decay_decoupled(p: Tensor, group: Group) -> None:
    """p <- (1 - lr weight_decay) p"""
    if group["weight_decay"]:
        p.mul_(1 - learning_rate(group, p) * group["weight_decay"])


def buffer_of(state: State, name: str, p: Tensor, fill: float = 0.0) -> Tensor:
    """The tensor of this name in p's state. At first it is made, full of `fill`, and kept there.

    Args:
        state: of the parameter p; changed if it has no tensor of this name.

    Returns:
        The tensor in the state itself, in the shape and dtype of p: what is written into it is
        remembered.

    Raises:
        DTypeError: the parameter has another shape or dtype than the tensor, since it was
            converted.
    """
    buffer: Tensor | None = state.get(name)
    if buffer is None:
        # Not made by an op: a tracer shall meet it as an input, not as a result.
        buffer = state[name] = wrap(np.full(p.shape, fill, p.dtype.dtype), p.meta)
    elif buffer.meta is not p.meta and (buffer.shape, buffer.dtype) != (p.shape, p.dtype):
        raise DTypeError(
            f"{name} is {buffer.meta}, but its parameter has become {p.meta}; make the optimizer "
            f"after converting the model"
        )
    return buffer


def scalar_of(state: State, name: str, fill: float = 0.0) -> Tensor:
    """The 0-d float32 tensor of this name in a state; at first `fill`."""
    scalar: Tensor | None = state.get(name)
    if scalar is None:
        scalar = state[name] = wrap(np.array(fill, np.float32), tensor_meta((), float32))
    return scalar


def count_step(state: State) -> Tensor:
    """Add one to the "step" of a state. Returns it: the number of this step, 0-d float64.

    A tensor, so that a traced step counts; in float64, as 1 - beta^t would lose digits.
    """
    step = scalar_of(state, "step")
    step.add_(1)
    return step.double()


def _listed(params: Any) -> Group:
    """{"params": a list of tensors}, and "param_names" if `params` are (name, tensor) pairs."""
    if isinstance(params, set | frozenset):
        raise TypeError("parameters of a group must be in order, which a set is not: pass a list")
    given = [params] if isinstance(params, Tensor) else list(params)
    if given and all(isinstance(p, tuple) and len(p) == 2 for p in given):
        names, tensors = zip(*given, strict=True)
        return {"params": list(tensors), "param_names": list(names)}
    return {"params": given}


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
