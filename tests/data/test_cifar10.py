"""CIFAR-10's loader on small archives in CIFAR-10's own format."""

from __future__ import annotations

import hashlib
import io
import re
import tarfile
from pathlib import Path

import numpy as np
import pytest

from tinytorch.data import cifar10 as module, datasets
from tinytorch.data.cifar10 import read_batches
from tinytorch.data.download import RemoteFile
from tinytorch.dtypes import Array
from tinytorch.errors import DataError


def pack(members: dict[str, bytes]) -> bytes:
    stream = io.BytesIO()
    with tarfile.open(fileobj=stream, mode="w:gz") as archive:
        folder = tarfile.TarInfo("cifar-10-batches-bin")
        folder.type = tarfile.DIRTYPE
        archive.addfile(folder)
        for name, content in members.items():
            info = tarfile.TarInfo(name)
            info.size = len(content)
            archive.addfile(info, io.BytesIO(content))
    return stream.getvalue()


def batch(images: Array, labels: Array) -> bytes:
    return b"".join(
        bytes([label]) + image.tobytes() for image, label in zip(images, labels, strict=True)
    )


@pytest.fixture
def photos(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, rng: np.random.Generator
) -> tuple[Array, Array]:
    """14 images: two in each of five training batches, stored out of order, and four for test."""
    images = rng.integers(256, size=(14, 3, 32, 32), dtype=np.uint8)
    labels = rng.integers(10, size=14, dtype=np.uint8)
    parts = {
        f"cifar-10-batches-bin/data_batch_{i + 1}.bin": batch(
            images[2 * i : 2 * i + 2], labels[2 * i : 2 * i + 2]
        )
        for i in (3, 0, 4, 2, 1)
    }
    parts["cifar-10-batches-bin/readme.html"] = b"<html>"
    parts["cifar-10-batches-bin/test_batch.bin"] = batch(images[10:], labels[10:])
    content = pack(parts)
    (tmp_path / "archive.tar.gz").write_bytes(content)
    file = RemoteFile("archive.tar.gz", (), len(content), hashlib.sha256(content).hexdigest())
    monkeypatch.setattr(module, "ARCHIVE", file)
    return images, labels


def test_images_and_labels(photos: tuple[Array, Array], tmp_path: Path) -> None:
    images, labels = photos
    for split, rows in (("train", slice(0, 10)), ("test", slice(10, 14))):
        pixels, classes = datasets.cifar10(split, root=tmp_path).tensors
        np.testing.assert_array_equal(pixels.numpy(), images[rows] / np.float32(255))
        np.testing.assert_array_equal(classes.numpy(), labels[rows])
    assert datasets.cifar10("test", flatten=True, root=tmp_path).tensors[0].shape == (4, 3072)
    assert len(module.CLASSES) == 10


def test_a_label_out_of_range(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    record = batch(np.zeros((1, 3, 32, 32), np.uint8), np.array([10]))
    content = pack({"cifar-10-batches-bin/test_batch.bin": record})
    (tmp_path / "a.tar.gz").write_bytes(content)
    file = RemoteFile("a.tar.gz", (), len(content), hashlib.sha256(content).hexdigest())
    monkeypatch.setattr(module, "ARCHIVE", file)
    with pytest.raises(DataError, match="expected labels of at most 9, found 10"):
        datasets.cifar10("test", root=tmp_path)


def test_damaged_archives(tmp_path: Path) -> None:
    path = tmp_path / "archive.tar.gz"
    whole = pack({"part.bin": np.random.default_rng(0).bytes(3 * 3073)})
    flipped = whole[:1000] + b"\xff" * 1000 + whole[2000:]
    for content in (b"", b"no archive", whole[:-100], whole[: len(whole) // 2], flipped):
        path.write_bytes(content)
        with pytest.raises(DataError, match=re.escape(f"{path}: expected a tar.gz archive")):
            read_batches(path, ["part.bin"])


@pytest.mark.parametrize(
    ("members", "text"),
    [
        ({"a": b"", "b": b""}, "expected a member part.bin, found []"),
        ({"part.bin": bytes(3072)}, "part.bin: expected a multiple of 3073 bytes, found 3072"),
        ({"part.bin": b""}, "part.bin: expected a multiple of 3073 bytes, found 0"),
    ],
)
def test_members_that_do_not_fit(members: dict[str, bytes], text: str, tmp_path: Path) -> None:
    path = tmp_path / "archive.tar.gz"
    path.write_bytes(pack(members))
    with pytest.raises(DataError, match=re.escape(text)):
        read_batches(path, ["part.bin"])
