"""Products with quantized weights in machine code, and slices that are written at run time."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import tinytorch
from tinytorch import Tensor, ops
from tinytorch.dispatch import apply, write
from tinytorch.graph.compiler import native
from tinytorch.graph.compiler.schedule import schedule_traced
from tinytorch.graph.trace import trace


@pytest.fixture(autouse=True)
def _optimized():
    with tinytorch.using_backend("optimized"):
        yield


def arguments(rng, m: int, bits: int, activation: str) -> tuple[list[np.ndarray], dict[str, Any]]:
    groups = 3 if bits == 4 else 1
    kind = np.uint8 if bits == 4 else np.int8
    weight = rng.integers(0, 256, (19, 48 if bits == 4 else 96)).astype(np.uint8).view(kind)
    inputs = [rng.standard_normal((m, 1, 96)).astype(np.float32), weight]
    inputs += [rng.random((19, groups)).astype(np.float32)]
    if m == 1 or activation == "static":
        inputs.append(rng.standard_normal(19).astype(np.float32))
    if activation == "static":
        inputs.append(np.array([1 / 32, 100], np.float32))
    params = {"bits": bits, "group_size": 32 if bits == 4 else 0, "activation": activation}
    return inputs, params


@pytest.mark.slow
@pytest.mark.parametrize("bits", [8, 4])
def test_few_rows_give_what_the_kernel_gives_nan_and_infinity_too(rng, bits):
    for activation in ("float", "dynamic", "static"):
        for m in (1, 4, 7):
            arrays, params = arguments(rng, m, bits, activation)
            compiled = tinytorch.compile(
                lambda *t, params=params: apply(ops.quantized_linear, *t, **params), mode="native"
            )
            for special in (None, np.nan, np.inf):
                if special is not None:
                    arrays[0][-1, 0, 5] = special
                tensors = [Tensor.from_numpy(x) for x in arrays]
                with np.errstate(invalid="ignore"):
                    wanted = apply(ops.quantized_linear, *tensors, **params).numpy()
                found = compiled(*tensors).numpy()
                atol = 2e-5 * np.abs(wanted[np.isfinite(wanted)]).max(initial=1)
                np.testing.assert_allclose(found, wanted, rtol=1e-5, atol=atol)
                assert np.isfinite(found[:-1]).all()


@pytest.mark.parametrize("m", [1, 4, 8])
def test_weights_in_bfloat16_give_what_the_kernel_gives(rng, m):
    tensors = [
        Tensor.from_numpy(rng.standard_normal((m, 1, 96)).astype(np.float32)),
        Tensor.from_numpy(rng.standard_normal((19, 96)).astype(np.float32)).to(tinytorch.bfloat16),
        tinytorch.ones(19, 1),
        Tensor.from_numpy(rng.standard_normal(19).astype(np.float32)),
    ]
    params = {"bits": 16, "group_size": 0, "activation": "float"}
    for given in (tensors, tensors[:3]):
        compiled = tinytorch.compile(
            lambda *t: apply(ops.quantized_linear, *t, **params), mode="native"
        )
        wanted = apply(ops.quantized_linear, *given, **params).numpy()
        np.testing.assert_array_equal(compiled(*given).numpy(), wanted)


def test_many_rows_are_left_to_python(rng):
    arrays, params = arguments(rng, 9, 8, "float")
    traced = trace(lambda *t: apply(ops.quantized_linear, *t, **params),
                   *map(Tensor.from_numpy, arrays), decompose=None)  # fmt: skip
    ((_, reason),) = native.unsupported(schedule_traced(traced, **native.ABILITIES))
    assert "9 rows of float32 to 19" in reason and "up to 8 rows" in reason


def test_a_slice_of_a_state_is_written_in_place(rng):
    """The state is not copied: neither the arena nor the results have room for it."""
    state = tinytorch.zeros(2, 3, 1000, 8)

    def step(part: Tensor, start: Tensor) -> Tensor:
        write(state, ops.dynamic_update_slice, state, part, start, dim=2)
        return state.sum((2, 3))

    compiled, wanted = tinytorch.compile(step, mode="native"), np.zeros((2, 3, 1000, 8), np.float32)
    for start in (0, 997, 5, 6):
        part = rng.standard_normal((2, 3, 3, 8)).astype(np.float32)
        wanted[:, :, start : start + 3] = part
        compiled(Tensor.from_numpy(part), tinytorch.tensor(start))
        np.testing.assert_array_equal(state.numpy(), wanted)
    (found,) = compiled.traces
    assert found.code.schedule.arena_bytes < 1000
    with pytest.raises(IndexError, match=r"0 \.\. 997"):
        compiled(Tensor.from_numpy(part), tinytorch.tensor(998))
    np.testing.assert_array_equal(state.numpy(), wanted)


def test_a_state_that_is_read_before_stays_whole_until_then(rng):
    state = Tensor(rng.standard_normal((4, 6)).astype(np.float32))

    def step(start: Tensor) -> Tensor:
        before = state.clone()
        write(state, ops.dynamic_update_slice, state, before[2:4] + 1.0, start, dim=0)
        return before

    was = state.numpy().copy()
    before = tinytorch.compile(step, mode="native")(tinytorch.tensor(1)).numpy()
    np.testing.assert_array_equal(before, was)
    np.testing.assert_array_equal(state.numpy()[1:3], was[2:4] + 1)
