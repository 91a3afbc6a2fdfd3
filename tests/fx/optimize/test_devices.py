from __future__ import annotations

import pytest
import torch

from tinytorch.fx.optimize.devices import (
    ACCELERATORS,
    DeviceError,
    available_devices,
    resolve_device,
    synchronize,
)


@pytest.fixture
def no_accelerator(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ACCELERATORS:
        monkeypatch.setitem(ACCELERATORS, name, lambda: 0)


@pytest.mark.parametrize("name", ["gpu", "cuda0", "cuda:x", "CPU", "", "cuda:-1"])
def test_an_invalid_name_lists_the_valid_ones(name: str) -> None:
    with pytest.raises(DeviceError, match="valid names are auto, cpu, cuda, mps"):
        resolve_device(name, fallback=True)


@pytest.mark.usefixtures("no_accelerator")
@pytest.mark.parametrize("name", ["cuda", "cuda:1", "mps"])
def test_an_absent_device_falls_back_only_when_asked(name: str) -> None:
    with pytest.raises(DeviceError, match=f"'{name}' is not on this machine, which has cpu"):
        resolve_device(name)
    with pytest.warns(UserWarning, match=f"'{name}' is not on this machine"):
        assert resolve_device(name, fallback=True) == torch.device("cpu")


@pytest.mark.usefixtures("no_accelerator")
def test_auto_without_accelerators() -> None:
    assert resolve_device() == torch.device("cpu")
    assert available_devices() == ["cpu"]


def test_several_devices(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(ACCELERATORS, "cuda", lambda: 2)
    monkeypatch.setitem(ACCELERATORS, "mps", lambda: 0)
    assert resolve_device("auto") == torch.device("cuda")
    assert resolve_device("cuda:1") == torch.device("cuda:1")
    assert available_devices() == ["cpu", "cuda:0", "cuda:1"]
    with pytest.raises(DeviceError, match="cuda:0, cuda:1"):
        resolve_device("cuda:2")


def test_the_cpu_is_there() -> None:
    assert resolve_device(torch.device("cpu")) == torch.device("cpu")
    synchronize(torch.device("cpu"))
