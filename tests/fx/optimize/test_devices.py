from __future__ import annotations

import pytest
import torch

from tinytorch.fx.optimize import devices
from tinytorch.fx.optimize.devices import (
    ACCELERATORS,
    DeviceError,
    available_devices,
    devices_of,
    generators_kept,
    resolve_device,
    seed_generators,
    synchronize,
)
from tinytorch.fx.profile.clock import clock_of


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


class FakeBackend:
    """The module of torch for a device that is not there, as torch.cuda is for CUDA."""

    def __init__(self) -> None:
        self.states = {0: torch.zeros(2), 1: torch.ones(2)}
        self.waited: list[int] = []

    def get_rng_state(self, device: torch.device) -> torch.Tensor:
        return self.states[device.index].clone()

    def set_rng_state(self, state: torch.Tensor, device: torch.device) -> None:
        self.states[device.index] = state

    def synchronize(self, device: torch.device) -> None:
        self.waited.append(device.index)


@pytest.fixture
def fake(monkeypatch: pytest.MonkeyPatch) -> FakeBackend:
    backend = FakeBackend()
    monkeypatch.setattr(devices, "_backend", lambda device: backend)
    seeded = devices._seeded

    def state(device: torch.device, seed: int) -> torch.Tensor:
        return seeded(device, seed) if device.type == "cpu" else torch.full((2,), float(seed))

    monkeypatch.setattr(devices, "_seeded", state)
    return backend


def test_generators_of_all_devices_in_use_are_kept(fake: FakeBackend) -> None:
    first, second = torch.device("privateuseone:0"), torch.device("privateuseone:1")
    host = torch.get_rng_state()
    with generators_kept([first, torch.device("cpu")]):
        seed_generators(7, [first])
        assert fake.states[0].tolist() == [7, 7] and fake.states[1].tolist() == [1, 1]
        torch.randn(3)
    assert fake.states[0].tolist() == [0, 0]
    assert torch.get_rng_state().equal(host)
    with pytest.raises(RuntimeError, match="inside"), generators_kept([second]):
        seed_generators(3, [second])
        raise RuntimeError("inside")
    assert fake.states[1].tolist() == [1, 1]


def test_a_seed_on_the_host_is_the_usual_one() -> None:
    with generators_kept():
        seed_generators(5)
        found = torch.randn(4)
        torch.manual_seed(5)
        assert found.equal(torch.randn(4))


def test_the_clock_waits_for_the_device_of_the_model(fake: FakeBackend) -> None:
    clock = clock_of(torch.device("privateuseone:1"))
    start = clock.stamp()
    assert clock.seconds(start, clock.stamp()) >= 0
    assert fake.waited == [1, 1]


def test_devices_of_a_module() -> None:
    model = torch.nn.BatchNorm1d(2)
    model.running_mean = model.running_mean.to("meta")
    assert devices_of(model) == {torch.device("cpu"), torch.device("meta")}
