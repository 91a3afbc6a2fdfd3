"""A warning before a loop that will not finish soon."""

from __future__ import annotations

import warnings

from tinytorch.dtypes import Shape

WARN_SECONDS = 1.0

# Measured on one core: a multiply-add of sum(map(mul, ...)), a call of a scalar function.
_SECONDS = {"multiply-adds": 25e-9, "elements": 150e-9}

_warned: set[tuple[str, Shape]] = set()


class NaiveCallWarning(UserWarning):
    """An op is too large for Python loops to finish soon."""


def warn_if_slow(name: str, unit: str, count: int, shape: Shape) -> None:
    """Warn, once for each op and shape, if `count` steps take longer than `WARN_SECONDS`."""
    seconds = count * _SECONDS[unit]
    if seconds < WARN_SECONDS or (name, shape) in _warned:
        return
    _warned.add((name, shape))
    warnings.warn(
        f"{name} of size {'x'.join(map(str, shape))} on the naive backend is {count:,} {unit}, "
        f'about {seconds:.1g} s; tinytorch.set_backend("numpy") or set_backend("optimized") is '
        f"faster",
        NaiveCallWarning,
        stacklevel=3,
    )
