"""Devices by name, and waiting for them."""

from __future__ import annotations

import warnings
from collections.abc import Callable

import torch

from tinytorch.errors import TinyTorchError

#: By type, how many there are.
ACCELERATORS: dict[str, Callable[[], int]] = {
    "cuda": torch.cuda.device_count,
    "mps": lambda: int(torch.backends.mps.is_available()),
}


class DeviceError(TinyTorchError, ValueError):
    """A device that there is not."""


def available_devices() -> list[str]:
    """Names of the devices of this machine: the CPU, then accelerators.

    >>> "cpu" in available_devices()
    True
    """
    names = ["cpu"]
    for kind, count in ACCELERATORS.items():
        names += [kind if kind == "mps" else f"{kind}:{i}" for i in range(count())]
    return names


def resolve_device(name: str | torch.device = "auto", *, fallback: bool = False) -> torch.device:
    """The device of a name.

    Args:
        name: "auto" (CUDA, else MPS, else the CPU), "cpu", "cuda", "cuda:1", "mps".
        fallback: take the CPU, with a warning, if the device is not there.

    Raises:
        DeviceError: no such name, or no such device here; the message lists what there is.

    >>> resolve_device("cpu")
    device(type='cpu')
    """
    if name == "auto":
        found = [kind for kind, count in ACCELERATORS.items() if count()]
        return torch.device(found[0] if found else "cpu")
    valid = ", ".join(["auto", "cpu", *ACCELERATORS])
    kind, colon, index = str(name).partition(":")
    if kind not in ("cpu", *ACCELERATORS) or (colon and not index.isdigit()):
        raise DeviceError(
            f"there is no device {str(name)!r}; valid names are {valid}, with :0, :1, ... behind "
            "one of several"
        )
    count = 1 if kind == "cpu" else ACCELERATORS[kind]()
    if int(index or 0) < count:
        return torch.device(str(name))
    present = ", ".join(available_devices())
    if not fallback:
        raise DeviceError(
            f"{str(name)!r} is not on this machine, which has {present}; take one of those, or "
            "allow the CPU instead with fallback=True"
        )
    warnings.warn(f"{str(name)!r} is not on this machine: running on the CPU", stacklevel=2)
    return torch.device("cpu")


def synchronize(device: torch.device) -> None:
    """Wait until a device has done what it was given; the CPU always has."""
    if device.type == "cuda":
        torch.cuda.synchronize(device)
    elif device.type == "mps":
        torch.mps.synchronize()
