from __future__ import annotations

import numpy as np
import pytest

from tinytorch.data import DataLoader
from tinytorch.errors import DTypeError, ShapeError
from tinytorch.text import Windows


def test_each_token_but_the_first_is_a_target_once() -> None:
    ids = np.arange(100, 113, dtype=np.int32)
    windows = Windows(ids, 4)
    assert len(windows) == 3
    inputs, targets = windows.get_batch(range(3))
    assert inputs.numpy().tolist() == ids[:12].reshape(3, 4).tolist()
    assert targets.numpy().tolist() == ids[1:].reshape(3, 4).tolist()
    assert inputs.dtype.name == "int64"
    assert windows[-1][1].tolist() == [109, 110, 111, 112]


def test_a_stride_overlaps() -> None:
    windows = Windows(range(6), 3, stride=1)
    assert [w[0].tolist() for w in windows] == [[0, 1, 2], [1, 2, 3], [2, 3, 4]]


def test_a_seed_gives_an_order() -> None:
    def order(seed: int) -> list[object]:
        loader = DataLoader(Windows(range(50), 5), batch_size=3, shuffle=True, generator=seed)
        return [(x.tolist(), y.tolist()) for x, y in loader]

    assert order(1) == order(1) != order(2)


def test_bad_input_is_named() -> None:
    with pytest.raises(ShapeError, match=r"at least 6 tokens, got shape \(5,\)"):
        Windows(range(5), 5)
    with pytest.raises(ShapeError, match=r"got shape \(2, 5\)"):
        Windows(np.zeros((2, 5)), 2)
    with pytest.raises(ValueError, match="length and stride must be at least 1: 3, 0"):
        Windows(range(5), 3, stride=0)
    with pytest.raises(TypeError, match="'float' object cannot be interpreted as an integer"):
        Windows(range(5), 1.5)  # type: ignore[arg-type]
    with pytest.raises(DTypeError, match="windows need ids, which are integers, got float64"):
        Windows([1.5, 2.5, 3.5], 2)
    for wrong in (-1, 2):
        with pytest.raises(IndexError, match=f"window {wrong} of 2"):
            Windows(range(5), 2).get_batch([0, wrong])
    with pytest.raises(IndexError, match="window 1 of 1"):
        Windows(range(5), 4)[1]
