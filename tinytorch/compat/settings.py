"""Settings of PyTorch's process: the default dtype, and the state of the default generator."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any

from tinytorch import random
from tinytorch.compat.dtypes import dtype_of_type
from tinytorch.compat.tensors import Layout as layout, MemoryFormat as memory_format
from tinytorch.dtypes import DEFAULT_FLOAT, DType as dtype, as_dtype

__all__ = ["dtype", "layout", "memory_format"]


def get_default_dtype() -> dtype:
    """float32."""
    return DEFAULT_FLOAT


def set_default_dtype(d: Any) -> None:
    """Accept float32, which Python floats become.

    Raises:
        NotImplementedError: it is another dtype.
    """
    if as_dtype(d) is not DEFAULT_FLOAT:
        raise NotImplementedError(
            f"the default dtype is float32: pass dtype={as_dtype(d).name!r} to what makes tensors, "
            f"and call model.to({as_dtype(d).name!r})"
        )


def set_default_tensor_type(t: Any) -> None:
    """`set_default_dtype` of a type such as "torch.FloatTensor"."""
    set_default_dtype(dtype_of_type(t))


_USUAL: dict[str, dict[str, int]] = {
    "default": {"precision": 4, "threshold": 1000},
    "short": {"precision": 2, "threshold": 1000, "edgeitems": 2},
    "full": {"precision": 4, "threshold": 2**62},
}


def set_printoptions(
    precision: int | None = None,
    threshold: float | None = None,
    edgeitems: int | None = None,
    linewidth: int | None = None,
    profile: str | None = None,
    sci_mode: bool | None = None,
) -> None:
    """How tensors print: digits, from how many elements shortened, and so on.

    Args:
        profile: "default", "short" or "full"; the other arguments change it.
        sci_mode: False never to print an exponent.
    """
    from tinytorch import formatting

    if profile is not None:
        formatting.options.clear()
        formatting.options.update(_USUAL[profile])
    given: dict[str, Any] = {
        "precision": precision,
        "edgeitems": edgeitems,
        "max_line_width": linewidth,
        "threshold": None if threshold is None else int(min(threshold, 2**62)),
        "suppress_small": None if sci_mode is None else not sci_mode,
    }
    formatting.options.update({k: v for k, v in given.items() if v is not None})


def seed() -> int:
    """Seed the default generator from the system; returns the seed."""
    random.manual_seed(random.Generator().seed)
    return random.default_generator.seed


def initial_seed() -> int:
    """The seed that the default generator started from."""
    return random.default_generator.seed


def get_rng_state() -> Any:
    """The state of the default generator, for `set_rng_state`."""
    return random.default_generator.get_state()


def set_rng_state(new_state: Any) -> None:
    """Continue from where `get_rng_state` was taken."""
    random.default_generator.set_state(new_state)


@contextlib.contextmanager
def fork_rng(*args: Any, **options: Any) -> Iterator[None]:
    """A block after which the default generator continues from where it was before."""
    state = get_rng_state()
    try:
        yield
    finally:
        set_rng_state(state)
