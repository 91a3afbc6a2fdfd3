"""The least time of work on a machine, and what a machine reaches."""

from __future__ import annotations

import pytest

from tinytorch.backends import find_backend
from tinytorch.bench import Machine, measure_machine


def test_the_slower_of_computing_and_moving_counts() -> None:
    machine = Machine(flops=100.0, bandwidth=10.0)
    assert machine.seconds(300, 20) == 3.0
    assert machine.seconds(100, 50) == 5.0


@pytest.mark.parametrize(("intensity", "rate"), [(0.5, 5.0), (10.0, 100.0), (40.0, 100.0)])
def test_the_roof_rises_with_intensity_and_then_is_flat(intensity: float, rate: float) -> None:
    assert Machine(flops=100.0, bandwidth=10.0).attainable(intensity) == rate


def test_a_machine_is_measured_once_for_a_backend() -> None:
    backend = find_backend("numpy")
    machine = measure_machine(backend)
    assert machine.flops > 0
    assert machine.bandwidth > 0
    assert measure_machine(backend) is machine
