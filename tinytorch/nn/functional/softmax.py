"""Softmax and its relatives: they work along a dimension, which the caller should name."""

from __future__ import annotations

import warnings
from typing import Any

from tinytorch.creation import ones_like, zeros_like
from tinytorch.functions.conversion import converted
from tinytorch.functions.elementwise import log
from tinytorch.random import Generator, rand_like
from tinytorch.replay import must_run
from tinytorch.tensor import Tensor


def softmax(x: Tensor, dim: int | None = None, *, dtype: Any = None) -> Tensor:
    """exp(x) / sum(exp(x)) along `dim`.

    Args:
        dim: None, with a warning, for dimension 0 of 1-d and 3-d tensors and 1 of others.
        dtype: to convert x to first.
    """
    return converted(x, dtype).softmax(class_dim("softmax", x, dim))


def log_softmax(x: Tensor, dim: int | None = None, *, dtype: Any = None) -> Tensor:
    """log(softmax(x)) along `dim`, computed without overflow; arguments as for `softmax`."""
    return converted(x, dtype).log_softmax(class_dim("log_softmax", x, dim))


def softmin(x: Tensor, dim: int | None = None, *, dtype: Any = None) -> Tensor:
    """softmax(-x)"""
    return softmax(-x, class_dim("softmin", x, dim), dtype=dtype)


def class_dim(name: str, x: Tensor, dim: int | None) -> int:
    """`dim`, or for None the dimension that PyTorch chooses, with its warning."""
    if dim is not None:
        return dim
    must_run("a warning is given")
    dim = 0 if x.ndim in (0, 1, 3) else 1
    warnings.warn(
        f"Implicit dimension choice for {name} has been deprecated. Change the call to include "
        f"dim={dim} as an argument.",
        stacklevel=3,
    )
    return dim


def gumbel_softmax(
    logits: Tensor,
    tau: float = 1,
    hard: bool = False,
    eps: float = 1e-10,
    dim: int = -1,
    *,
    generator: Generator | None = None,
) -> Tensor:
    """A differentiable sample of a class: softmax((logits + noise) / tau) along `dim`.

    Args:
        tau: temperature; the smaller, the closer to one-hot.
        hard: give exactly one-hot results, with the gradient of the soft ones.
        eps: changes nothing; PyTorch takes it too.
        generator: of the random numbers.

    Source: E. Jang, S. Gu, B. Poole, "Categorical reparameterization with Gumbel-softmax", 2016.
    """
    gumbel = -log(-log(1.0 - rand_like(logits, generator=generator)))  # of numbers in (0, 1]
    soft = softmax((logits + gumbel.clip(max=1e4)) / tau, dim)
    if not hard:
        return soft
    index = soft.detach().argmax(dim, keepdim=True)
    chosen = zeros_like(soft).scatter_add(dim, index, ones_like(soft).narrow(dim, 0, 1))
    return chosen - soft.detach() + soft
