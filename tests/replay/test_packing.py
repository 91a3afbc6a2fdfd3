"""A weight that several products of a program read is packed once, in each call."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st

import tinytorch
import tinytorch.nn.functional as F
from tests.replay.common import runs
from tinytorch import from_numpy
from tinytorch.backends.optimized import OptimizedBackend
from tinytorch.backends.optimized.gemm.prepacked import PrepackedWeight
from tinytorch.replay import function as replaying, replayed
from tinytorch.tensor import Tensor

STEPS = 3


@pytest.fixture(autouse=True)
def _at_once(monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.setattr(replaying, "HOT", 1)
    with tinytorch.using_backend(OptimizedBackend()):
        yield


def in_a_row(x: Tensor, weights: Sequence[Tensor], b: Tensor | None = None) -> Tensor:
    """Layers after each other, the weights taken in turns."""
    for i in range(STEPS * len(weights)):
        x = F.linear(x, weights[i % len(weights)], b) * 0.5
    return x


@pytest.fixture
def packed(monkeypatch: pytest.MonkeyPatch) -> list[tuple[int, ...]]:
    """The shapes of the weights that are packed from now on."""
    shapes: list[tuple[int, ...]] = []
    pack = PrepackedWeight.__init__

    def watched(self: PrepackedWeight, w: Any, *others: Any, **options: Any) -> None:
        shapes.append(w.shape)
        pack(self, w, *others, **options)

    monkeypatch.setattr(PrepackedWeight, "__init__", watched)
    return shapes


def numbers(*shape: int, dtype: Any = np.float32, seed: int = 0) -> Tensor:
    rng = np.random.default_rng([*shape, seed])
    return from_numpy(rng.standard_normal(shape).astype(dtype))


def unaligned(t: Tensor) -> Tensor:
    """As a file may have it: a header of one byte before the numbers."""
    array = t.numpy()
    return from_numpy(np.frombuffer(b" " + array.tobytes(), array.dtype, offset=1).reshape(t.shape))


@given(
    m=st.integers(1, 40),
    n=st.integers(80, 250),
    dtype=st.sampled_from([np.float32, np.float64]),
    has_bias=st.booleans(),
    layout=st.sampled_from(["rows", "columns", "every second", "x in columns", "unaligned"]),
    count=st.integers(1, 2),
)
@settings(max_examples=30)
def test_the_bits_are_those_of_each_product_alone(
    m: int, n: int, dtype: Any, has_bias: bool, layout: str, count: int
) -> None:
    """Also where a program was made on another number of threads."""
    function = replayed(in_a_row)
    w, x = numbers(n, 2 * n, dtype=dtype), numbers(m, n, dtype=dtype)
    b = numbers(n, dtype=dtype) if has_bias else None
    x = x.T.contiguous().T if layout == "x in columns" else x
    if layout == "unaligned":
        x, b = (None if t is None else unaligned(t) for t in (x, b))
    parts = {"columns": w[:, :n].contiguous().T, "every second": w[:, ::2]}
    weights = [parts.get(layout, w[:, :n].contiguous())]
    before = tinytorch.get_num_threads()
    try:
        for threads in (count, count, count, 3 - count):
            tinytorch.set_num_threads(threads)
            wanted = in_a_row(x, weights, b).numpy()
            assert np.array_equal(function(x, weights, b).numpy(), wanted)
    finally:
        tinytorch.set_num_threads(before)
    assert runs(function)


def test_each_call_packs_each_weight_once(packed: list[tuple[int, ...]]) -> None:
    """As it is then: an optimizer has written to it."""
    function, x = replayed(in_a_row), numbers(32, 96)
    weights = [numbers(96, 96), numbers(96, 96, seed=1)]
    for _ in range(2):
        function(x, weights)
    assert runs(function) and not packed
    for _ in range(2):
        packed.clear()
        for w in weights:
            w.mul_(-1.25)
        assert np.array_equal(function(x, weights).numpy(), in_a_row(x, weights).numpy())
        assert packed == [(96, 96)] * 2


@pytest.mark.parametrize(
    ("rows", "width", "steps"),
    [(32, 96, 1), (1, 96, STEPS), (32, 64, STEPS)],
    ids=["a product alone", "a row", "a small weight"],
)
def test_what_is_not_packed(
    packed: list[tuple[int, ...]], rows: int, width: int, steps: int
) -> None:
    @replayed
    def function(x: Tensor, w: Tensor) -> Tensor:
        for _ in range(steps):
            x = F.linear(x, w) * 0.5
        return x

    for _ in range(4):
        function(numbers(rows, width), numbers(width, width))
    assert runs(function) and not packed


def test_a_backend_with_a_kernel_of_its_own_runs_that() -> None:
    calls = []

    class Mine(OptimizedBackend):
        trusted = True
        replays = True

        @staticmethod
        def linear(x: Any, w: Any, b: Any = None) -> Any:
            calls.append(x.shape)
            return OptimizedBackend.linear(x, w, b)

    function = replayed(in_a_row)
    with tinytorch.using_backend(Mine()):
        for _ in range(4):
            function(numbers(32, 96), [numbers(96, 96)])
        assert runs(function)
    assert len(calls) == 4 * STEPS


@pytest.mark.parametrize("kind", ["RNN", "LSTM", "GRU"])
def test_a_recurrent_layer_packs_its_weight_for_all_steps(
    packed: list[tuple[int, ...]], kind: str
) -> None:
    layer = getattr(tinytorch.nn, kind)(96, 96)
    x = numbers(8, 32, 96)
    with tinytorch.no_grad():
        wanted = layer(x)[0].numpy()
        for _ in range(3):
            packed.clear()
            assert np.array_equal(layer(x)[0].numpy(), wanted)
    assert packed == [layer.weight_hh_l0.shape]
