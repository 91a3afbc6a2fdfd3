from __future__ import annotations

import re
import runpy
from pathlib import Path

import numpy as np
import pytest

import tinytorch
from tinytorch.data import datasets
from tinytorch.errors import DataError

ROOT = Path(__file__).parents[2]


def test_digits_are_the_real_ones_each_in_one_split() -> None:
    train, test = datasets.digits("train"), datasets.digits("test")
    images = np.concatenate([s.tensors[0].numpy() for s in (train, test)])
    labels = np.concatenate([s.tensors[1].numpy() for s in (train, test)])
    assert train.tensors[0].dtype is tinytorch.float32
    assert train.tensors[1].dtype is tinytorch.int64
    assert images.shape == (1797, 1, 8, 8)
    from sklearn.datasets import load_digits  # a second of imports: not while collecting

    real = load_digits()

    def rows(images: np.ndarray, labels: np.ndarray) -> np.ndarray:
        table = np.column_stack([images.reshape(-1, 64), labels])
        return table[np.lexsort(table.T)]

    np.testing.assert_array_equal(rows(images * 16, labels), rows(real.images, real.target))


def test_the_split_is_stratified() -> None:
    train = np.bincount(datasets.digits("train").tensors[1].numpy())
    test = np.bincount(datasets.digits("test").tensors[1].numpy())
    assert (np.abs(test - (train + test) / 5) <= 0.5).all()
    sheet = (datasets.DIGITS_FILE.parent / "DATASHEET.md").read_text()
    for name, counts in (("train", train), ("test", test)):
        row = " | ".join(f"{n:,}" for n in (*counts, counts.sum()))
        assert f"| {name} | {row} |" in sheet


def test_the_tool_makes_the_shipped_file(tmp_path: Path) -> None:
    runpy.run_path(str(ROOT / "tools" / "make_digits.py"))["main"](tmp_path / "digits.npz")
    with np.load(tmp_path / "digits.npz") as made, np.load(datasets.DIGITS_FILE) as shipped:
        assert made.files == shipped.files
        for name in made.files:
            np.testing.assert_array_equal(made[name], shipped[name])
            assert made[name].dtype == shipped[name].dtype


def test_flatten() -> None:
    flat, square = datasets.digits("test", flatten=True), datasets.digits("test")
    assert flat.tensors[0].shape == (359, 64)
    np.testing.assert_array_equal(
        flat.tensors[0].numpy(), square.tensors[0].numpy().reshape(359, 64)
    )


@pytest.mark.parametrize("make", [datasets.digits, datasets.mnist, datasets.cifar10])
def test_an_unknown_split_lists_the_known_ones(make: object) -> None:
    assert callable(make)
    text = "split must be one of ['train', 'test'], got 'valid'"
    with pytest.raises(ValueError, match=re.escape(text)):
        make("valid")


def test_a_damaged_digits_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    broken = tmp_path / "digits.npz"
    monkeypatch.setattr(datasets, "DIGITS_FILE", broken)
    expected = re.escape(f"{broken}: expected test images uint8 (359, 8, 8)")
    with pytest.raises(DataError, match=f"{expected}.* found: .*No such file"):
        datasets.digits("test")

    whole = (ROOT / "tinytorch" / "data" / "digits" / "digits.npz").read_bytes()
    for content in (b"", b"not a zip", whole[: len(whole) // 2]):
        broken.write_bytes(content)
        with pytest.raises(DataError, match=expected):
            datasets.digits("test")

    flipped = bytearray(whole)
    flipped[len(whole) // 2] ^= 0xFF
    broken.write_bytes(flipped)
    with pytest.raises(DataError):
        datasets.digits("train")
        datasets.digits("test")

    np.savez(broken, test_images=np.zeros((3, 8, 8)), test_labels=np.zeros(3))
    with pytest.raises(DataError, match=re.escape("found float64 (3, 8, 8), labels float64 (3,)")):
        datasets.digits("test")
    np.savez(broken, images=np.zeros((3, 8, 8)))
    with pytest.raises(DataError, match="test_images"):
        datasets.digits("test")
