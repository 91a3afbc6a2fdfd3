"""A user's convolution is called as its signature says, or refused when it is registered."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import tinytorch
from tinytorch.backends import register_backend
from tinytorch.backends.numpy import NumpyBackend
from tinytorch.backends.reference_conv import conv2d as reference
from tinytorch.backends.signatures import adapted
from tinytorch.errors import BackendError
from tinytorch.nn import functional as F


class Simple(NumpyBackend):
    def conv2d(self, input: Any, kernel: Any, stride: int = 1, padding: int = 0) -> Any:
        assert isinstance(stride, int) and isinstance(padding, int)
        pairs = {"stride": (stride, stride), "padding": (padding, padding)}
        return reference(input, kernel, None, **pairs, dilation=(1, 1), groups=1)


def test_a_simple_convolution_is_served(rng: np.random.Generator) -> None:
    x, w, b = (
        tinytorch.tensor(rng.standard_normal(s), dtype="float32", requires_grad=True)
        for s in ((2, 3, 6, 6), (4, 3, 3, 3), (4,))
    )
    expected = F.conv2d(x, w, b, stride=2, padding=1)
    with tinytorch.using_backend(adapted(Simple)()):
        out = F.conv2d(x, w, b, stride=2, padding=1)
        np.testing.assert_allclose(out.detach().numpy(), expected.detach().numpy(), rtol=1e-4)
        with pytest.raises(BackendError, match=r"takes an integer stride, and it is \(1, 2\)"):
            F.conv2d(x, w, b, stride=(1, 2))
        with pytest.raises(BackendError, match="takes no dilation"):
            F.conv2d(x, w, b, dilation=2)


def test_a_form_that_cannot_be_served_is_refused_at_once() -> None:
    class Odd(NumpyBackend):
        def conv2d(self, image: Any) -> Any: ...

    with pytest.raises(BackendError, match=r"Odd\.conv2d\(.*write conv2d\(self, x, w, b=None, \*"):
        register_backend("odd", Odd)

    class Unary(NumpyBackend):
        def matmul(self, a: Any) -> Any: ...

    with pytest.raises(BackendError, match=r"write matmul\(self, a, b\)"):
        register_backend("unary", Unary)
