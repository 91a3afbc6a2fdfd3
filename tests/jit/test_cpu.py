from __future__ import annotations

import platform
from pathlib import Path

import pytest

from tinytorch.jit import cpu


@pytest.mark.parametrize(
    ("text", "name"),
    [
        ("processor\t: 0\nmodel name\t: Made-up (TM) 9\nflags\t: fma\n", "Made-up (TM) 9"),
        ("processor\t: 0\nCPU part\t: 0xd40\n", "0xd40"),
        ("", platform.processor() or platform.machine()),
    ],
)
def test_the_name_of_a_processor_is_what_linux_says(
    text: str, name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    facts = tmp_path / "cpuinfo"
    facts.write_text(text)
    monkeypatch.setattr(cpu, "CPUINFO", facts)
    monkeypatch.setattr(cpu.sys, "platform", "linux")
    assert cpu.processor_name() == name


@pytest.mark.parametrize("machine", ["aarch64", "arm64", "ARM64"])
def test_arm_has_neon_and_its_32_registers(machine: str) -> None:
    unit = cpu.choose_vector_unit({}, machine)
    assert (unit.name, unit.register_bytes, unit.registers) == ("neon", 16, 32)
    for vectors in unit.tile_vectors:  # the tile, a row of B and an element of A
        assert unit.tile_rows(vectors) * vectors + vectors + 1 <= unit.registers


def test_without_features_there_are_generic_vectors() -> None:
    assert cpu.choose_vector_unit({}, "riscv64") is cpu.GENERIC


@pytest.mark.parametrize(
    "unit", [cpu.AVX512, cpu.AVX2, cpu.NEON, cpu.GENERIC], ids=lambda u: u.name
)
def test_vectors_of_a_row_are_shared_out_among_tiles(unit: cpu.VectorUnit) -> None:
    widest = unit.tile_vectors[-1]
    assert unit.panel_vectors(0) == 1
    for left in range(1, 4 * widest):
        vectors = unit.panel_vectors(left)
        assert vectors in unit.tile_vectors
        assert vectors <= left
        if left == widest or left >= 2 * widest:
            assert vectors == widest
    one_more = (unit.panel_vectors(widest + 1), unit.panel_vectors(1))
    assert one_more == {"avx512": (3, 1), "neon": (4, 1)}.get(unit.name, (2, 1))
