"""SGD, Adam and AdamW as functions: parameters, gradients and state in, new ones out.

They are the fused kernels of torch, one node for all parameters of a group, so their numbers are to
the last bit those of `torch.optim.SGD`, `Adam`, `AdamW` with `fused=True`.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass, field
from functools import cache
from typing import Any

import torch
from torch import Tensor, nn

from tinytorch.fx.capture.slots import CaptureError

aten = torch.ops.aten
OPTIMIZERS: dict[str, type[torch.optim.Optimizer]] = {
    "sgd": torch.optim.SGD, "adam": torch.optim.Adam, "adamw": torch.optim.AdamW,
}  # fmt: skip
MOMENTS = {"sgd": ("momentum_buffer",), "adam": ("exp_avg", "exp_avg_sq"),
           "adamw": ("exp_avg", "exp_avg_sq")}  # fmt: skip
ADAM = ("betas", "eps", "weight_decay", "maximize", "decoupled_weight_decay")
SETTINGS = {"sgd": ("momentum", "weight_decay", "nesterov", "maximize"), "adam": ADAM,
            "adamw": ADAM}  # fmt: skip


@dataclass
class Group:
    """Parameters that are updated with the same settings.

    Attributes:
        names: of the parameters.
        options: settings of the torch optimizer: lr, weight_decay, ...
    """

    names: list[str]
    options: dict[str, Any]


@dataclass
class OptimizerRule:
    """The update of parameters by one kind of optimizer.

    Attributes:
        kind: "sgd", "adam" or "adamw".
        groups: of parameters.
    """

    kind: str
    groups: list[Group] = field(default_factory=list)

    @staticmethod
    def of(
        optimizer: str | torch.optim.Optimizer, model: nn.Module, **options: Any
    ) -> OptimizerRule:
        """The rule of an optimizer: a name with options, or an instance with its own.

        Raises:
            CaptureError: an optimizer, a setting or a dtype for which there is no functional
                kernel.
        """
        if isinstance(optimizer, str):
            if optimizer not in OPTIMIZERS:
                known = ", ".join(OPTIMIZERS)
                raise CaptureError(f"there is no optimizer {optimizer!r}; there are {known}")
            trained = [p for p in model.parameters() if p.requires_grad]
            optimizer = OPTIMIZERS[optimizer](trained, **options)
        elif options:
            raise CaptureError(
                f"the optimizer has its own settings; leave out {', '.join(options)}"
            )
        kinds = {cls: kind for kind, cls in OPTIMIZERS.items()}
        if type(optimizer) not in kinds:
            raise CaptureError(f"{type(optimizer).__name__} is none of {', '.join(OPTIMIZERS)}")
        if optimizer._optimizer_step_pre_hooks or optimizer._optimizer_step_post_hooks:
            raise CaptureError("hooks of the optimizer's step are not captured; remove them")
        names = {id(p): name for name, p in model.named_parameters()}
        rule = OptimizerRule(kinds[type(optimizer)])
        for group in optimizer.param_groups:
            settings = {k: v for k, v in group.items() if k != "params"}
            _check(rule.kind, settings)
            foreign = [tuple(p.shape) for p in group["params"] if id(p) not in names]
            if foreign:
                raise CaptureError(
                    f"the optimizer has parameters that are not the model's, of shapes {foreign}"
                )
            if rule.kind == "sgd":
                _check_kernel(group["params"])
            rule.groups.append(Group([names[id(p)] for p in group["params"]], settings))
        return rule

    def moments(self, group: Group) -> tuple[str, ...]:
        """Names of what is kept for each parameter of a group."""
        if self.kind == "sgd" and not group.options["momentum"]:
            return ()
        return MOMENTS[self.kind]

    @property
    def counts_steps(self) -> bool:
        """Whether there is a step counter."""
        return self.kind != "sgd"

    def check_same(self, other: OptimizerRule, trained: Collection[str]) -> None:
        """Raises CaptureError for an optimizer whose update another one's step is not: all but
        learning rates and which parameters it has that are not trained is the same.

        Args:
            trained: names of those that get a gradient.
        """
        if (other.kind, len(other.groups)) != (self.kind, len(self.groups)):
            raise CaptureError(
                f"the step was captured for {self.kind} with {len(self.groups)} groups, not for "
                f"{other.kind} with {len(other.groups)}; capture again"
            )
        for i, (mine, its) in enumerate(zip(self.groups, other.groups, strict=True)):
            for name in SETTINGS[self.kind]:
                old, new = mine.options.get(name), its.options.get(name)
                if old != new:
                    raise CaptureError(
                        f"group {i} has {name}={new}, and the step was captured for {name}={old}; "
                        "capture again"
                    )
        own, given = self._group_of(), other._group_of()
        for name in trained:
            old, new = (
                f"in group {groups[name]}" if name in groups else "in no group"
                for groups in (own, given)
            )
            if old != new:
                raise CaptureError(
                    f"parameter {name!r} is {new} of the optimizer, and was {old} in the capture; "
                    "capture again"
                )

    def _group_of(self) -> dict[str, int]:
        return {name: i for i, group in enumerate(self.groups) for name in group.names}

    def update(
        self,
        group: Group,
        parameters: Sequence[Tensor],
        gradients: Sequence[Tensor],
        moments: Sequence[Sequence[Tensor]],
        steps: Sequence[Tensor],
        lr: Tensor,
        found_inf: Tensor | None = None,
    ) -> tuple[list[Tensor], list[list[Tensor]]]:
        """New parameters and new moments.

        Args:
            moments: for each of the names of `moments` one tensor a parameter.
            steps: for each parameter the counter, this step included; none if there is none.
            lr: the learning rate of the group.
            found_inf: if it is 1, everything stays as it is.
        """
        o, lists = group.options, [list(m) for m in moments]
        if self.kind == "sgd":
            # a buffer of zeros gives on the first step what no buffer gives
            new, _, buffers = aten._fused_sgd.tensor_lr(
                list(parameters), list(gradients), lists[0] if lists else [],
                lr=lr, momentum=o["momentum"], dampening=o["dampening"],
                weight_decay=o["weight_decay"], nesterov=o["nesterov"], maximize=o["maximize"],
                is_first_step=False, found_inf=found_inf,
            )  # fmt: skip
            return list(new), [list(buffers)] if lists else []
        is_decoupled = o.get("decoupled_weight_decay", self.kind == "adamw")
        kernel = (aten._fused_adamw if is_decoupled else aten._fused_adam).tensor_lr
        beta1, beta2 = o["betas"]
        new, _, first, second, _ = kernel(
            list(parameters), list(gradients), *lists, [], list(steps),
            lr=lr, beta1=beta1, beta2=beta2, weight_decay=o["weight_decay"], eps=o["eps"],
            amsgrad=False, maximize=o["maximize"], found_inf=found_inf,
        )  # fmt: skip
        return list(new), [list(first), list(second)]


def setting(value: float | Tensor, device: torch.device) -> Tensor:
    """A number that a schedule may change, as an input of a graph: on the CPU in double precision,
    as Python has it and the fused kernels read it."""
    dtype = torch.float64 if device.type == "cpu" else torch.float32
    return torch.tensor(float(value), dtype=dtype, device=device)


def _check_kernel(parameters: Sequence[Tensor]) -> None:
    """Raises CaptureError for dtypes of which the fused SGD of this PyTorch updates a part only."""
    for p in parameters:
        if p.requires_grad and not _is_updated_whole(p.dtype, p.device):
            raise CaptureError(
                f"the fused SGD of this PyTorch leaves most elements of {p.dtype} parameters on "
                f"{p.device} as they are: keep them in float32 and compute under torch.autocast, "
                "or use adamw"
            )


@cache
def _is_updated_whole(dtype: torch.dtype, device: torch.device) -> bool:
    """Whether the kernel of SGD takes 1 from every 1 of a tensor that fills vector registers."""
    ones = torch.ones(64, dtype=dtype, device=device)
    new, *_ = aten._fused_sgd.tensor_lr(
        [ones], [ones], [], lr=setting(1.0, device), momentum=0.0, dampening=0.0, weight_decay=0.0,
        nesterov=False, maximize=False, is_first_step=False,
    )  # fmt: skip
    return not new[0].any()


def _check(kind: str, settings: dict[str, Any]) -> None:
    """Raises CaptureError for what the functional kernels do not do."""
    if settings.get("amsgrad"):
        raise CaptureError("amsgrad=True is not captured; use amsgrad=False")
    if settings.get("differentiable"):
        raise CaptureError("differentiable=True is not captured; use differentiable=False")
    if kind == "sgd" and settings["momentum"] and settings["dampening"]:
        raise CaptureError(
            f"dampening={settings['dampening']} differs on the first step, which one graph for all "
            "steps cannot; use dampening=0"
        )
