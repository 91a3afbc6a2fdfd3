"""Every fused group has native code: a product between other ops, twice in one, or of itself."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

import tinytorch
from tinytorch.tensor import Tensor


def newton_schulz(x: Tensor, w: Tensor, c: Tensor, o: Tensor) -> Tensor:
    x = x * (0.5 / len(x))
    for _ in range(2):
        a = x @ x.T
        x = 1.2 * x + (2.0 * a - 1.5 * (a @ a)) @ x
    return x


def residual(x: Tensor, w: Tensor, c: Tensor, o: Tensor) -> Tensor:
    h = x.relu()
    return h @ w + h


def twice_in_its_epilogue(x: Tensor, w: Tensor, c: Tensor, o: Tensor) -> Tensor:
    h = x @ w + c[0]
    return h.relu() + h


PROGRAMS: dict[str, Callable[[Tensor, Tensor, Tensor, Tensor], Tensor]] = {
    "square + 1": lambda x, w, c, o: x @ x + 1,
    "product + sum": lambda x, w, c, o: (x @ w) + (c + o),
    "product * sum": lambda x, w, c, o: (x @ w) * (c + o),
    "residual": residual,
    "Newton-Schulz": newton_schulz,
    "three products": lambda x, w, c, o: x @ w + c @ o + x @ x,
    "comparison": lambda x, w, c, o: (x @ w) < 0.0,
    "another type": lambda x, w, c, o: (x @ w).relu().to("float64") + 1.0,
    "product + itself": lambda x, w, c, o: (lambda h: h + h)(x @ w),
    "bias, relu, and without relu": twice_in_its_epilogue,
    "batch": lambda x, w, c, o: (lambda h: (h @ h + h).relu())(tinytorch.stack([x, w])),
}


@pytest.mark.slow_beyond(1)
@pytest.mark.parametrize("size", [5, 96])
@pytest.mark.parametrize("name", PROGRAMS)
def test_compiled_equals_eager(name: str, size: int, rng: np.random.Generator):
    x, w, c, o = (
        tinytorch.tensor(rng.standard_normal((size, size)).astype(np.float32)) for _ in range(4)
    )
    program = PROGRAMS[name]
    expected = program(x, w, c, o).numpy()
    compiled = tinytorch.compile(program, backend="optimized", mode="native")
    for _ in range(2):
        result = compiled(x, w, c, o).numpy()
        assert result.dtype == expected.dtype
        np.testing.assert_allclose(result, expected, 2e-4, 2e-4)


def test_true_and_true_in_a_register_is_one():
    flag = tinytorch.tensor([True, False, True])
    compiled = tinytorch.compile(
        lambda x: (x + x).to("float32") * 3.0, backend="optimized", mode="native"
    )
    assert compiled(flag).tolist() == [3.0, 0.0, 3.0]
