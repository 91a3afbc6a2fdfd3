"""In which precision float32 models compute: exactly in float32, in TF32, or in bfloat16."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import torch

FLOAT32, TF32, BFLOAT16 = "float32", "TF32", "bfloat16 autocast"


def precisions_of(device: torch.device) -> tuple[str, ...]:
    """The precisions of a device; TF32 is of CUDA's products and convolutions.

    >>> precisions_of(torch.device("cpu"))
    ('float32', 'bfloat16 autocast')
    """
    return (FLOAT32, TF32, BFLOAT16) if device.type == "cuda" else (FLOAT32, BFLOAT16)


@contextmanager
def precision(name: str, device: torch.device) -> Iterator[None]:
    """Compute in this precision in the block, whatever the user has set outside of it.

    Raises:
        ValueError: the device does not have it.
    """
    if name not in precisions_of(device):
        known = ", ".join(precisions_of(device))
        raise ValueError(f"{device} does not compute in {name!r}; it has {known}")
    products, convolutions = torch.backends.cuda.matmul, torch.backends.cudnn
    before = products.allow_tf32, convolutions.allow_tf32
    products.allow_tf32 = convolutions.allow_tf32 = name == TF32
    try:
        with torch.autocast(device.type, torch.bfloat16, enabled=name == BFLOAT16):
            yield
    finally:
        products.allow_tf32, convolutions.allow_tf32 = before
