"""CIFAR-10, from its binary version: the Python version is a pickle, which can run code."""

from __future__ import annotations

import tarfile
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from tinytorch.data.dataset import TensorDataset
from tinytorch.data.download import RemoteFile, fetch
from tinytorch.data.images import Split, image_dataset, of_split
from tinytorch.dtypes import Array
from tinytorch.errors import DataError

CLASSES = (
    "airplane",
    "automobile",
    "bird",
    "cat",
    "deer",
    "dog",
    "frog",
    "horse",
    "ship",
    "truck",
)
ARCHIVE = RemoteFile(
    name="cifar-10-binary.tar.gz",
    urls=("https://www.cs.toronto.edu/~kriz/cifar-10-binary.tar.gz",),
    size=170_052_171,
    sha256="c4a38c50a1bc5f3a1c5537f2155ab9d68f9f25eb1ed8d9ddda3db29a59bca1dd",
)
BATCHES: dict[Split, tuple[str, ...]] = {
    "train": tuple(f"cifar-10-batches-bin/data_batch_{i}.bin" for i in range(1, 6)),
    "test": ("cifar-10-batches-bin/test_batch.bin",),
}
IMAGE_SHAPE = (3, 32, 32)
RECORD = 1 + 3 * 32 * 32  # label, then the red, the green and the blue plane


def cifar10(
    split: Split = "train", flatten: bool = False, *, root: str | Path | None = None
) -> TensorDataset:
    """60,000 colour photographs of 32x32 pixels in ten classes, downloaded on first use (170 MB).

    Args:
        split: "train" (50,000 images) or "test" (10,000).
        flatten: give images as (N, 3072) instead of (N, 3, 32, 32).
        root: where the archive is kept; by default `cache_root() / "cifar10"`.

    Returns:
        A dataset of (image, label): float32 in [0, 1], and int64 indices of `cifar10.CLASSES`.
        Train takes 614 MB.

    Raises:
        DataError: the archive cannot be downloaded, or is truncated or corrupt.

    Source: A. Krizhevsky, "Learning multiple layers of features from tiny images", 2009.
    """
    names = of_split(BATCHES, split)
    archive = fetch(ARCHIVE, root, "cifar10")
    records = np.concatenate(read_batches(archive, names))
    images = records[:, 1:].reshape(-1, *IMAGE_SHAPE)
    return image_dataset(
        images, records[:, 0], white=255, classes=10, flatten=flatten, source=str(archive)
    )


def read_batches(archive: Path, names: Sequence[str]) -> list[Array]:
    """The records of the named members of a CIFAR-10 binary archive: uint8 (count, 3073) each.

    The archive is read as a stream and nothing is extracted to disk.

    Raises:
        DataError: a broken archive, a missing member, or one that is not a number of records.
    """
    content: dict[str, bytes] = {}
    try:
        with tarfile.open(archive, "r|gz") as members:
            for member in members:
                stream = members.extractfile(member)  # None for a directory
                if member.name in names and stream is not None:
                    content[member.name] = stream.read()
    except (OSError, tarfile.TarError) as error:
        raise DataError(f"{archive}: expected a tar.gz archive, found: {error}") from error
    for name in names:
        if name not in content:
            raise DataError(f"{archive}: expected a member {name}, found {sorted(content)}")
        if not content[name] or len(content[name]) % RECORD:
            raise DataError(
                f"{archive}, {name}: expected a multiple of {RECORD} bytes, "
                f"found {len(content[name])}"
            )
    return [np.frombuffer(content[name], np.uint8).reshape(-1, RECORD) for name in names]
