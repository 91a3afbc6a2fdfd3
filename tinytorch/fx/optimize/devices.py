"""Devices by name, and waiting for them."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn

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
    if device.type != "cpu":
        _backend(device).synchronize(*_index(device))


def devices_of(module: nn.Module) -> set[torch.device]:
    """The devices of a module's parameters and buffers."""
    return {t.device for t in (*module.parameters(), *module.buffers())}


def generator_states(devices: Iterable[torch.device] = ()) -> Callable[[], None]:
    """Keep the states of the random generators of the CPU and of these devices.

    Returns:
        What puts them back.
    """
    others = {d for d in devices if d.type not in ("cpu", "meta")}
    host = torch.get_rng_state()
    states = [(d, _backend(d).get_rng_state(*_index(d))) for d in others]

    def put_back() -> None:
        torch.set_rng_state(host)
        for device, state in states:
            _backend(device).set_rng_state(state, *_index(device))

    return put_back


@contextmanager
def generators_kept(devices: Iterable[torch.device] = ()) -> Iterator[None]:
    """Restore the random generators of the CPU and of these devices after the block."""
    put_back = generator_states(devices)
    try:
        yield
    finally:
        put_back()


def seed_generators(seed: int, devices: Iterable[torch.device] = ()) -> None:
    """Seed the random generators of the CPU and of these devices, and of no other."""
    torch.set_rng_state(_seeded(torch.device("cpu"), seed))
    for device in {d for d in devices if d.type not in ("cpu", "meta")}:
        _backend(device).set_rng_state(_seeded(device, seed), *_index(device))


def _seeded(device: torch.device, seed: int) -> Tensor:
    """The state of a generator with this seed. `torch.manual_seed` would seed all devices."""
    return torch.Generator(device).manual_seed(seed).get_state()


def _backend(device: torch.device) -> Any:
    """The module of torch for a kind of device: torch.cuda, torch.mps, or a plugged-in one."""
    return torch.get_device_module(device)


def _index(device: torch.device) -> tuple[torch.device, ...]:
    """MPS is one device, and its functions take none."""
    return () if device.type == "mps" else (device,)
