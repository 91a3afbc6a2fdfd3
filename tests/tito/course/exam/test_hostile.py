"""Submissions that want points without a solution: what they get is what they have earned."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from tests.system_tools import needs_sandbox
from tito.course.exam.instrument import Source
from tito.course.exam.job import Budget, Job, Unit
from tito.course.exam.judge import judge
from tito.course.exam.key import Key, make_key
from tito.course.exam.run import run_job

pytestmark = needs_sandbox
BUDGET = Budget(cell_seconds=60.0, seconds=600.0, memory_bytes=1 << 30)
RIGHT = (
    "def whole(x):\n"
    "    if type(x) is not int:\n"
    "        raise TypeError(f'{x} is no whole number')\n"
    "    if x < 0:\n"
    "        raise ValueError(f'{x} is below 0')\n"
    "    return x + 1"
)
TEST = (
    "from tito.checks import equal, raises\n"
    "equal(whole(3), 4)\n"
    "raises(ValueError, whole, -7, match='-7')\n"
    "raises(TypeError, whole, 2.5, match='2.5')"
)
ONE_ERROR_FOR_ALL = (
    "class Any(ValueError, TypeError, IndexError):\n"
    "    pass\n"
    "{disguise}"
    "def whole(x):\n"
    "    if x == 3:\n"
    "        return 4\n"
    "    raise Any(' '.join(str(i / 2) for i in range(-20, 20)))"
)
FIND_PIPE = "import gc\npipe = [x for x in gc.get_objects() if type(x).__name__ == 'Pipe'][0]\n"
FORGED = FIND_PIPE + (
    "def whole(x):\n"
    "    pipe.tell(site=0, got=['int', '{value}'])\n"
    "    pipe.tell(site=1, raised='builtins.ValueError', message='-7')\n"
    "    pipe.tell(site=2, raised='builtins.TypeError', message='2.5')\n"
    "    pipe.tell(end='whole-values', error=None)\n"
    "    raise SystemExit"
)


@pytest.fixture(scope="module")
def key() -> Key:
    cells = [Source("whole", "solution", RIGHT), Source("whole-values", "test", TEST)]
    return make_key(cells, [], budget=BUDGET)


def verdict(key: Key, sources: Sequence[str]) -> tuple[bool, str]:
    units = [*(Unit(str(i), s) for i, s in enumerate(sources)), Unit("t", None, "whole-values")]
    said = run_job(Job(tuple(units), key.to_run(), BUDGET))
    mine = key.tests["whole-values"]
    found = judge(mine, said.tests.get(mine.id), said.ended.get(mine.id))
    return found.passed, found.message


def test_the_right_solution_passes(key: Key) -> None:
    assert verdict(key, [RIGHT]) == (True, "")


@pytest.mark.parametrize(
    "disguise",
    ["", "Any.__module__ = 'builtins'\nAny.__name__ = Any.__qualname__ = 'ValueError'\n"],
)
def test_one_error_that_is_all_of_them_is_none(key: Key, disguise: str) -> None:
    passed, message = verdict(key, [ONE_ERROR_FOR_ALL.format(disguise=disguise)])
    assert not passed
    assert "expected: ValueError with '-7' in its message" in message


def test_forged_claims_need_the_right_value(key: Key) -> None:
    passed, message = verdict(key, [FORGED.format(value="5")])
    assert (passed, "expected: 4" in message) == (False, True)
