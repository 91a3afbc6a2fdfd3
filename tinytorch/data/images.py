"""`image_dataset`: what every loader of labelled images does with the bytes it has read."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal, TypeVar

import numpy as np

from tinytorch.creation import from_numpy
from tinytorch.data.dataset import TensorDataset
from tinytorch.dtypes import Array
from tinytorch.errors import DataError

Split = Literal["train", "test"]
T = TypeVar("T")


def of_split(table: Mapping[Split, T], split: Split) -> T:
    """The entry of `split`; a ValueError that lists the splits if there is none."""
    if split not in table:
        raise ValueError(f"split must be one of {list(table)}, got {split!r}")
    return table[split]


def image_dataset(
    images: Array, labels: Array, *, white: int, classes: int, flatten: bool, source: str
) -> TensorDataset:
    """Bytes to (image / white, label), as a dataset of float32 and int64 tensors.

    Args:
        images: uint8 (N, C, H, W).
        labels: uint8 (N,).
        white: the byte that becomes 1.
        classes: labels are 0..classes-1.
        flatten: give images as (N, C*H*W).
        source: the files, for the error.

    Raises:
        DataError: images and labels differ in number, or a value is out of range.
    """
    if len(images) != len(labels):
        raise DataError(
            f"{source}: expected a label per image, found {len(images)} images and "
            f"{len(labels)} labels"
        )
    for name, values, most in (("pixels", images, white), ("labels", labels, classes - 1)):
        if values.max(initial=0) > most:
            raise DataError(f"{source}: expected {name} of at most {most}, found {values.max()}")
    pixels = images.astype(np.float32)
    pixels /= white
    if flatten:
        pixels = pixels.reshape(len(pixels), -1)
    return TensorDataset(from_numpy(pixels), from_numpy(labels.astype(np.int64)))
