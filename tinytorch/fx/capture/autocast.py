"""Autocast and captured graphs: a graph contains the conversions of its capture.

So it runs with autocast off, which would convert again, and the backward and the optimizer are
captured with autocast off, as `loss.backward()` is called outside of autocast.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import AbstractContextManager, contextmanager

import torch
from torch import Tensor

Autocast = tuple[tuple[str, torch.dtype], ...]


def present_autocast(tensors: Iterable[Tensor]) -> Autocast:
    """The types of the devices of these tensors for which autocast is on, with its dtype."""
    kinds = sorted({t.device.type for t in tensors})
    return tuple((k, torch.get_autocast_dtype(k)) for k in kinds if torch.is_autocast_enabled(k))


def autocast_off() -> AbstractContextManager[None]:
    """A block in which no op converts its inputs."""
    guard: AbstractContextManager[None] = torch._C._DisableAutocast()
    return guard


@contextmanager
def autocast_cache(is_enabled: bool) -> Iterator[None]:
    """Make autocast convert a weight once where it is used twice, as eager does; make_fx forbids
    it.

    That is more than speed: gradients of both uses are added before the conversion, or after it.
    """
    before = torch.is_autocast_cache_enabled()
    torch.set_autocast_cache_enabled(is_enabled)
    try:
        yield
    finally:
        torch.clear_autocast_cache()  # of the tensors of the trace
        torch.set_autocast_cache_enabled(before)
