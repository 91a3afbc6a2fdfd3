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
