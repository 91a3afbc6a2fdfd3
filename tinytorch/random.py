"""Random numbers: a `Generator` that is passed in, or the default one set by `manual_seed`.

A generator hands out seeds; the `uniform` op turns a seed into numbers. So the numbers are the same
on every backend and in a replayed graph, and the state of a generator is two integers.
"""

from __future__ import annotations

import os
import threading
from typing import Any

import numpy as np

from tinytorch import ops
from tinytorch.dispatch import apply, live_seed
from tinytorch.dtypes import DEFAULT_FLOAT, as_dtype
from tinytorch.functions.dims import shape_arguments
from tinytorch.tensor import Tensor

_MASK = (1 << 64) - 1


class Generator:
    """A source of seeds, itself made from one seed.

    >>> g = Generator(0)
    >>> a, b = g.draw_seed(), g.draw_seed()
    >>> a == b, Generator(0).draw_seed() == a
    (False, True)
    """

    def __init__(self, seed: int | None = None) -> None:
        self._lock = threading.Lock()
        self.manual_seed(int.from_bytes(os.urandom(8)) >> 1 if seed is None else seed)

    def manual_seed(self, seed: int) -> Generator:
        """Start over from `seed`."""
        with self._lock:
            self.seed = int(seed)
            self._drawn = 0
        return self

    def draw_seed(self) -> int:
        """The next seed: an int64 that no earlier call since `manual_seed` returned.

        Source: G. Steele, D. Lea, C. Flood, "Fast splittable pseudorandom number generators", 2014
        (SplitMix64).
        """
        with self._lock:
            self._drawn += 1
            z = (self.seed * 0xD1342543DE82EF95 + self._drawn * 0x9E3779B97F4A7C15) & _MASK
        # the finalizer of MurmurHash3 (variant 13 of D. Stafford, 2011), so that neighbours differ
        z = ((z ^ (z >> 30)) * 0xBF58476D1CE4E5B9) & _MASK
        z = ((z ^ (z >> 27)) * 0x94D049BB133111EB) & _MASK
        z ^= z >> 31
        return z - (1 << 64) if z >> 63 else z

    def get_state(self) -> dict[str, int]:
        """What `set_state` needs to continue from here."""
        with self._lock:
            return {"seed": self.seed, "drawn": self._drawn}

    def set_state(self, state: dict[str, int]) -> None:
        """Continue from where `get_state` was taken.

        >>> g = Generator(0)
        >>> state, seed = g.get_state(), g.draw_seed()
        >>> g.set_state(state)
        >>> g.draw_seed() == seed
        True
        """
        with self._lock:
            self.seed, self._drawn = int(state["seed"]), int(state["drawn"])


default_generator = Generator()


def manual_seed(seed: int) -> Generator:
    """Seed the default generator; everything random that follows is then the same on every run."""
    return default_generator.manual_seed(seed)


def draw_seed() -> int:
    """The next seed of the default generator."""
    return default_generator.draw_seed()


def seed_tensor(generator: Generator | None = None) -> Tensor:
    """The next seed, as the 0-d int64 tensor that the `uniform` op takes."""
    return live_seed(generator or default_generator)


def rand(
    *shape: Any,
    dtype: Any = DEFAULT_FLOAT,
    generator: Generator | None = None,
    requires_grad: bool = False,
) -> Tensor:
    """Numbers evenly distributed over [0, 1).

    Element i is the i-th output of SplitMix64 (see `draw_seed`), started at the generator's next
    seed.

    >>> rand(2, 3, generator=Generator(0)).shape
    (2, 3)
    """
    sizes = shape_arguments(shape)
    out = apply(ops.uniform, seed_tensor(generator), shape=sizes, dtype=as_dtype(dtype))
    return out.requires_grad_(requires_grad)


def randn(
    *shape: Any,
    dtype: Any = DEFAULT_FLOAT,
    generator: Generator | None = None,
    requires_grad: bool = False,
) -> Tensor:
    """Numbers of the standard normal distribution: sqrt(-2 log(1 - u)) cos(2 pi v), u and v `rand`.

    Source: G. Box, M. Muller, "A note on the generation of random normal deviates", 1958.
    """
    u = rand(*shape, dtype=dtype, generator=generator)
    v = rand(*shape, dtype=dtype, generator=generator)
    radius = (-2.0 * (1.0 - u).log()).sqrt()  # 1 - u is never 0
    return (radius * (v * (2 * np.pi)).cos()).requires_grad_(requires_grad)


def randint(low: int, high: int, shape: Any, *, generator: Generator | None = None) -> Tensor:
    """Whole numbers evenly distributed over low, ..., high - 1, as int64.

    Raises:
        ValueError: there is no number between low and high.

    >>> randint(0, 10, (5,), generator=Generator(0))
    tensor([6, 7, 3, 6, 7])
    """
    if high <= low:
        raise ValueError(f"randint: there is no whole number from {low} to below {high}")
    u = rand(shape, dtype="float64", generator=generator)
    return (u * float(high - low)).floor().long() + low


def randperm(n: int, *, generator: Generator | None = None) -> Tensor:
    """The numbers 0, ..., n - 1 in random order, as int64.

    >>> randperm(5, generator=Generator(0))
    tensor([2, 0, 3, 1, 4])
    """
    return rand(n, dtype="float64", generator=generator).argsort()


def bernoulli(p: Tensor, *, generator: Generator | None = None) -> Tensor:
    """1 with probability p, otherwise 0, in p's shape and dtype."""
    return (rand(p.shape, dtype=p.dtype, generator=generator) < p).to(p.dtype)


def rand_like(x: Tensor, *, generator: Generator | None = None) -> Tensor:
    """`rand` of the shape and dtype of x."""
    return rand(x.shape, dtype=x.dtype, generator=generator)


def randn_like(x: Tensor, *, generator: Generator | None = None) -> Tensor:
    """`randn` of the shape and dtype of x."""
    return randn(x.shape, dtype=x.dtype, generator=generator)
