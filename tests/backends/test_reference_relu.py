"""relu of NumPy's backend keeps the sign of a zero, whatever zero the processor's maximum takes."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from tinytorch.backends import reference, reference_out
from tinytorch.op import OPS

MAXIMUM = np.maximum


def maximum_of_arm(a: Any, b: Any, **options: Any) -> Any:
    """IEEE 754-2019's maximum: of two zeros the positive one."""
    return np.add(MAXIMUM(a, b), 0.0, **options)


def maximum_that_takes_a(a: Any, b: Any, **options: Any) -> Any:
    return np.copysign(MAXIMUM(a, b), np.where(a == b, a, 1), **options)


@pytest.mark.parametrize("maximum", [MAXIMUM, maximum_of_arm, maximum_that_takes_a])
@pytest.mark.parametrize("in_place", [False, True])
def test_relu_keeps_the_sign_of_a_zero(
    maximum: Callable[..., Any], in_place: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    kernel: Callable[..., Any] = reference.find_kernel(OPS["relu"])  # type: ignore[assignment]
    writes: Callable[..., Any] = reference_out.find_kernel(OPS["relu"])  # type: ignore[assignment]
    monkeypatch.setattr(np, "maximum", maximum)
    for x in (np.array([-0.0, 0.0, -1.0, 2.0, -np.inf] * 8), np.array(-0.0)):
        out = np.array(x) if in_place else np.empty_like(x)
        writes(out if in_place else x, out)
        for found in (np.asarray(kernel(x)), out):
            np.testing.assert_array_equal(found, np.where(x > 0, x, 0))
            zeros = found == 0
            np.testing.assert_array_equal(
                np.signbit(found[zeros]), (x == 0)[zeros] & np.signbit(x)[zeros]
            )
