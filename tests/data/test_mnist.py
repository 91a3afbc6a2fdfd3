"""MNIST's loader on small files in MNIST's own format."""

from __future__ import annotations

import gzip
import hashlib
import re
import struct
from pathlib import Path

import numpy as np
import pytest

from tinytorch.data import datasets, mnist as module
from tinytorch.data.download import RemoteFile
from tinytorch.data.mnist import read_idx
from tinytorch.dtypes import Array
from tinytorch.errors import DataError


def idx(array: Array) -> bytes:
    """The bytes of an IDX file, written independently of the reader."""
    return struct.pack(f">BBBB{array.ndim}I", 0, 0, 8, array.ndim, *array.shape) + array.tobytes()


def put(path: Path, content: bytes) -> RemoteFile:
    path.write_bytes(content)
    return RemoteFile(path.name, (), len(content), hashlib.sha256(content).hexdigest())


def install(root: Path, monkeypatch: pytest.MonkeyPatch, images: Array, labels: Array) -> None:
    files = (
        put(root / "images.gz", gzip.compress(idx(images))),
        put(root / "labels.gz", gzip.compress(idx(labels))),
    )
    monkeypatch.setitem(module.FILES, "test", files)


@pytest.mark.parametrize("suffix", ["", ".gz"])
def test_idx(suffix: str, tmp_path: Path, rng: np.random.Generator) -> None:
    array = rng.integers(256, size=(3, 5, 4), dtype=np.uint8)
    path = tmp_path / f"array{suffix}"
    path.write_bytes(gzip.compress(idx(array)) if suffix else idx(array))
    np.testing.assert_array_equal(read_idx(path, ndim=3), array)


def test_images_and_labels(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, rng: np.random.Generator
) -> None:
    images = rng.integers(256, size=(6, 28, 28), dtype=np.uint8)
    labels = np.array([9, 0, 3, 1, 4, 1], np.uint8)
    install(tmp_path, monkeypatch, images, labels)
    dataset = datasets.mnist("test", root=tmp_path)
    pixels, digits = (t.numpy() for t in dataset.tensors)
    assert (pixels.dtype, digits.dtype) == (np.float32, np.int64)
    np.testing.assert_array_equal(pixels, images[:, None] / np.float32(255))
    np.testing.assert_array_equal(digits, labels)
    flat = datasets.mnist("test", flatten=True, root=tmp_path).tensors[0]
    np.testing.assert_array_equal(flat.numpy(), pixels.reshape(6, 784))


IMAGES = idx(np.ones((2, 3, 4), np.uint8))


@pytest.mark.parametrize(
    ("content", "text"),
    [
        (b"", "expected magic 0x00000803, found 0x"),
        (idx(np.ones(3, np.uint8)), "expected magic 0x00000803, found 0x00000801"),
        (b"\0\0\x0d\3" + IMAGES[4:], "expected magic 0x00000803, found 0x00000d03"),
        (IMAGES[:9], "expected a header of 16 bytes, found 9"),
        (IMAGES[:-1], "expected 24 values for shape (2, 3, 4), found 23"),
        (IMAGES + b"\0", "expected 24 values for shape (2, 3, 4), found 25"),
        (IMAGES[:4] + b"\xff" * 12, "for shape (4294967295, 4294967295, 4294967295), found 0"),
    ],
)
def test_damaged_idx(content: bytes, text: str, tmp_path: Path) -> None:
    path = tmp_path / "images"
    path.write_bytes(content)
    with pytest.raises(DataError, match=re.escape(f"{path}: ") + ".*" + re.escape(text)):
        read_idx(path, ndim=3)


def test_a_missing_idx_file_and_damaged_gzip(tmp_path: Path) -> None:
    path = tmp_path / "images.gz"
    expected = re.escape(f"{path}: expected a whole (gzipped) IDX file, found: ")
    with pytest.raises(DataError, match=expected + ".*No such file"):
        read_idx(path, ndim=3)
    whole = gzip.compress(IMAGES, mtime=0)
    wrong_sum = whole[:-8] + bytes(4) + whole[-4:]
    wrong_block = whole[:10] + b"\xff" + whole[11:]
    for content in (whole[:-9], b"no gzip at all", wrong_sum, wrong_block):
        path.write_bytes(content)
        with pytest.raises(DataError, match=expected):
            read_idx(path, ndim=3)


@pytest.mark.parametrize(
    ("labels", "text"),
    [
        ([1, 2], "expected a label per image, found 3 images and 2 labels"),
        ([1, 2, 10], "expected labels of at most 9, found 10"),
    ],
)
def test_labels_that_do_not_fit(
    labels: list[int], text: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    images = np.zeros((3, 28, 28), np.uint8)
    install(tmp_path, monkeypatch, images, np.array(labels, np.uint8))
    with pytest.raises(
        DataError, match=re.escape(f"{tmp_path / 'images.gz'} and labels.gz: {text}")
    ):
        datasets.mnist("test", root=tmp_path)
