"""Random numbers: a `Generator` that is passed in, or the default one set by `manual_seed`.

A generator hands out seeds; the `uniform` op turns a seed into numbers. So the numbers are the same
on every backend and in a replayed graph, and the state of a generator is two integers.
"""

from __future__ import annotations

import operator
import os
import threading
from typing import TYPE_CHECKING, Any

import numpy as np

from tinytorch import ops
from tinytorch.absent import accepts_device, names_of
from tinytorch.backends import reference
from tinytorch.dispatch import active_modes, apply, is_tensor, live_seed, wrap
from tinytorch.dtypes import (
    DEFAULT_FLOAT,
    DEFAULT_INT,
    DType,
    Shape,
    as_dtype,
    bfloat16,
    float64,
    int64,
    tensor_meta,
)
from tinytorch.errors import DTypeError, ShapeError
from tinytorch.functions.copies import with_zero_gradient
from tinytorch.functions.dims import named_or_not, shape_arguments
from tinytorch.functions.fusing import fuse
from tinytorch.functions.ordering import argsort, searchsorted, topk
from tinytorch.functions.publish import METHODS
from tinytorch.functions.value_checks import check_not_negative, check_probabilities
from tinytorch.replay import replayed
from tinytorch.state import STATE, current_backend

if TYPE_CHECKING:
    from tinytorch.tensor import Tensor

_MASK = (1 << 64) - 1
_GOLDEN = 0x9E3779B97F4A7C15
TOGETHER = 64  # seeds: to mix the bits of so many takes NumPy as long as Python takes for ten
_STEPS = np.arange(1, TOGETHER + 1, dtype=np.uint64) * np.uint64(_GOLDEN)


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
        for mode in active_modes():
            mode.seeded(self)
        with self._lock:
            self._start(int(seed), 0)
        return self

    def _start(self, seed: int, drawn: int) -> None:
        self.seed, self._drawn = seed, drawn
        self._next: list[int] = []  # seeds to come, the last one first

    def draw_seed(self) -> int:
        """The next seed: an int64 that no earlier call since `manual_seed` returned.

        Source: G. Steele, D. Lea, C. Flood, "Fast splittable pseudorandom number generators", 2014
        (SplitMix64).
        """
        with self._lock:
            if not self._next:
                self._next = self._following()
            self._drawn += 1
            return self._next.pop()

    def _following(self) -> list[int]:
        """The next `TOGETHER` seeds, the last one first."""
        start = self.seed * 0xD1342543DE82EF95 + self._drawn * _GOLDEN
        z: Any = np.uint64(start & _MASK) + _STEPS
        # the finalizer of MurmurHash3 (variant 13 of D. Stafford, 2011), so that neighbours differ
        z = (z ^ (z >> 30)) * np.uint64(0xBF58476D1CE4E5B9)
        z = (z ^ (z >> 27)) * np.uint64(0x94D049BB133111EB)
        z ^= z >> 31
        return z.view(np.int64)[::-1].tolist()  # type: ignore[no-any-return]

    def get_state(self) -> dict[str, int]:
        """The state from which `set_state` continues."""
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
            self._start(int(state["seed"]), int(state["drawn"]))


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


@accepts_device
def rand(
    *shape: Any,
    size: Any = None,
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
    sizes = named_or_not(shape, size)
    kind = as_dtype(DEFAULT_FLOAT if dtype is None else dtype)
    out = apply(ops.uniform, seed_tensor(generator), shape=sizes, dtype=kind)
    return out.requires_grad_(requires_grad)


@accepts_device
def randn(
    *shape: Any,
    size: Any = None,
    dtype: Any = DEFAULT_FLOAT,
    generator: Generator | None = None,
    requires_grad: bool = False,
) -> Tensor:
    """Numbers of the standard normal distribution: sqrt(-2 log(1 - u)) cos(2 pi v), u and v `rand`.

    Source: G. Box, M. Muller, "A note on the generation of random normal deviates", 1958.
    """
    sizes = named_or_not(shape, size)
    kind = as_dtype(DEFAULT_FLOAT if dtype is None else dtype)
    out: Tensor = _normal(seed_tensor(generator), seed_tensor(generator), sizes, kind)
    return out.requires_grad_(requires_grad)


@replayed
def _normal(
    first: Tensor, second: Tensor, shape: Shape, dtype: DType, std: Any = None, mean: Any = None
) -> Tensor:
    u, v = (apply(ops.uniform, s, shape=shape, dtype=dtype) for s in (first, second))
    return _box_muller(u, v) if std is None else _box_muller(u, v) * std + mean


def _box_muller(u: Tensor, v: Tensor) -> Tensor:
    radius = (-2.0 * (1.0 - u).log()).sqrt()  # 1 - u is never 0
    return radius * (v * (2 * np.pi)).cos()


@accepts_device
def randint(
    low: Any = None,
    high: Any = None,
    size: Any = None,
    *,
    generator: Generator | None = None,
    dtype: Any = DEFAULT_INT,
    requires_grad: bool = False,
) -> Tensor:
    """Whole numbers evenly distributed over low, ..., high - 1; `randint(high, size)` from 0 on.

    Raises:
        ValueError: there is no number between low and high.
        TypeError: one of them is not a whole number.

    >>> randint(0, 10, (5,), generator=Generator(0))
    tensor([6, 7, 3, 6, 7])
    """
    if size is None:
        low, high, size = 0, low, high
    elif high is None:
        low, high = 0, low
    elif low is None:
        low = 0
    if size is None:
        raise TypeError("randint needs a shape: randint(low, high, size)")
    low, high = operator.index(low), operator.index(high)
    if high <= low:
        raise ValueError(f"randint: there is no whole number from {low} to below {high}")
    shape, kind = shape_arguments((size,)), as_dtype(DEFAULT_INT if dtype is None else dtype)
    out: Tensor = _integers(seed_tensor(generator), shape, kind, low, high)
    return out.requires_grad_(requires_grad)


@replayed
def _integers(seed: Tensor, shape: Shape, dtype: DType, low: int, high: int) -> Tensor:
    u = apply(ops.uniform, seed, shape=shape, dtype=float64)
    numbers = (u * float(high - low)).long()  # rounds down: there are none below 0
    return (numbers + low if low else numbers).to(dtype)


@accepts_device
def randperm(n: int, *, generator: Generator | None = None, dtype: Any = DEFAULT_INT) -> Tensor:
    """The numbers 0, ..., n - 1 in random order, as int64.

    >>> randperm(5, generator=Generator(0))
    tensor([2, 0, 3, 1, 4])
    """
    return _permutation(seed_tensor(generator), n).to(dtype)  # type: ignore[no-any-return]


@replayed
def _permutation(seed: Tensor, n: int) -> Tensor:
    return argsort(apply(ops.uniform, seed, shape=(n,), dtype=float64))


def bernoulli(
    input: Tensor, p: Tensor | float | None = None, *, generator: Generator | None = None
) -> Tensor:
    """1 with probability `input`, otherwise 0, in its shape and dtype; its gradient is 0.

    Args:
        p: the probability, which broadcasts; only the shape and dtype of `input` count then.

    Raises:
        ValueError: a probability is not from 0 to 1. (Not checked in a trace.)

    >>> from tinytorch import tensor
    >>> bernoulli(tensor([0.0, 1.0, 1.0]))
    tensor([0., 1., 1.])
    """
    given, dtype = (input if p is None else p), input.dtype
    check_probabilities("bernoulli: p", given)
    kind = dtype if dtype.is_floating_point else DEFAULT_FLOAT
    drawn = (rand(input.shape, dtype=kind, generator=generator) < given).to(dtype)
    return with_zero_gradient(drawn, input)  # type: ignore[no-any-return]


@accepts_device
def rand_like(
    input: Tensor,
    *,
    dtype: Any = None,
    generator: Generator | None = None,
    requires_grad: bool = False,
) -> Tensor:
    """`rand` of the shape and dtype of `input`."""
    kind = input.dtype if dtype is None else dtype
    return rand(input.shape, dtype=kind, generator=generator, requires_grad=requires_grad)


@accepts_device
def randn_like(
    input: Tensor,
    *,
    dtype: Any = None,
    generator: Generator | None = None,
    requires_grad: bool = False,
) -> Tensor:
    """`randn` of the shape and dtype of `input`."""
    kind = input.dtype if dtype is None else dtype
    return randn(input.shape, dtype=kind, generator=generator, requires_grad=requires_grad)


@accepts_device
def randint_like(
    input: Tensor,
    low: int | None = None,
    high: int | None = None,
    *,
    generator: Generator | None = None,
) -> Tensor:
    """`randint` of the shape and dtype of `input`."""
    return randint(low, high, input.shape, generator=generator, dtype=input.dtype)


@accepts_device
def normal(
    mean: Any = 0.0,
    std: Any = 1.0,
    size: Any = None,
    *,
    generator: Generator | None = None,
    dtype: Any = DEFAULT_FLOAT,
) -> Tensor:
    """Numbers of the normal distribution with this mean and standard deviation.

    Args:
        mean, std: numbers, with `size`; or one or both tensors, which broadcast. Their gradients
            are 0, as in PyTorch: for others write `mean + std * randn_like(std)`.

    Raises:
        TypeError: both are numbers, and there is no size.
        ValueError: a standard deviation is negative. (Not checked in a trace.)

    >>> normal(0.0, 1.0, (2, 3)).shape
    (2, 3)
    """
    tensors = [t for t in (mean, std) if is_tensor(t)]
    if tensors:
        size, dtype = np.broadcast_shapes(*(t.shape for t in tensors)), tensors[0].dtype
    elif size is None:
        raise TypeError("normal needs a size, or a tensor as mean or std")
    check_not_negative("normal: std", std)
    if tensors:
        std, mean = (t.detach() if is_tensor(t) else t for t in (std, mean))
    shape, kind = shape_arguments((size,)), as_dtype(DEFAULT_FLOAT if dtype is None else dtype)
    drawn = _normal(seed_tensor(generator), seed_tensor(generator), shape, kind, std, mean)
    return with_zero_gradient(drawn, *tensors)  # type: ignore[no-any-return]


@accepts_device
def multinomial(
    input: Tensor,
    num_samples: int,
    replacement: bool = False,
    *,
    generator: Generator | None = None,
) -> Tensor:
    """Indices drawn with probabilities proportional to `input`, as int64.

    Args:
        input: weights, not negative: (n,) or (rows, n). They need not add up to 1.
        num_samples: how many indices to draw from each row.
        replacement: whether an index may be drawn again.

    Returns:
        (num_samples,) or (rows, num_samples).

    Raises:
        ShapeError: the weights have other dimensions.
        ValueError: a weight is negative, infinite or NaN, all are 0, or (without replacement)
            fewer than `num_samples` are not. (Not checked in a trace.)

    Source, without replacement: P. Efraimidis, P. Spirakis, "Weighted random sampling with a
    reservoir", 2006; the indices of the smallest exponential variates of these rates.

    >>> from tinytorch import tensor
    >>> multinomial(tensor([0.0, 1.0]), 3, replacement=True)
    tensor([1, 1, 1])
    """
    if input.ndim not in (1, 2):
        raise ShapeError(f"multinomial takes weights (n,) or (rows, n), not shape {input.shape}")
    if not input.dtype.is_floating_point:
        raise DTypeError(f"multinomial takes floating-point weights, not {input.dtype.name}")
    stored = input.float() if input.dtype is bfloat16 else input  # as numbers, not as their bits
    if replacement and num_samples > 0 and STATE.get().mode is None and stored.meta.size:
        seed, shape = seed_tensor(generator), (*input.shape[:-1], num_samples)
        u = apply(ops.uniform, seed, shape=shape, dtype=float64)
        drawn = current_backend().replacement_of(reference.drawn)
        if (indices := drawn(stored._data, u._data)) is not None:
            return wrap(indices, tensor_meta(shape, int64))
    _check_weights(stored, num_samples, replacement)  # says what is wrong
    given = input.detach(), seed_tensor(generator), num_samples
    if replacement:
        return searchsorted(*_totals_and_wanted(*given), right=True)
    return _first_arrivals(*given)  # type: ignore[no-any-return]


@replayed
def _totals_and_wanted(weights: Tensor, seed: Tensor, count: int) -> tuple[Tensor, Tensor]:
    """The sums of the weights up to each but the last, and for each sample one below their sum."""
    totals = weights.double().cumsum(-1)
    u = apply(ops.uniform, seed, shape=(*weights.shape[:-1], count), dtype=float64)
    return totals[..., :-1], u * totals[..., -1:]


@replayed
def _first_arrivals(weights: Tensor, seed: Tensor, count: int) -> Tensor:
    u = apply(ops.uniform, seed, shape=weights.shape, dtype=float64)
    # the arrival of weight 0 is infinite: it comes last
    return topk(-(1.0 - u).log() / weights.double(), count, -1, largest=False)[1]


def _check_weights(weights: Tensor, count: int, replacement: bool) -> None:
    array = weights._data
    if not isinstance(array, np.ndarray):
        return
    least, most = (f.reduce(array, None, initial=0) for f in (np.minimum, np.maximum))
    if not 0 <= least <= most < np.inf:  # NaN where there is one
        raise ValueError("multinomial: weights must be finite and not negative")
    if count < 1:
        raise ValueError(f"multinomial: num_samples must be at least 1, not {count}")
    counts = array.any(-1) if replacement else np.count_nonzero(array, -1)
    possible = np.minimum.reduce(counts, None, initial=array.shape[-1])
    if possible < (1 if replacement else count):
        raise ValueError(f"multinomial: {count} samples of {int(possible)} weights above 0")


@accepts_device
def poisson(input: Tensor, generator: Generator | None = None) -> Tensor:
    """Whole numbers of the Poisson distribution with these rates, in their shape and dtype.

    Drawn by NumPy from a seed of the generator; cannot be traced. The gradient of the rates is 0.
    """
    rates = input.double()._concrete("poisson")
    bits = int((generator or default_generator).draw_seed()) & _MASK
    drawn = np.random.default_rng(bits).poisson(rates)
    out: Tensor = with_zero_gradient(input.new_tensor(np.asarray(drawn, rates.dtype)), input)
    return out


fuse(globals(), "_box_muller")

METHODS.update(bernoulli=bernoulli, multinomial=multinomial)

__getattr__ = names_of("torch.random")  # names of PyTorch's that are not here
