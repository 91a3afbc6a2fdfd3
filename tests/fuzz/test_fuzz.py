"""A few hundred random programs, the same in each run; `make fuzz` runs thousands of others."""

from __future__ import annotations

import pytest

from tests.fuzz.check import Target, compare
from tests.fuzz.programs import Program, Statement, draw, shrink
from tests.fuzz.world import World

CHUNK = 20  # programs of one test


@pytest.mark.slow_beyond(2)
@pytest.mark.parametrize("chunk", range(5))
@pytest.mark.parametrize(
    "target", [Target("numpy", 1), Target("optimized", 1), Target("optimized", 2)], ids=str
)
@pytest.mark.filterwarnings("ignore::RuntimeWarning")
def test_compiled_equals_eager(target: Target, chunk: int):
    for i in range(chunk * CHUNK, (chunk + 1) * CHUNK):
        program = draw(f"suite:{i}", length=3 + i % 12)
        outcome = compare(program, target)
        assert outcome.kind in ("same", "refused"), f"{outcome.text}\n{program}"


@pytest.mark.slow
@pytest.mark.parametrize("threads", [1, 2])
@pytest.mark.filterwarnings("ignore::RuntimeWarning")
def test_machine_code_for_loops_too(threads: int):
    for i in range(12):  # each compiles its loops for seconds; `make fuzz` runs thousands
        program = draw(f"suite:{i}")
        outcome = compare(program, Target("optimized", threads, compiles_loops=True))
        assert outcome.kind in ("same", "refused"), f"{outcome.text}\n{program}"


@pytest.mark.slow
def test_few_programs_are_refused():
    outcomes = [compare(draw(f"suite:{i}"), Target("numpy", 1)) for i in range(40)]
    assert [o.kind for o in outcomes].count("same") >= 32


def test_a_seed_says_which_program():
    assert str(draw("suite:1")) == str(draw("suite:1")) != str(draw("suite:2"))


def test_a_world_that_changes_between_calls_shows():
    """What the mutations of a program do is seen: eager and compiled must both follow it."""
    program = draw("suite:4")
    assert "s0" in program.state
    program.statements, program.results = [Statement("{0} * 2.0", ("s0",), "v0")], ["v0"]
    program.mutations = []
    plain = World(program).calls(program)
    program.mutations = [[], ["s0 = -s0"]]
    mutated = World(program).calls(program)
    assert (plain[1]["result 0"] == mutated[1]["result 0"]).all()
    assert (plain[2]["result 0"] == -mutated[2]["result 0"]).all()
    assert compare(program, Target("numpy", 1)).kind == "same"


@pytest.mark.slow
def test_programs_change_the_world_in_every_way():
    drawn = [draw(f"suite:{i}") for i in range(150)]
    changes = [c for program in drawn for texts in program.mutations for c in texts]
    for subject in ("net.m", "p0", "s0", "optimizer", "options", "config", "helper", "world.grad"):
        assert any(subject in change for change in changes), subject
    assert sum(bool(program.layers) for program in drawn) > 30


def test_shrinking_leaves_what_matters():
    program = draw("suite:3", length=20)

    def fails(p: Program) -> bool:
        return any(s.operands and s.out for s in p.statements)

    smaller = shrink(program, fails)
    assert fails(smaller) and len(smaller.statements) == 1
