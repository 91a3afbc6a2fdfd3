from __future__ import annotations

from collections.abc import Callable
from functools import partial

import numpy as np
import pytest

import tinytorch
import tinytorch.nn.functional as F
from tinytorch.errors import DTypeError


@pytest.mark.parametrize(
    "function",
    [
        partial(F.adaptive_avg_pool2d, output_size=4),
        partial(F.adaptive_avg_pool2d, output_size=(None, None)),
        partial(F.adaptive_avg_pool1d, output_size=4),
        partial(F.adaptive_max_pool2d, output_size=4),
        partial(F.adaptive_max_pool1d, output_size=4),
        partial(F.pixel_shuffle, upscale_factor=1),
        partial(F.pixel_unshuffle, downscale_factor=1),
        partial(F.channel_shuffle, groups=1),
    ],
)
def test_an_image_that_stays_as_it_is_is_copied(function: Callable[..., tinytorch.Tensor]) -> None:
    """Else what is written to the result would be written to the image."""
    image = tinytorch.ones(1, 4, 4, 4, requires_grad=True)
    given = image.detach()[0] if "1d" in function.func.__name__ else image.detach()
    result = function(given)
    assert result.tolist() == given.tolist()
    result.fill_(7.0)
    assert image.detach().numpy().max() == 1.0


def test_shuffling_pixels_of_one_channel_and_place_is_a_copy() -> None:
    image = np.arange(4.0, dtype=np.float32).reshape(1, 4, 1, 1)
    result = F.pixel_shuffle(tinytorch.from_numpy(image), 2)
    result.fill_(7.0)
    assert image.ravel().tolist() == [0, 1, 2, 3]


@pytest.mark.parametrize("mode", ["bilinear", "bicubic"])
def test_integers_are_not_mixed(mode: str) -> None:
    """Weights between 0 and 1 would be zeros."""
    with pytest.raises(DTypeError, match=f"mode '{mode}' mixes floats, not uint8; use"):
        F.interpolate(tinytorch.full((1, 1, 8, 8), 200, dtype="uint8"), size=4, mode=mode)
