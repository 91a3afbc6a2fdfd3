from __future__ import annotations

import re
from typing import Any

import numpy as np
import pytest

import tinytorch
from tinytorch.data import collate
from tinytorch.errors import ShapeError


def test_structure_is_kept_and_leaves_are_stacked() -> None:
    samples = [
        {"image": np.full((2, 3), i, np.float64), "boxes": [(i, True), (0.5 * i, False)]}
        for i in range(4)
    ]
    batch = collate(samples)
    assert list(batch) == ["image", "boxes"]
    assert batch["image"].dtype is tinytorch.float64
    np.testing.assert_array_equal(batch["image"].numpy(), np.stack([s["image"] for s in samples]))
    (number, yes), (half, _) = batch["boxes"]
    assert [t.dtype for t in (number, yes, half)] == [
        tinytorch.int64,
        tinytorch.bool,
        tinytorch.float64,  # as in PyTorch
    ]
    assert half.tolist() == [0.0, 0.5, 1.0, 1.5]


def test_tensors_numpy_scalars_and_python_numbers() -> None:
    stacked = collate([tinytorch.tensor([1, 2]), tinytorch.tensor([3, 4])])
    assert stacked.tolist() == [[1, 2], [3, 4]] and stacked.dtype is tinytorch.int64
    assert collate([np.float32(1), np.float32(2)]).dtype is tinytorch.float32
    assert collate([1, 2.5]).tolist() == [1.0, 2.5]


@pytest.mark.parametrize(
    ("samples", "error", "text"),
    [
        ([], ShapeError, "at least one sample"),
        (
            [np.zeros((1, 8)), np.zeros((1, 8)), np.zeros((1, 9))],
            ShapeError,
            "sample 0 has (1, 8), sample 2 has (1, 9)",
        ),
        ([(1, 2), (1,)], ShapeError, "sample 0 has [0, 1], sample 1 has [0]"),
        ([{"a": 1}, {"b": 1}], ShapeError, "sample 0 has ['a'], sample 1 has ['b']"),
        ([None], TypeError, "got NoneType: pass a collate_fn"),
    ],
)
def test_errors(samples: list[Any], error: type[Exception], text: str) -> None:
    with pytest.raises(error, match=re.escape(text)):
        collate(samples)
