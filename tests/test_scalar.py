"""Scalar definitions said in another vocabulary: here Python's own, on NumPy arrays."""

from __future__ import annotations

import math
from collections.abc import Sequence
from random import Random
from typing import Any

import numpy as np
import pytest

import tinytorch
from tests.user_ops import DEFINITIONS, registered
from tinytorch import dtype_rules
from tinytorch.dispatch import apply
from tinytorch.dtypes import DType, Shape
from tinytorch.op import OPS
from tinytorch.ops import elementwise
from tinytorch.scalar import Number, ScalarError, Vocabulary, describe
from tinytorch.tensor import Tensor
from tinytorch.testing.op_samples import admitted_dtypes, draw_sample


class NumpyVocabulary(Vocabulary[Any]):
    """Words that are executed at once, by ops of the table; it notes them."""

    def __init__(self) -> None:
        self.said: list[str] = []

    def constant(self, value: Number, dtype: DType) -> Any:
        return np.asarray(value, dtype.dtype)

    def cast(self, value: Any, dtype: DType) -> Any:
        self.said.append("cast")
        return value.astype(dtype.dtype)

    def expand(self, value: Any, shape: Shape, dtype: DType) -> Any:
        return np.broadcast_to(value, shape)

    def word(self, name: str, operands: Sequence[Any], dtype: DType) -> Any:
        self.said.append(name)
        values = operands[1:] if name == "where" else operands
        assert all(x.dtype == dtype.dtype for x in values), "operands have the dtype that is said"
        theirs = {"gt": np.greater, "ge": np.greater_equal, "copysign": np.copysign}
        if name in theirs:
            return theirs[name](*operands)
        return apply(OPS[name], *[tinytorch.tensor(x) for x in operands]).numpy()


def described(name: str, given: Sequence[Any]) -> tuple[Any, list[str]]:
    vocabulary = NumpyVocabulary()
    metas = [x.meta if isinstance(x, Tensor) else type(x) for x in given]
    wanted, _ = OPS[name]._dtype_rule(name, metas, {})
    operands = [
        x.numpy().astype(w.dtype) if isinstance(x, Tensor) else x
        for x, w in zip(given, wanted, strict=True)
    ]
    return describe(OPS[name], operands, metas, vocabulary), vocabulary.said


@pytest.mark.parametrize("name", sorted(n for n, op in OPS.items() if op.kind == "elementwise"))
def test_a_description_means_what_the_op_does(name: str) -> None:
    random = Random(name)
    with tinytorch.using_backend("numpy"), np.errstate(all="ignore"):
        for dtype in admitted_dtypes(name):
            for _ in range(4):
                drawn = draw_sample(name, random, style="finite", dtype=dtype).tensors()
                given = [x.item() if isinstance(x, np.generic) else x for x in drawn]
                expected = apply(OPS[name], *given).numpy()
                actual, _ = described(name, given)
                assert actual.dtype == expected.dtype and actual.shape == expected.shape
                np.testing.assert_allclose(actual, expected, rtol=1e-2, atol=1e-3)


def test_one_word_is_one_word() -> None:
    x = tinytorch.tensor([1.0, 2.0])
    for name in ("neg", "abs", "tanh", "exp", "sqrt", "floor"):
        assert described(name, [x])[1] == [name]
    for name in ("add", "atan2", "lt", "remainder"):
        assert described(name, [x, x])[1] == [name]
    assert described("relu", [x])[1] == ["gt", "where"]
    assert described("relu_backward", [x, x])[1] == ["le", "where"]


def test_an_operand_that_does_not_matter_counts_with_its_shape() -> None:
    rows, one = tinytorch.ones(2, 3), tinytorch.tensor(5.0)
    assert described("where", [True, one, rows])[0].tolist() == [[5.0] * 3] * 2
    assert described("logical_or", [True, rows])[0].tolist() == [[True] * 3] * 2


@pytest.mark.parametrize("definition", DEFINITIONS, ids=lambda f: f.__name__)
def test_what_a_user_writes_is_described(definition: Any) -> None:
    x = tinytorch.tensor(np.linspace(-3, 3, 25))
    with registered(definition, dtype_rules.floating) as op, tinytorch.using_backend("naive"):
        given = [x, x.flip(0)][: len(op.inputs)]
        expected = apply(op, *given).numpy()
        np.testing.assert_allclose(described(op.name, given)[0], expected, rtol=1e-12)


def looping(a):  # type: ignore[no-untyped-def]
    while a > 1:
        a = a / 2
    return a


def silent(a):  # type: ignore[no-untyped-def]
    if a > 0:
        return a


def foreign(a):  # type: ignore[no-untyped-def]
    return np.sin(a)


@pytest.mark.parametrize(
    ("definition", "message"),
    [
        (looping, r"test_scalar.py:\d+: `while a > 1:` is no assignment, `if` or `return`"),
        (silent, r"test_scalar.py:\d+: `if a > 0:` is the last line, and returns nothing"),
        (foreign, r"`np.sin\(a\)` calls <ufunc 'sin'>; a target is told of abs, acos, "),
    ],
)
def test_what_cannot_be_said_is_named_with_its_line(definition: Any, message: str) -> None:
    with (
        registered(definition, dtype_rules.floating) as op,
        pytest.raises(ScalarError, match=message),
    ):
        described(op.name, [tinytorch.tensor([1.0])])


def test_a_definition_without_source_is_refused() -> None:
    names: dict[str, Any] = {"math": math}
    exec("def unseen(a):\n    return math.exp(a)", names)
    op = elementwise(dtype_rules.floating)(names["unseen"])
    try:
        with pytest.raises(ScalarError, match="the source of unseen is not at hand"):
            described(op.name, [tinytorch.tensor([1.0])])
    finally:
        del OPS["unseen"]
