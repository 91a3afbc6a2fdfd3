"""The inner loop of a product on processors that are not here, by llvm-mca."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.system_tools import refuse
from tinytorch.bench import CANNOT_RUN_HERE
from tinytorch.jit.cpu import AVX2, NEON

BENCHMARKS = Path(__file__).parents[2] / "benchmarks"


@pytest.fixture
def inner_loop(monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.syspath_prepend(str(BENCHMARKS))
    import inner_loop

    return inner_loop


@pytest.fixture
def llvm_mca(inner_loop: Any) -> str:
    program: str | None = inner_loop.find_llvm_mca()
    if program is None:
        refuse(inner_loop.NEEDED)
    return program


OUTER = """
.LBB0_1:
	movi	v0.2d, #0
	fmla	v9.4s, v1.4s, v2.4s
.LBB0_2:                  // the loop
	ldr	q1, [x0]
	.p2align 4
	fmla	v0.4s, v1.4s, v3.s[0]
	fmla	v2.4s, v1.4s, v3.s[0]
	subs	x1, x1, #1
	b.gt	.LBB0_2
	fmla	v9.4s, v1.4s, v2.4s
	cbnz	x2, .LBB0_1
.LBB0_3:
	fmla	v9.4s, v1.4s, v2.4s
	b.gt	.LBB0_3
"""


def test_the_loop_with_the_most_multiply_adds_is_found(inner_loop: Any) -> None:
    loop = inner_loop.inner_loop(OUTER)
    assert [line.split()[0] for line in loop] == ["ldr", "fmla", "fmla", "subs", "b.gt"]
    assert len(inner_loop.multiply_adds(loop)) == 2
    x86 = "again:\n\tvfmadd231ps\t%ymm1, %ymm2, %ymm3\n\tdecq\t%rax\n\tjne\tagain\n"
    assert len(inner_loop.inner_loop(x86)) == 3
    with pytest.raises(LookupError, match="no loop of this assembly has a multiply-add"):
        inner_loop.inner_loop(OUTER.replace("fmla", "fadd"))


@pytest.mark.parametrize("cpu", ["apple-m1", "apple-m4", "neoverse-v2"])
def test_products_keep_the_ports_of_arm_processors_busy(
    inner_loop: Any, llvm_mca: str, cpu: str
) -> None:
    (tile,) = inner_loop.tiles(NEON, every=False)
    found = inner_loop.analyse(llvm_mca, cpu, NEON, tile)
    assert found.multiply_adds == tile[0] * tile[1] == 24
    assert found.ports in (3, 4)
    assert inner_loop.GOAL <= found.busy <= 1


def test_a_tile_of_one_vector_waits_for_its_loads(inner_loop: Any, llvm_mca: str) -> None:
    assert (8, 1) in inner_loop.tiles(NEON, every=True)
    assert inner_loop.analyse(llvm_mca, "neoverse-v2", NEON, (8, 1)).busy < 0.75
    assert inner_loop.analyse(llvm_mca, "znver3", AVX2, (8, 1)).busy < 0.85


@pytest.mark.slow_beyond(1)
@pytest.mark.parametrize(
    ("cpu", "gain"), [("znver2", 1.0), ("skylake", 1.6), ("alderlake", 4.0), ("znver3", 2.0)]
)
def test_products_of_codes_are_set_beside_those_of_floats(
    inner_loop: Any, llvm_mca: str, cpu: str, gain: float
) -> None:
    """Those of bytes: in pairs, or with VNNI where there is some."""
    floats = inner_loop.analyse(llvm_mca, cpu, AVX2, inner_loop.tiles(AVX2, every=False)[0])
    assert floats.products == "float32" and floats.each == pytest.approx(16, abs=0.5)
    found = inner_loop.analyse_codes(llvm_mca, cpu, AVX2)
    kinds = ["words", "pairs of bytes", "bytes"][: 3 if cpu in inner_loop.VNNI else 2]
    assert [each.products for each in found] == kinds
    assert found[-1].each == pytest.approx(gain * floats.each, rel=0.05)
    assert "pairs of bytes" in inner_loop.show([floats, *found])


def test_words_are_multiplied_on_arm(inner_loop: Any, llvm_mca: str) -> None:
    (found,) = inner_loop.analyse_codes(llvm_mca, "neoverse-v2", NEON)
    assert found.products == "words" and found.multiply_adds == 48 and found.busy is None


def test_a_processor_that_llvm_mca_does_not_know_is_named(inner_loop: Any, llvm_mca: str) -> None:
    loop = ["fmla v0.4s, v1.4s, v2.4s"]
    with pytest.raises(inner_loop.UnknownProcessorError, match=r"has no model of apple-m99"):
        inner_loop.cycles(llvm_mca, loop, "apple-m99", NEON)
    with pytest.raises(RuntimeError, match="unrecognized instruction mnemonic"):
        inner_loop.cycles(llvm_mca, ["fmlax v0.4s"], "apple-m1", NEON)


def test_without_llvm_mca_it_says_what_to_install(
    inner_loop: Any, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("PATH", "")
    assert inner_loop.main([]) == CANNOT_RUN_HERE
    assert "scripts/install-system-packages" in capsys.readouterr().err
    with pytest.raises(SystemExit):
        inner_loop.main(["--cpu", "z80"])
    assert "z80 is not one of host, apple-m1" in capsys.readouterr().err


@pytest.mark.slow
def test_the_model_is_set_beside_a_measurement(llvm_mca: str) -> None:
    command = [sys.executable, "inner_loop.py", "--json", "--cpu=host,apple-m4"]
    done = subprocess.run(command, cwd=BENCHMARKS, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    answer = json.loads(done.stdout)
    here, other = answer["results"] if not answer["unknown"] else (None, *answer["results"])
    assert other["measured"] is None and other["model"] == "Cyclone (Apple, 2013)"
    assert here is None or 0 < here["measured"] < 1.2
