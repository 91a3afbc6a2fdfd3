"""Transforms of image batches: arrays (N, C, H, W) in, arrays out, randomness passed in.

A `Transform` is any function `transform(images, generator)`. `DataLoader(transform=...)` calls it
on each batch with a generator made for that batch, so augmentation is reproducible and resumable.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from tinytorch.creation import from_numpy
from tinytorch.dtypes import Array
from tinytorch.errors import DTypeError, ShapeError
from tinytorch.tensor import Tensor

Transform = Callable[[Array, np.random.Generator], Array]


def to_tensor(images: Array) -> Tensor:
    """pixel / 255, channels first: uint8 images, as files hold them, to a float32 Tensor.

    Args:
        images: uint8 of shape (H, W), (H, W, C) or (N, H, W, C).

    Returns:
        Values in [0, 1], of shape (1, H, W), (C, H, W) or (N, C, H, W).

    Raises:
        DTypeError: the array is not uint8, so what white is would be a guess.
        ShapeError: it has another number of dimensions.

    >>> import numpy as np
    >>> to_tensor(np.full((32, 24, 3), 255, np.uint8)).shape
    (3, 32, 24)
    """
    if images.dtype != np.uint8:
        raise DTypeError(f"to_tensor takes uint8 images, got {images.dtype}")
    if images.ndim not in (2, 3, 4):
        raise ShapeError(f"to_tensor takes (H, W), (H, W, C) or (N, H, W, C), got {images.shape}")
    if images.ndim == 2:
        images = images[..., np.newaxis]
    return from_numpy(np.ascontiguousarray(np.moveaxis(images, -1, -3)) / np.float32(255))


class Compose:
    """The transforms one after the other, all drawing from the same generator.

    >>> import numpy as np
    >>> augment = Compose([RandomCrop(32, padding=4), RandomHorizontalFlip()])
    >>> augment(np.zeros((8, 3, 32, 32), np.float32), np.random.default_rng(0)).shape
    (8, 3, 32, 32)
    """

    def __init__(self, transforms: Sequence[Transform]) -> None:
        self.transforms = list(transforms)

    def __call__(self, images: Array, generator: np.random.Generator) -> Array:
        for transform in self.transforms:
            images = transform(images, generator)
        return images


class Normalize:
    """(x - mean[c]) / std[c] for each channel c.

    Args:
        mean, std: one value per channel, or one for all.

    Raises:
        ValueError: a std is not positive, or there are not as many as means.
    """

    def __init__(self, mean: float | Sequence[float], std: float | Sequence[float]) -> None:
        self.mean, self.std = np.atleast_1d(mean), np.atleast_1d(std)
        if self.mean.shape != self.std.shape or not (self.std > 0).all():
            raise ValueError(f"Normalize needs a positive std per mean, got {mean} and {std}")

    def __call__(self, images: Array, generator: np.random.Generator) -> Array:
        """Images (N, C, H, W) normalized, in their dtype; nothing is drawn.

        `self.mean` and `self.std` are arrays of one value, or of one for each channel.

        Raises:
            ShapeError: there are neither one nor C means.
            ShapeError, DTypeError: the images have another number of dimensions, or are integers
                (`_float_image_shape(images)` gives N, C, H, W, or raises).
        """
        _, channels, _, _ = _float_image_shape(images)
        if len(self.mean) not in (1, channels):
            raise ShapeError(f"Normalize has {len(self.mean)} means for images {images.shape}")
        mean, std = (v.astype(images.dtype)[:, None, None] for v in (self.mean, self.std))
        normalized: Array = (images - mean) / std
        return normalized


class RandomHorizontalFlip:
    """Each image mirrored left to right with probability `p`."""

    def __init__(self, p: float = 0.5) -> None:
        if not 0 <= p <= 1:
            raise ValueError(f"a probability lies in [0, 1], got {p}")
        self.p = p

    def __call__(self, images: Array, generator: np.random.Generator) -> Array:
        """Images (N, C, H, W), new ones: image i is mirrored where the i-th of N draws of
        `generator.random` is below `self.p`.
        """
        count, _, _, _ = _image_shape(images)
        flipped = generator.random(count) < self.p
        return np.where(flipped[:, None, None, None], images[..., ::-1], images)


class RandomCrop:
    """A window of `size` from each image, anywhere, after padding all sides by zeros.

    Args:
        size: height and width, or one number for both.
        padding: zeros on each of the four sides, so that a crop can also shift the image.

    Raises:
        ShapeError: the padded image is smaller than the window.
    """

    def __init__(self, size: int | tuple[int, int], padding: int = 0) -> None:
        self.size, self.padding = _pair(size), padding
        if padding < 0:
            raise ValueError(f"padding must be at least 0, got {padding}")

    def __call__(self, images: Array, generator: np.random.Generator) -> Array:
        """Windows (N, C, height, width) of images (N, C, H, W).

        After `self.padding` zeros on each side, `_spare(padded, self.size)` gives how many rows and
        columns there are beyond the window. First N tops are drawn, then N lefts, each by
        `generator.integers` from 0 up to what is spare, included. Window i is of image i, and
        begins at row top[i] and column left[i], for all channels.

        Raises:
            ShapeError: of `_image_shape(images)` or `_spare`.
        """
        _image_shape(images)
        p = self.padding
        padded = np.pad(images, ((0, 0), (0, 0), (p, p), (p, p)))
        rows, columns = _spare(padded, self.size)
        top = generator.integers(rows + 1, size=len(padded))
        left = generator.integers(columns + 1, size=len(padded))
        windows = np.lib.stride_tricks.sliding_window_view(padded, self.size, axis=(2, 3))
        return windows[np.arange(len(padded)), :, top, left]


class CenterCrop:
    """The middle `size` of each image: what evaluation uses where training uses `RandomCrop`.

    Raises:
        ShapeError: the image is smaller than the window.
    """

    def __init__(self, size: int | tuple[int, int]) -> None:
        self.size = _pair(size)

    def __call__(self, images: Array, generator: np.random.Generator) -> Array:
        top, left = (spare // 2 for spare in _spare(images, self.size))
        height, width = self.size
        return images[:, :, top : top + height, left : left + width]


def _pair(size: int | tuple[int, int]) -> tuple[int, int]:
    pair = (size, size) if isinstance(size, int) else size
    if len(pair) != 2 or min(pair) < 1:
        raise ValueError(f"a crop has at least one row and column, got {size}")
    return pair


def _image_shape(images: Array) -> tuple[int, int, int, int]:
    if images.ndim != 4:
        raise ShapeError(f"transforms take image batches (N, C, H, W), got shape {images.shape}")
    count, channels, height, width = images.shape
    return count, channels, height, width


def _float_image_shape(images: Array) -> tuple[int, int, int, int]:
    if images.dtype.kind != "f":  # in integers a mean would lose its fraction
        raise DTypeError(f"Normalize takes floats, got {images.dtype}: see to_tensor")
    return _image_shape(images)


def _spare(images: Array, size: tuple[int, int]) -> tuple[int, int]:
    """How many rows and columns the images have beyond `size`."""
    _, _, height, width = _image_shape(images)
    if height < size[0] or width < size[1]:
        raise ShapeError(f"cannot crop {size} from images of (padded) shape {images.shape}")
    return height - size[0], width - size[1]
