"""Where samples come from: shapes, numbers and arrays drawn in a style, a dtype and a layout."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from random import Random
from typing import Any

import numpy as np

from tinytorch.tensor import Tensor

LAYOUTS = ("contiguous", "transposed", "reversed", "strided", "broadcast")
SPECIAL = (0.0, -0.0, 1.0, -1.0, math.inf, -math.inf, math.nan)


@dataclass
class Sample:
    """Arguments for one call of an op: arrays (or Python numbers), and parameters."""

    inputs: tuple[Any, ...]
    params: dict[str, Any]

    def tensors(self, requires_grad: bool = False) -> list[Any]:
        """The inputs as tensors that share memory with the arrays."""
        return [self._tensor(x, requires_grad) for x in self.inputs]

    @staticmethod
    def _tensor(x: Any, requires_grad: bool) -> Any:
        if not isinstance(x, np.ndarray):
            return x
        tensor = Tensor.from_numpy(x)
        return tensor.requires_grad_(requires_grad and tensor.is_floating_point())


Sampler = Callable[["Source"], Sample]
SAMPLERS: dict[str, Sampler] = {}  # by the name of the op
TWINS: dict[str, Callable[..., Any]] = {}  # the op in PyTorch, by its name; see `samples`


def samples(*names: str, torch: Callable[..., Any] | None = None) -> Callable[[Sampler], Sampler]:
    """Register the function below, which draws samples of these ops.

    Args:
        names: of ops.
        torch: the same op in PyTorch: a function of the module `torch`, which is not imported here,
            and the op's inputs and parameters. Tests compare values and gradients with it.

    For example, for an op that rolls its elements along a dimension:

        @samples("rolled", torch=lambda torch, a, shift, dim: torch.roll(a, shift, dim))
        def _rolled(s: Source) -> Sample:
            shape = s.shape(1)
            params = {"shift": s.integer(-3, 3), "dim": s.integer(0, len(shape) - 1)}
            return Sample((s.array(shape),), params)
    """

    def enter(sampler: Sampler) -> Sampler:
        SAMPLERS.update(dict.fromkeys(names, sampler))
        if torch is not None:
            TWINS.update(dict.fromkeys(names, torch))
        return sampler

    return enter


class Source:
    """Draws shapes, numbers and arrays in one style and dtype."""

    def __init__(self, random: Random, style: str, dtype: str) -> None:
        self.random = random
        self.style = style
        self.smooth = style == "smooth"
        self.dtype = np.dtype(dtype)
        self.rng = np.random.default_rng(random.getrandbits(32))

    def integer(self, low: int, high: int) -> int:
        return self.random.randint(low, high)

    def pick(self, options: Sequence[Any]) -> Any:
        return self.random.choice(options)

    def flag(self) -> bool:
        return self.random.random() < 0.5

    def pair(self, low: int, high: int) -> tuple[int, int]:
        return self.integer(low, high), self.integer(low, high)

    def extent(self, least: int = 0) -> int:
        """A size; now and then one that does not fit into a vector register."""
        if self.smooth:
            return self.integer(max(least, 1), 3)
        size: int = self.pick((0, 1, 1, 2, 3, 4, 5, 7, 18, 35))
        return max(least, size)

    def shape(self, least: int = 0, most: int = 3, extent: int = 0) -> tuple[int, ...]:
        """A shape of `least` to `most` dimensions, each of at least `extent`."""
        return tuple(self.extent(extent) for _ in range(self.integer(least, most)))

    def broadcast_shapes(self, count: int) -> list[tuple[int, ...]]:
        """Shapes that broadcast to one."""
        whole = self.shape()
        shapes = []
        for _ in range(count):
            kept = whole[self.integer(0, len(whole)) if self.flag() else 0 :]
            shapes.append(tuple(1 if self.random.random() < 0.3 else n for n in kept))
        return shapes

    def array(
        self,
        shape: tuple[int, ...],
        *,
        dtype: Any = None,
        low: float = -math.inf,
        finite: bool = False,
    ) -> Any:
        """An array of the style's values, none below `low` if the style is smooth."""
        dtype = self.dtype if dtype is None else np.dtype(dtype)
        if self.smooth and dtype.kind == "f":
            values = self.rng.standard_normal(shape)
            return np.asarray(values if low == -math.inf else np.abs(values) + low + 0.1, dtype)
        values = np.asarray(self._values(shape, dtype, finite or self.style == "finite"))
        return laid_out(values, "contiguous" if self.smooth else self.pick(LAYOUTS))

    def _values(self, shape: tuple[int, ...], dtype: np.dtype[Any], finite: bool) -> Any:
        if dtype.kind == "b":
            return self.rng.random(shape) < 0.5
        if dtype.kind in "iu":
            return self.rng.integers(-4 if dtype.kind == "i" else 0, 5, shape, dtype)
        values = self.rng.standard_normal(shape) * self.pick((1.0, 1.0, 3.0))
        if self.flag():
            values = np.round(values)  # ties, also with the bounds and zeros of other operands
        special = SPECIAL[:4] if finite else SPECIAL
        chosen = self.rng.random(shape) < self.pick((0.0, 0.0, 0.2))
        return np.where(chosen, self.rng.choice(special, shape), values).astype(dtype)

    def normal(self, shape: tuple[int, ...]) -> Any:
        """An array without ties: among equal elements rounding can be divided by almost nothing."""
        values = self.rng.standard_normal(shape).astype(self.dtype)
        return laid_out(values, "contiguous" if self.smooth else self.pick(LAYOUTS[:4]))

    def index(self, shape: tuple[int, ...], extent: int) -> Any:
        """Positions in [0, extent), some of them repeated."""
        return laid_out(self.rng.integers(0, extent, shape), self.pick(LAYOUTS))


def laid_out(values: Any, layout: str) -> Any:
    """The array in another memory layout (for "broadcast": with repeated values)."""
    if values.ndim == 0:
        return values
    if layout == "transposed":
        return values.T.copy().T
    if layout == "reversed":
        return np.flip(np.flip(values).copy())
    if layout == "strided":
        return np.repeat(values, 2, axis=-1)[..., ::2]
    if layout == "broadcast" and values.shape[0]:
        return np.broadcast_to(values[:1], values.shape)
    return values
