from __future__ import annotations

import re
from collections.abc import Callable

import numpy as np
import pytest
from hypothesis import given, strategies as st

import tinytorch
from tinytorch.data.transforms import (
    CenterCrop,
    Compose,
    Normalize,
    RandomCrop,
    RandomHorizontalFlip,
    Transform,
    to_tensor,
)
from tinytorch.dtypes import Array
from tinytorch.errors import DTypeError, ShapeError


def numbered(count: int, channels: int, height: int, width: int) -> Array:
    """Images in which no two pixels are equal, and none is 0."""
    shape = (count, channels, height, width)
    return np.arange(1, 1 + np.prod(shape), dtype=np.float32).reshape(shape)


def test_to_tensor_puts_channels_first_and_white_at_one(rng: np.random.Generator) -> None:
    photo = rng.integers(256, size=(5, 4, 3), dtype=np.uint8)
    for images, expected in (
        (photo, photo.transpose(2, 0, 1)),
        (photo[None], photo.transpose(2, 0, 1)[None]),
        (photo[..., 0], photo[None, ..., 0]),
    ):
        result = to_tensor(images)
        assert result.dtype is tinytorch.float32
        np.testing.assert_array_equal(result.numpy(), expected / np.float32(255))


def test_to_tensor_refuses_what_it_would_have_to_guess() -> None:
    with pytest.raises(DTypeError, match="uint8 images, got float64"):
        to_tensor(np.zeros((2, 2)))
    with pytest.raises(ShapeError, match=re.escape("got (3,)")):
        to_tensor(np.zeros(3, np.uint8))


def test_normalize(rng: np.random.Generator) -> None:
    images = rng.normal(3, 2, (4, 3, 5, 6)).astype(np.float32)
    mean, std = images.mean((0, 2, 3)), images.std((0, 2, 3))
    result = Normalize(mean.tolist(), std.tolist())(images, rng)
    assert result.dtype == np.float32
    np.testing.assert_allclose(result.mean((0, 2, 3)), 0, atol=1e-5)
    np.testing.assert_allclose(result.std((0, 2, 3)), 1, atol=1e-5)
    np.testing.assert_array_equal(Normalize(0.5, 2.0)(images, rng), (images - 0.5) / 2)
    with pytest.raises(DTypeError, match="takes floats, got uint8"):
        Normalize(0.5, 2.0)(images.astype(np.uint8), rng)


@given(st.integers(0, 3), st.integers(1, 5), st.integers(1, 5), st.integers(0, 2), st.data())
def test_a_crop_is_a_window_of_the_padded_image(
    count: int, height: int, width: int, padding: int, data: st.DataObject
) -> None:
    images = numbered(count, 2, height, width)
    size = (
        data.draw(st.integers(1, height + 2 * padding)),
        data.draw(st.integers(1, width + 2 * padding)),
    )
    crops = RandomCrop(size, padding)(images, np.random.default_rng(0))
    assert crops.shape == (count, 2, *size)
    padded = np.pad(images, ((0, 0), (0, 0), (padding, padding), (padding, padding)))
    for crop, image in zip(crops, padded, strict=True):
        windows = np.lib.stride_tricks.sliding_window_view(image, size, axis=(1, 2))
        matches = (windows == crop[:, None, None]).all(axis=(0, 3, 4))
        assert matches.any()


def test_each_image_is_cropped_at_a_place_of_its_own(rng: np.random.Generator) -> None:
    images = np.broadcast_to(numbered(1, 1, 3, 3), (2000, 1, 3, 3))
    corners = RandomCrop(2)(images, rng)[:, 0, 0, 0]
    places, counts = np.unique(corners, return_counts=True)
    assert places.tolist() == [1, 2, 4, 5]
    assert counts.min() > 400  # 500 each are expected, with a standard deviation of 19


def test_a_flip_mirrors_the_share_p_of_the_images(rng: np.random.Generator) -> None:
    images = numbered(1000, 2, 3, 4)
    flipped = RandomHorizontalFlip(0.25)(images, rng)
    mirrored = (flipped == images[..., ::-1]).all(axis=(1, 2, 3))
    same = (flipped == images).all(axis=(1, 2, 3))
    assert (mirrored ^ same).all()
    assert 190 < mirrored.sum() < 310  # 250 with a standard deviation of 14
    np.testing.assert_array_equal(RandomHorizontalFlip(1)(images, rng), images[..., ::-1])
    np.testing.assert_array_equal(RandomHorizontalFlip(0)(images, rng), images)


def test_center_crop(rng: np.random.Generator) -> None:
    images = numbered(2, 3, 6, 7)
    np.testing.assert_array_equal(CenterCrop((2, 3))(images, rng), images[:, :, 2:4, 2:5])


def test_compose_applies_in_order(rng: np.random.Generator) -> None:
    images = numbered(2, 1, 4, 4)
    result = Compose([CenterCrop(2), Normalize(1, 2), Normalize(0, 10)])(images, rng)
    np.testing.assert_allclose(result, (images[:, :, 1:3, 1:3] - 1) / 20, rtol=1e-6)


@pytest.mark.parametrize(
    ("transform", "shape", "text"),
    [
        (RandomCrop(5, padding=1), (2, 1, 2, 9), "cannot crop (5, 5)"),
        (CenterCrop(5), (2, 1, 9, 4), "(2, 1, 9, 4)"),
        (Normalize([0, 0], [1, 1]), (2, 3, 4, 4), "2 means for images (2, 3, 4, 4)"),
        (RandomHorizontalFlip(), (3, 4, 4), "(N, C, H, W), got shape (3, 4, 4)"),
        (RandomCrop(2), (4, 4), "(N, C, H, W), got shape (4, 4)"),
    ],
)
def test_images_that_do_not_fit(
    transform: Transform, shape: tuple[int, ...], text: str, rng: np.random.Generator
) -> None:
    with pytest.raises(ShapeError, match=re.escape(text)):
        transform(np.zeros(shape, np.float32), rng)


@pytest.mark.parametrize(
    ("make", "text"),
    [
        (lambda: Normalize([0.5], [0.0]), "a positive std per mean, got [0.5] and [0.0]"),
        (lambda: Normalize([0, 0], [1]), "got [0, 0] and [1]"),
        (lambda: RandomHorizontalFlip(1.5), "got 1.5"),
        (lambda: RandomCrop((3, 0)), "got (3, 0)"),
        (lambda: RandomCrop((3,)), "got (3,)"),  # type: ignore[arg-type]
        (lambda: RandomCrop(3, padding=-1), "padding must be at least 0, got -1"),
    ],
)
def test_options_that_make_no_sense(make: Callable[[], Transform], text: str) -> None:
    with pytest.raises(ValueError, match=re.escape(text)):
        make()
