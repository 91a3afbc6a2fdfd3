"""The shelf of datasets. `mnist` and `cifar10` download once; the others need no network."""

from __future__ import annotations

import io
import zipfile
from pathlib import Path

import numpy as np

from tinytorch.data.cifar10 import cifar10
from tinytorch.data.dataset import TensorDataset
from tinytorch.data.images import Split, image_dataset, of_split
from tinytorch.data.mnist import mnist
from tinytorch.data.synthetic import spirals, two_moons
from tinytorch.errors import DataError

__all__ = ["cifar10", "digits", "mnist", "spirals", "two_moons"]

DIGITS_FILE = Path(__file__).parent / "digits" / "digits.npz"
DIGITS_COUNT: dict[Split, int] = {"train": 1438, "test": 359}


def digits(split: Split = "train", flatten: bool = False) -> TensorDataset:
    """1,797 real handwritten digits of 8x8 pixels, shipped with TinyTorch.

    The split is fixed and stratified: of each digit a fifth is in "test". Both splits hold digits
    of the same 13 writers; what follows from that is in `digits/DATASHEET.md`.

    Args:
        split: "train" (1,438 images) or "test" (359).
        flatten: give images as (N, 64) instead of (N, 1, 8, 8).

    Returns:
        A dataset of (image, label): float32 in [0, 1], and int64 0..9.

    Raises:
        DataError: the shipped file is missing or corrupt.

    >>> images, labels = digits("test").tensors
    >>> images.shape, labels.shape
    ((359, 1, 8, 8), (359,))

    Source: E. Alpaydin and C. Kaynak, "Optical Recognition of Handwritten Digits", UCI Machine
    Learning Repository, 1998; the selection of scikit-learn's `load_digits`.
    """
    count = of_split(DIGITS_COUNT, split)
    expected = f"{DIGITS_FILE}: expected {split} images uint8 ({count}, 8, 8) and a label each"
    try:
        with np.load(io.BytesIO(DIGITS_FILE.read_bytes()), allow_pickle=False) as file:
            images, labels = file[f"{split}_images"], file[f"{split}_labels"]
    except (OSError, ValueError, KeyError, EOFError, zipfile.BadZipFile) as error:
        raise DataError(f"{expected}, found: {error}; reinstall tinytorch") from error
    if (images.shape, images.dtype, labels.dtype) != ((count, 8, 8), np.uint8, np.uint8):
        found = f"{images.dtype} {images.shape}, labels {labels.dtype} {labels.shape}"
        raise DataError(f"{expected}, found {found}; reinstall tinytorch")
    source = f"{DIGITS_FILE}, {split}"
    return image_dataset(
        images[:, None], labels, white=16, classes=10, flatten=flatten, source=source
    )
