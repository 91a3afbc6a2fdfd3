from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import given, strategies as st

import tinytorch
from tinytorch.errors import ShapeError
from tito.checks import CheckError, check, close, difference, distance, equal, raises
from tito.lessons.wrong import EQUAL_TO_EVERYTHING


def everything() -> Any:
    names: dict[str, Any] = {}
    exec(EQUAL_TO_EVERYTHING, names)
    return names["EqualToEverything"]()


VALUES = [
    1, 1.0, True, "1", b"1", None, (1, 2), [1, 2], {"a": 1}, {1, 2}, range(3), slice(1, 2),
    math.nan, np.float32(1), np.int64(1), np.ones(2), np.ones(2, np.float32), np.ones((2, 1)),
    tinytorch.ones(2), tinytorch.ones(2, dtype=tinytorch.float64), tinytorch.float32, int, len,
    (1, (2, np.ones(1))),
]  # fmt: skip


@pytest.mark.parametrize("i", range(len(VALUES)))
def test_each_value_equals_itself_and_no_other(i: int) -> None:
    for j, other in enumerate(VALUES):
        assert (difference(VALUES[i], other) is None) == (i == j), (VALUES[i], other)


def test_a_float_of_numpy_is_a_float() -> None:
    equal([np.float64(1.5), np.float64("nan")], [1.5, math.nan])
    assert difference(np.float64(1), 1) is not None
    assert difference(np.float64(1), np.float32(1)) is not None


@pytest.mark.slow
@given(st.recursive(st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
                    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner)))  # fmt: skip
def test_any_value_equals_itself(value: Any) -> None:
    equal(value, value)


class Sly(int):
    """A number that claims to be any other."""

    def __eq__(self, other: object) -> bool:
        return True

    def __hash__(self) -> int:
        return 0


class SlyArray(np.ndarray):  # type: ignore[type-arg]
    def __eq__(self, other: object) -> Any:
        return True


class SlyTensor(tinytorch.Tensor):
    def numpy(self) -> Any:
        return np.array([7.0])

    def __eq__(self, other: object) -> Any:
        return True


class Pretender:
    __class__ = tuple  # type: ignore[assignment]

    def __eq__(self, other: object) -> bool:
        return True


@pytest.mark.parametrize(
    "got",
    [everything(), Sly(3), np.ones(2).view(SlyArray), SlyTensor([1.0]), Pretender(), [Sly(3)]],
    ids=lambda got: type(got).__name__,
)
def test_an_object_that_says_it_is_equal_is_not(got: Any) -> None:
    for expected in (7, 7.0, "x", (2,), [4], np.zeros(2), tinytorch.tensor([7.0]), True):
        assert difference(got, expected) is not None
        if not isinstance(expected, str):
            assert distance(got, expected) is not None


def test_close_takes_numbers_however_they_come() -> None:
    expected = [[1.0, 2.0], [3.0, 4.0]]
    for got in (expected, np.array(expected), tinytorch.tensor(expected), ((1, 2), (3, 4))):
        close(got, expected)
        close(expected, got)
    close([tinytorch.tensor([1.0]), np.array([2.0])], [[1.0], [2.0]])
    close(math.inf, math.inf)
    close(math.nan, math.nan)
    close(1.0 + 1e-7, 1.0)
    close(90.0, 100.0, rtol=0.2)


@pytest.mark.parametrize(
    ("got", "expected", "where"),
    [
        ([1.0, 2.0], [1.0, 3.0], r"the largest difference is at \[1\]: 2.0, expected 3.0"),
        ([[1.0], [9.0]], [[1.0], [3.0]], r"at \[1, 0\]: 9.0"),
        ([1.0], 1.0, r"its shape is \(1,\), expected \(\)"),
        (2.0, 1.0, "they differ by 1"),
        (math.nan, 1.0, "they differ by nan"),
        ("1", 1.0, "these are no numbers"),
        ([1.0, "x"], [1.0, 2.0], "these are no numbers"),
        ([[1.0], [1.0, 2.0]], [1.0], "these are no numbers"),
        (True, 1.0, "truth values are compared with truth values only"),
        (None, 1.0, "it returned None: is a `return` missing?"),
        (1e-3, 0.0, "they differ by 0.001"),
    ],
)
def test_close_says_where(got: Any, expected: Any, where: str) -> None:
    with pytest.raises(CheckError, match=where):
        close(got, expected)


def test_close_refuses_an_expectation_that_is_no_number() -> None:
    with pytest.raises(TypeError, match="close compares numbers; expected is 'x'"):
        close(1.0, "x")


@pytest.mark.parametrize(
    ("got", "expected", "where"),
    [
        ([1, (2, None)], [1, (2, 3)], r"at \[1\]\[1\]: its type is NoneType, expected int"),
        ({"a": 1}, {"b": 1}, r"its keys are \['a'\], expected \['b'\]"),
        ({"a": 1}, {"a": 2}, r"at \['a'\]"),
        ([1], [1, 2], "it has 1 elements, expected 2"),
        (np.ones(2), tinytorch.ones(2), "it is a NumPy array, expected a tensor"),
        (tinytorch.ones(2), tinytorch.ones(3), r"its shape is \(2,\), expected \(3,\)"),
        (tinytorch.ones(2), tinytorch.ones(2, dtype=tinytorch.int64), "its dtype is float32, exp"),
        (object(), 1, "an object of type object is no value that can be compared"),
        (np.int64(2), 2, "its type is NumPy number of int64, expected int"),
        ([np.ones(2)], [[1.0, 1.0]], "its type is NumPy array of float64, expected list"),
        (len, 2, "its type is object, expected int"),
    ],
)
def test_equal_says_where(got: Any, expected: Any, where: str) -> None:
    with pytest.raises(CheckError, match=where):
        equal(got, expected)


def message(function: Callable[[], None]) -> str:
    with pytest.raises(CheckError) as error:
        function()
    return str(error.value)


def double(x: Any) -> Any:
    return x + x


def test_a_message_has_the_call_the_expectation_the_finding_and_a_hint() -> None:
    assert message(lambda: equal(double((3, 1)), (6, 2), hint="element by element")) == (
        "double((3, 1))\n"
        "  expected: (6, 2)\n"
        "  got:      (3, 1, 3, 1)\n"
        "  where:    it has 4 elements, expected 2\n"
        "  hint:     element by element"
    )


def test_a_call_over_several_lines_is_shown_on_one() -> None:
    text = message(
        lambda: close(
            double(
                2.0,
            ),
            3.0,
        )
    )
    assert text.startswith("double(2.0)\n  expected: 3.0\n  got:      4.0\n")


def test_code_without_source_gets_a_message_all_the_same() -> None:
    with pytest.raises(CheckError, match=r"^not what was expected\n  expected: 2\n  got:      1$"):
        exec(compile("equal(1, 2)", "<nowhere>", "exec"), {"equal": equal})


def test_a_long_value_is_cut() -> None:
    text = message(lambda: equal(list(range(1000)), [1]))
    assert len(text) < 500 and "..." in text


def fail(error: BaseException) -> None:
    raise error


class SlyText(str):
    def __contains__(self, part: object) -> bool:
        return True


def test_raises() -> None:
    raises(ValueError, int, "x", match="invalid literal")
    raises(LookupError, fail, KeyError("a"))
    raises(NotImplementedError, fail, NotImplementedError())
    assert message(lambda: raises(ValueError, double, 3, hint="odd")) == (
        "double(3)\n  expected: ValueError\n  got:      no error; it returned 6\n  hint:     odd"
    )
    assert message(lambda: raises(ValueError, double, x=3, match="m")).startswith(
        "double(x=3)\n  expected: ValueError with 'm' in its message\n"
    )
    assert message(lambda: raises(ValueError, lambda: double(3) + 1)).startswith("double(3) + 1\n")
    assert "got:      TypeError: no" in message(lambda: raises(ValueError, fail, TypeError("no")))
    assert "got:      ValueError: no" in message(
        lambda: raises(ValueError, fail, ValueError("no"), match="yes")
    )


def test_what_is_not_written_raises_nothing_that_counts() -> None:
    for error in (NotImplementedError, RuntimeError, Exception):
        if error is not NotImplementedError:
            with pytest.raises(NotImplementedError, match="not written yet"):
                raises(error, fail, NotImplementedError("not written yet"))


def test_a_message_that_claims_to_contain_everything() -> None:
    class SlyError(ValueError):
        def __str__(self) -> str:
            return SlyText("no")

    with pytest.raises(CheckError):
        raises(ValueError, fail, SlyError(), match="yes")


class AnyError(ValueError, IndexError, TypeError):
    """One error for everything."""


class Disguised(AnyError):
    __module__ = "builtins"


Disguised.__name__ = "UnicodeError"


@pytest.mark.parametrize(
    "error", [AnyError("yes"), Disguised("yes"), ValueError("x" * 300 + "yes")]
)
def test_an_error_that_would_be_any_error(error: ValueError) -> None:
    with pytest.raises(CheckError, match="expected: ValueError with 'yes' in its message"):
        raises(ValueError, fail, error, match="yes")
    raises(ValueError, fail, ShapeError("yes"), match="yes")


def test_check() -> None:
    check(1 < 2, "one is less")
    check(np.float64(1) < 2, "one is less")
    for condition in (False, np.False_, None, 1, everything()):
        with pytest.raises(CheckError, match=r"^one is less"):
            check(condition, "one is less")
    assert message(lambda: check(False, "no", hint="look")) == "no\n  hint:     look"
