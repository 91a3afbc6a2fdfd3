"""Values to JSON and back: exactly, and nothing else."""

from __future__ import annotations

import json
import math
from typing import Any

import numpy as np
import pytest
from hypothesis import given, strategies as st

import tinytorch
from tito.checks import difference
from tito.course.exam.values import ClassName, Opaque, ValueFormatError, decode, encode

plain = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False)
    | st.text(st.characters(codec="utf-8"))
    | st.binary(),
    lambda inner: (
        st.lists(inner, max_size=4)
        | st.lists(inner, max_size=4).map(tuple)
        | st.dictionaries(st.text(st.characters(codec="utf-8"), max_size=3), inner, max_size=4)
    ),
    max_leaves=12,
)


def there_and_back(value: Any) -> Any:
    return decode(json.loads(json.dumps(encode(value))))


@given(plain)
def test_plain_data_comes_back_the_same(value: Any) -> None:
    assert repr(there_and_back(value)) == repr(value)


@pytest.mark.parametrize(
    "value",
    [
        np.arange(6, dtype=np.int32).reshape(2, 3),
        np.zeros((0, 3), np.float16),
        np.array(True),
        np.float64(2.5),
        np.asfortranarray(np.arange(6.0).reshape(2, 3)),
        tinytorch.tensor([[1.0, 2.0]]),
        tinytorch.float32,
        {1: (np.arange(2), {2, 3})},
        float("inf"),
        10**200,
        1 - 2j,
    ],
    ids=repr,
)
def test_numbers_keep_type_and_shape(value: Any) -> None:
    again = there_and_back(value)
    assert type(again) is type(value)
    assert difference(again, value) is None


def test_nan_stays_nan_and_a_dtype_a_dtype() -> None:
    assert math.isnan(there_and_back(float("nan")))
    assert there_and_back(np.dtype("float32")) == np.dtype("float32")


def test_one_and_true_and_a_float_stay_apart() -> None:
    assert [type(v) for v in there_and_back([1, True, 1.0, np.int64(1)])] == [
        int, bool, float, np.int64
    ]  # fmt: skip


class EqualToAll(int):
    def __eq__(self, other: object) -> bool:
        return True

    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        raise ZeroDivisionError


def test_an_object_of_the_students_is_opaque_and_equals_nothing() -> None:
    found = there_and_back(EqualToAll(3))
    assert type(found) is Opaque
    assert found.type_name.endswith("EqualToAll")
    assert "ZeroDivisionError" in found.text
    assert difference(found, 3) is not None
    assert there_and_back(EqualToAll) == ClassName(f"{__name__}.EqualToAll")


def test_what_refers_to_itself_has_an_end() -> None:
    endless: list[Any] = []
    endless.append(endless)
    assert "opaque" in json.dumps(encode(endless))


@pytest.mark.parametrize(
    "data",
    [
        None,
        3,
        [],
        ["no such tag"],
        ["int"],
        ["int", 5],
        ["int", "1" * 5000],
        ["bool", 1],
        ["array", "<f8", [2], ""],
        ["array", "|O", [1], "AAAAAAAAAAA="],
        ["array", "<f8", [-1], ""],
        ["array", "<f8", [10**12, 10**12], ""],
        ["float", "x"],
        ["dict", [["tuple", [["list", []], ["none"]]]]],
        ["tuple", 3],
        ["tinytorch dtype", "float128"],
        ["class"],
    ],
    ids=lambda data: repr(data)[:40],
)
def test_anything_else_is_refused(data: Any) -> None:
    with pytest.raises(ValueFormatError):
        decode(data)


def test_depth_is_limited() -> None:
    data: list[Any] = ["none"]
    for _ in range(200):
        data = ["list", [data]]
    with pytest.raises(ValueFormatError):
        decode(data)
