"""Magnitude pruning: the smallest weights become zero, at once or while the model is trained.

Zeros stay in the matrix, so nothing gets faster or smaller by them alone: a dense product
multiplies by them, and a sparse one of an unstructured matrix is faster only where nine weights in
ten are gone (`benchmarks/compression.py` shows it). What gets faster is in `channels.py` and
`low_rank.py`.

Source: S. Han and others, "Learning both weights and connections for efficient neural networks",
NeurIPS 2015; M. Zhu, S. Gupta, "To prune, or not to prune", 2017 (the schedule).
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from tinytorch.autograd import no_grad
from tinytorch.dtypes import Array, bool_
from tinytorch.nn import Module, Parameter
from tinytorch.tensor import Tensor
from tinytorch.training.callbacks import Callback

if TYPE_CHECKING:
    from tinytorch.training.trainer import Trainer

SCOPES = ("global", "layer")


def weights(model: Module, names: Collection[str] | None = None) -> dict[str, Parameter]:
    """The matrices and filters of a model by name: its parameters of two dimensions or more.

    Args:
        names: only these.

    Raises:
        ValueError: a name is of none.
    """
    known = {name: p for name, p in model.named_parameters() if p.ndim > 1}
    for name in names or ():
        if name not in known:
            raise ValueError(f"there is no weight {name!r}; there are {', '.join(known)}")
    return {name: p for name, p in known.items() if names is None or name in names}


def sparsity(model: Module) -> dict[str, float]:
    """The share of zeros in each weight of a model (see `weights`), counted.

    >>> import tinytorch
    >>> from tinytorch import nn
    >>> net = nn.Linear(2, 2)
    >>> _ = net.weight.detach().copy_(tinytorch.tensor([[1.0, 0.0], [3.0, 4.0]]))
    >>> sparsity(net)
    {'weight': 0.25}
    """
    return {name: float(np.mean(p.detach().numpy() == 0)) for name, p in weights(model).items()}


def magnitude_masks(
    model: Module, amount: float, *, scope: str = "global", names: Collection[str] | None = None
) -> dict[str, Tensor]:
    """Which weights stay if the share `amount` of them, those of the smallest magnitude, goes.

    Of n weights `round(amount * n)` go; of equal ones the first in order.

    Args:
        scope: "global" compares all weights of the model, so some layers lose more than others;
            "layer" takes the same share of each.
        names: of the weights; by default all that `weights` gives.

    Returns:
        bool tensors by name, False where a weight goes.

    Raises:
        ValueError: amount is not in [0, 1], or another scope; the model has no weights; as
            `weights`.
    """
    if not 0 <= amount <= 1:
        raise ValueError(f"amount is the share of weights that go, from 0 to 1, not {amount}")
    if scope not in SCOPES:
        raise ValueError(f"scope must be 'global' or 'layer', got {scope!r}")
    sizes = {name: np.abs(p.detach().numpy()) for name, p in weights(model, names).items()}
    if not sizes and names is None:
        raise ValueError(
            f"{type(model).__name__} has no weights to prune: no parameter of it has two "
            f"dimensions, as those of layers that are quantized have not"
        )
    if scope == "layer":
        return {
            name: Tensor(_largest(x.ravel(), amount).reshape(x.shape)) for name, x in sizes.items()
        }
    if not sizes:
        return {}
    stays = _largest(np.concatenate([x.ravel() for x in sizes.values()]), amount)
    ends = np.cumsum([x.size for x in sizes.values()])[:-1]
    parts = zip(sizes.items(), np.split(stays, ends), strict=True)
    return {name: Tensor(part.reshape(x.shape)) for (name, x), part in parts}


def _largest(sizes: Array, amount: float) -> Array:
    """True for all but the share `amount` that is smallest."""
    stays = np.ones(sizes.size, bool)
    stays[np.argsort(sizes, kind="stable")[: round(amount * sizes.size)]] = False
    return stays


def apply_masks_(model: Module, masks: Mapping[str, Tensor]) -> None:
    """Set weights to zero where their mask is False, in place.

    Raises:
        ValueError: a mask is of no weight of the model, or not bool and in its shape.
    """
    own = weights(model, masks)
    for name, mask in masks.items():
        if mask.dtype is not bool_ or mask.shape != own[name].shape:
            raise ValueError(
                f"the mask of {name} must be bool {own[name].shape}, not {mask.dtype.name} "
                f"{mask.shape}"
            )
    with no_grad():
        for name, mask in masks.items():
            own[name].masked_fill_(~mask, 0.0)


def prune_magnitude_(
    model: Module, amount: float, *, scope: str = "global", names: Collection[str] | None = None
) -> dict[str, Tensor]:
    """Set the share `amount` of the weights, the smallest, to zero; return the masks.

    Training brings them back to life, unless a `GradualPruning` keeps them down.

    Args and errors are those of `magnitude_masks`.

    >>> import tinytorch
    >>> from tinytorch import nn
    >>> net = nn.Linear(2, 2)
    >>> _ = net.weight.detach().copy_(tinytorch.tensor([[1.0, -2.0], [3.0, 4.0]]))
    >>> _ = prune_magnitude_(net, 0.5)
    >>> net.weight
    Parameter containing:
    tensor([[0., 0.],
            [3., 4.]], requires_grad=True)
    """
    masks = magnitude_masks(model, amount, scope=scope, names=names)
    apply_masks_(model, masks)
    return masks


def cubic_sparsity(
    step: int, final: float, *, begin: int = 0, end: int, initial: float = 0.0
) -> float:
    """final + (initial - final) * (1 - (step - begin) / (end - begin)) ** 3, from begin to end.

    Much goes early, when there is much to spare, and little at the end. Before `begin` it is 0, and
    after `end` it is `final`.

    >>> [round(cubic_sparsity(s, 0.8, end=4), 3) for s in range(5)]
    [0.0, 0.463, 0.7, 0.788, 0.8]

    Source: M. Zhu, S. Gupta, "To prune, or not to prune", 2017, equation 1.
    """
    if step < begin:
        return 0.0
    if step >= end:
        return final
    left = 1 - (step - begin) / (end - begin)
    return final + (initial - final) * left**3


class GradualPruning(Callback):
    """Prunes by magnitude while a `Trainer` trains, along `cubic_sparsity`.

        Trainer(model, loss, optimizer, callbacks=[GradualPruning(0.8, end=500)])

    At every step that prunes, the smallest weights go, those that are gone among them; after every
    other step those that are gone are set to zero again, whatever the optimizer's momentum did.

    Args:
        final: share of the weights that are zero from step `end` on.
        begin, end: steps, counted by `Trainer.step`, between which it prunes.
        every: steps from one pruning to the next.
        initial: share that goes at `begin`.
        scope, names: as for `magnitude_masks`.

    Attributes:
        masks: of the weights that are left, by name; empty before `begin`.

    Raises:
        ValueError: a share is not in [0, 1] or falls, end is not after begin, or every is below 1;
            at `fit`, the training is past the end, and nothing has been pruned.

    Source: as for `cubic_sparsity`.
    """

    def __init__(
        self,
        final: float,
        *,
        begin: int = 0,
        end: int,
        every: int = 10,
        initial: float = 0.0,
        scope: str = "global",
        names: Collection[str] | None = None,
    ) -> None:
        if not 0 <= initial <= final <= 1:
            raise ValueError(f"0 <= initial <= final <= 1 must hold, got {initial} and {final}")
        if not 0 <= begin < end or every < 1:
            raise ValueError(
                f"pruning must end after it begins, and be at most once a step: got begin {begin}, "
                f"end {end}, every {every}"
            )
        if scope not in SCOPES:
            raise ValueError(f"scope must be 'global' or 'layer', got {scope!r}")
        self.final, self.initial = final, initial
        self.begin, self.end, self.every = begin, end, every
        self.scope, self.names = scope, names
        self.masks: dict[str, Tensor] = {}

    def on_fit_start(self, trainer: Trainer) -> None:
        if trainer.step > self.end and not self.masks:
            raise ValueError(
                f"pruning is to end at step {self.end}, and {trainer.step} are done: nothing would "
                f"be pruned. Let begin and end be steps to come"
            )
        if trainer.step == 0:  # at which no step ends
            self._prune(trainer)

    def on_step_end(self, trainer: Trainer, loss: float) -> None:
        self._prune(trainer)

    def on_fit_end(self, trainer: Trainer) -> None:
        if trainer.step < self.end and trainer.epoch >= trainer.epochs:
            trainer.report(
                f"trained for {trainer.step} steps, before pruning ends at step {self.end}: less "
                f"than {self.final:.0%} of the weights are zero"
            )

    def _prune(self, trainer: Trainer) -> None:
        step = trainer.step
        due = step == self.end or (step - self.begin) % self.every == 0
        if self.begin <= step <= self.end and due:
            amount = cubic_sparsity(
                step, self.final, begin=self.begin, end=self.end, initial=self.initial
            )
            self.masks = magnitude_masks(trainer.model, amount, scope=self.scope, names=self.names)
        apply_masks_(trainer.model, self.masks)

    def state_dict(self) -> dict[str, Any]:
        return {"masks": dict(self.masks)}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        self.masks = dict(state["masks"])
