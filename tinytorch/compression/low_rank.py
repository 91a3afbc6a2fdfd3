"""Low rank: a linear layer as two thin ones, by singular values.

A matrix (m, n) of rank r is a product of (m, r) and (r, n), which has r (m + n) numbers in place of
m n. The nearest one of that rank, in the sum of squared differences, keeps the r largest singular
values (C. Eckart, G. Young, "The approximation of one matrix by another of lower rank", 1936).

Source: for networks E. Denton and others, "Exploiting linear structure within convolutional
networks for efficient evaluation", NeurIPS 2014.
"""

from __future__ import annotations

import heapq
import math
from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from tinytorch.compression.replacement import no_place
from tinytorch.dtypes import Array
from tinytorch.nn import Linear, Module, Parameter, Sequential
from tinytorch.tensor import Tensor


@dataclass(frozen=True)
class Factored:
    """A layer's factorization: its rank, error and size.

    Attributes:
        rank: of the product.
        error: ||W - U V|| / ||W||, of the weights, by the Frobenius norm.
    """

    rank: int
    error: float


def factorize(layer: Linear, rank: int) -> Sequential:
    """Two linear layers whose product is nearest to a layer's weight.

    The first, in_features to rank, has no bias, the second, rank to out_features, has the layer's.
    Each gets the root of the singular values, so that both train at a like speed.

    Raises:
        ValueError: the rank is no integer from 1 to min(in_features, out_features), or a weight is
            NaN or infinite.

    >>> from tinytorch import nn
    >>> [tuple(p.shape) for p in factorize(nn.Linear(6, 4), 2).parameters()]
    [(2, 6), (4, 2), (4,)]
    """
    _check_rank("the layer", layer, rank)
    return _factors(layer, *_svd("the layer", layer), rank)


def _check_rank(name: str, layer: Linear, rank: int) -> None:
    most = min(layer.in_features, layer.out_features)
    if not (isinstance(rank, int | np.integer) and 1 <= rank <= most):
        raise ValueError(
            f"the weight of {name} has shape {layer.weight.shape}, so its rank is from 1 to "
            f"{most}, not {rank}"
        )


def _svd(name: str, layer: Linear) -> tuple[Array, Array, Array]:
    """u, s, v with weight = u * s @ v, in float64."""
    weight = np.asarray(layer.weight.detach().numpy(), np.float64)
    if not np.isfinite(weight).all():  # LAPACK may not return
        raise ValueError(f"the weight of {name} is NaN or infinite, and has no singular values")
    return tuple(np.linalg.svd(weight, full_matrices=False))  # type: ignore[return-value]


def _factors(layer: Linear, u: Array, s: Array, v: Array, rank: int) -> Sequential:
    dtype = layer.weight.dtype
    root = np.sqrt(s[:rank])
    first = Linear(layer.in_features, rank, bias=False, dtype=dtype)
    second = Linear(rank, layer.out_features, bias=False, dtype=dtype)
    first.weight = _parameter(root[:, None] * v[:rank], layer)
    second.weight = _parameter(u[:, :rank] * root, layer)
    second.bias = layer.bias
    return Sequential(first, second).train(layer.training)


def _parameter(array: Array, layer: Linear) -> Parameter:
    array = np.ascontiguousarray(array.astype(layer.weight.dtype.dtype))
    return Parameter(Tensor.from_numpy(array), layer.weight.requires_grad)


def low_rank_(
    model: Module,
    *,
    budget: float | None = None,
    error: float | None = None,
    ranks: Mapping[str, int] | None = None,
    skip: Collection[str] = (),
) -> dict[str, Factored]:
    """Replace linear layers of a model by two thin ones, in place.

    A layer that would not have fewer numbers as two is left as it is, and so is one whose weight
    another layer shares; a layer whose weight other code reads (`GPT.head`) belongs into skip. The
    parameters are new ones, so an optimizer is made afterwards.

    Args:
        budget: which part of the numbers in the layers' weights may be left, in all; ranks are
            chosen so that the relative errors, squared and summed over the layers, are least.
        error: the most that a layer's weight may be off, ||W - U V|| / ||W||; each gets the
            smallest rank that keeps to it.
        ranks: the ranks themselves, by the layers' names.
        skip: names of layers that are left as they are.

    Returns:
        For each layer that was replaced its rank and error.

    Raises:
        ValueError: not one of budget, error and ranks is given, or one is out of its range; there
            is no such layer, or none at all, one of ranks is in skip, or the model is one itself;
            the budget does not even allow for rank 1; a weight is NaN or infinite.

    >>> from tinytorch import nn
    >>> net = nn.Sequential(nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 10))
    >>> found = low_rank_(net, ranks={"0": 8})
    >>> found["0"].rank, net[0][0].weight.shape, net[0][1].weight.shape
    (8, (8, 64), (64, 8))
    """
    if sum(x is not None for x in (budget, error, ranks)) != 1:
        raise ValueError("low_rank_ needs one of budget, error and ranks")
    if isinstance(model, Linear):
        raise no_place(model)
    if both := sorted({*skip} & {*(ranks or ())}):
        raise ValueError(f"{', '.join(both)} cannot have a rank and be in skip")
    layers = _linear_layers(model, {*skip, *(ranks or ())})
    layers = {n: x for n, x in layers.items() if n not in skip and (ranks is None or n in ranks)}
    values = {name: _svd(name, layer) for name, layer in layers.items()}
    sizes = {name: layer.weight.shape for name, layer in layers.items()}
    tails = {name: _tail(s) for name, (_, s, _) in values.items()}
    if ranks is not None:
        for name, rank in ranks.items():
            _check_rank(name, layers[name], rank)
        chosen = dict(ranks)
    elif error is not None:
        chosen = ranks_for_error(sizes, tails, error)
    else:
        chosen = ranks_for_budget(sizes, tails, budget or 0.0)
    for name, rank in chosen.items():
        parent, _, child = name.rpartition(".")
        factors = _factors(layers[name], *values[name], rank)
        factors._hooks = layers[name]._hooks
        setattr(model.get_submodule(parent), child, factors)
    return {n: Factored(rank, math.sqrt(float(tails[n][rank]))) for n, rank in chosen.items()}


def _linear_layers(model: Module, named: Collection[str]) -> dict[str, Linear]:
    """The linear layers in one place only, with a weight that nothing else has, by name."""
    modules = list(model.named_modules(remove_duplicate=False))
    places = Counter(id(module) for _, module in modules)
    owners = Counter(id(p) for module in model.modules() for _, p in module.own_parameters())
    layers = {
        name: module
        for name, module in modules
        if name and type(module) is Linear and places[id(module)] == 1
        and owners[id(module.weight)] == 1
    }  # fmt: skip
    for name in named:
        if name not in layers:
            raise ValueError(
                f"there is no linear layer {name!r} that can be exchanged; there are "
                f"{', '.join(layers) or 'none'}"
            )
    if not layers:
        raise ValueError(f"{type(model).__name__} has no linear layer that can be exchanged")
    return layers


def _tail(s: Array) -> Array:
    """For each rank from 0 on, the relative squared error of keeping the first singular values."""
    squares = np.concatenate([np.cumsum(s[::-1] ** 2)[::-1], [0.0]])
    shares: Array = squares / max(squares[0], np.finfo(np.float64).tiny)
    return shares


def _useful(m: int, n: int) -> int:
    """The largest rank at which two factors have fewer numbers than the (m, n) matrix."""
    return (m * n - 1) // (m + n)


def ranks_for_error(
    sizes: Mapping[str, Sequence[int]], tails: Mapping[str, Array], error: float
) -> dict[str, int]:
    """The smallest rank of each layer with at most this relative error, where that saves numbers.

    Args:
        sizes: (m, n) of each layer's weight.
        tails: for each rank from 0 on its relative squared error.

    Raises:
        ValueError: the error is not in [0, 1].
    """
    if not 0 <= error <= 1:
        raise ValueError(f"a relative error is from 0 to 1, not {error}")
    ranks = {name: max(1, int(np.argmax(tail <= error**2))) for name, tail in tails.items()}
    return {name: rank for name, rank in ranks.items() if rank <= _useful(*sizes[name])}


def ranks_for_budget(
    sizes: Mapping[str, Sequence[int]], tails: Mapping[str, Array], budget: float
) -> dict[str, int]:
    """Ranks with the least sum of relative squared errors for a share of the numbers.

    From rank 1 on, the rank grows by one where that lowers the error most for each number that it
    costs. Beyond the last rank that saves anything a layer becomes whole again, and is left out.

    Args:
        sizes, tails: as for `ranks_for_error`.
        budget: share of the numbers in all weights.

    Raises:
        ValueError: the budget is not in (0, 1], or too small for rank 1.
    """
    whole = sum(m * n for m, n in sizes.values())
    most = {name: _useful(*size) for name, size in sizes.items()}
    ranks = {name: min(1, most[name]) for name in sizes}
    cost = {name: m + n if most[name] else m * n for name, (m, n) in sizes.items()}
    left = budget * whole - sum(cost.values())
    if not 0 < budget <= 1 or left < 0:
        raise ValueError(
            f"a budget is a share of the {whole} numbers in the weights, at most 1; rank 1 "
            f"everywhere takes {sum(cost.values()) / max(whole, 1):.3g} of them, and it is {budget}"
        )

    def next_step(name: str) -> tuple[float, str, int]:
        """(error for each number, negative; name; numbers) of growing by one."""
        m, n = sizes[name]
        rank, tail = ranks[name], tails[name]
        grows = rank < most[name]
        price = m + n if grows else m * n - rank * (m + n)
        return -(tail[rank] - (tail[rank + 1] if grows else 0.0)) / price, name, price

    steps = [next_step(name) for name in sizes if most[name]]
    heapq.heapify(steps)
    while steps:
        _, name, price = heapq.heappop(steps)
        if price > left:
            continue
        left -= price
        ranks[name] += 1
        if ranks[name] <= most[name]:
            heapq.heappush(steps, next_step(name))
    return {name: rank for name, rank in ranks.items() if 0 < rank <= most[name]}
