from __future__ import annotations

import itertools
import math

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st

from tinytorch import ops
from tinytorch.backends.optimized.rows import program_sums
from tinytorch.jit import buffers, threads
from tinytorch.program import Program, Step

SUBSETS = [d for n in range(1, 4) for d in itertools.combinations(range(3), n)]
#: (x0 - x1) * x2
TERMS = Program(3, (Step(ops.sub, ("x0", "x1")), Step(ops.mul, ("t0", "x2"))), "t1", False)
SINES = Program(1, (Step(ops.sin, ("x0",)), Step(ops.mul, ("t0", 2.0))), "t1", False)
CHOSEN = Program(2, (Step(ops.neg, ("x1",)), Step(ops.where, ("x0", "x1", "t0"))), "t1", False)


def of_kind(kind: str, shape: tuple[int, ...], dims: tuple[int, ...], rng: np.random.Generator):
    """An operand: whole, the same along what is reduced, along what is kept, 0-d, or a number."""
    if kind == "number":
        return 0.3
    sizes = {
        "whole": shape,
        "kept": tuple(1 if d in dims else n for d, n in enumerate(shape)),
        "reduced": tuple(n if d in dims else 1 for d, n in enumerate(shape)),
        "last": shape[-1:],
        "0-d": (),
    }[kind]
    return np.asarray(rng.standard_normal(sizes))


@pytest.mark.slow
@settings(deadline=None)  # some draws compile
@given(
    shape=st.tuples(*[st.integers(0, 6)] * 3),
    dims=st.sampled_from(SUBSETS),
    keepdim=st.booleans(),
    kinds=st.tuples(*[st.sampled_from(["whole", "kept", "reduced", "last", "0-d", "number"])] * 2),
    turned=st.booleans(),
    is_small=st.booleans(),
    seed=st.integers(0, 2**32 - 1),
)
def test_sums_of_any_dimensions_and_operands(shape, dims, keepdim, kinds, turned, is_small, seed):
    rng = np.random.default_rng(seed)
    x = rng.standard_normal(shape[::-1]).T if turned else rng.standard_normal(shape)
    others = [of_kind(kind, shape, dims, rng) for kind in kinds]
    operands = tuple(None if isinstance(o, float) else o.shape for o in (x, *others))
    with pytest.MonkeyPatch.context() as patched:
        if not is_small:
            patched.setattr(buffers, "POOLED_FROM", 0)
        run = program_sums.specialize(TERMS, x.dtype, operands, dims, keepdim)
        out = run(x, *others, dims=dims, keepdim=keepdim)
    terms = np.broadcast_to((x - others[0]) * others[1], shape)
    np.testing.assert_allclose(out, terms.sum(dims, keepdims=keepdim), 1e-12, 1e-12)
    assert out.shape == terms.sum(dims, keepdims=keepdim).shape and out.dtype == x.dtype


@pytest.mark.slow
@pytest.mark.parametrize("shape", [(300, 5000), (30, 300), (4096, 10), (4900, 7), (4000, 23)])
@pytest.mark.parametrize("dims", [(0,), (1,), (0, 1)])
def test_the_bits_are_those_of_a_sum_of_what_was_stored(dims, shape, rng):
    from tinytorch.backends.optimized.rows import reductions

    x, y = (rng.standard_normal(shape).astype(np.float32) for _ in range(2))
    run = program_sums.specialize(TERMS, x.dtype, (x.shape, y.shape, None), dims, False)
    stored = (x - y) * np.float32(0.3)
    wanted = reductions.sum(stored, dims=dims, keepdim=False)
    assert run(x, y, 0.3, dims=dims, keepdim=False).tobytes() == wanted.tobytes()


@pytest.mark.parametrize("kind", ["whole", "kept", "reduced", "last", "0-d", "number"])
@pytest.mark.parametrize("shape", [(4096, 10), (3, 2000, 4), (5003, 7)])
@pytest.mark.parametrize("along", [-1, -2])
def test_short_rows_and_columns(along, shape, kind, rng):
    dims = (len(shape) + along,)
    x, other = rng.standard_normal(shape).astype(np.float32), of_kind(kind, shape, dims, rng)
    if kind != "number":
        other = other.astype(np.float32)
    operands = x.shape, getattr(other, "shape", None), None
    run = program_sums.specialize(TERMS, x.dtype, operands, dims, False)
    wanted = ((x.astype(float) - other) * 0.3).sum(dims)
    for layout in (x, x[::-1], np.asfortranarray(x), np.repeat(x, 2, -1)[..., ::2]):
        expected = ((layout.astype(float) - other) * 0.3).sum(dims)
        found = run(layout, other, 0.3, dims=dims, keepdim=False)
        assert found.shape == wanted.shape
        np.testing.assert_allclose(found, expected, 1e-4, 1e-3)


@pytest.mark.slow_beyond(1)
@pytest.mark.parametrize("dims", [(0,), (1,)])
def test_threads_share_the_rows(dims, monkeypatch, rng):
    monkeypatch.setattr(threads, "SERIAL_BELOW", 10)
    monkeypatch.setattr(threads._State, "num_threads", 2)
    x = rng.standard_normal((7, 9))
    centre = x.mean(dims, keepdims=True)
    run = program_sums.specialize(TERMS, x.dtype, (x.shape, centre.shape, x.shape), dims, False)
    out = run(x, centre, x, dims=dims, keepdim=False)
    np.testing.assert_allclose(out, ((x - centre) * x).sum(dims), 1e-12)
    line = of_kind("reduced", x.shape, dims, rng)
    run = program_sums.specialize(TERMS, x.dtype, (x.shape, line.shape, x.shape), dims, False)
    out = run(x, line, x, dims=dims, keepdim=False)
    np.testing.assert_allclose(out, ((x - line) * x).sum(dims), 1e-12)


@pytest.mark.slow_beyond(1)
@pytest.mark.parametrize("kind", ["kept", "reduced"])
@pytest.mark.parametrize("dims", [(0,), (1,)])
def test_what_is_the_same_for_all_sums_or_terms_is_not_written_out(dims, kind, monkeypatch, rng):
    x = rng.standard_normal((200, 300))
    other = of_kind(kind, x.shape, dims, rng)
    read = []
    monkeypatch.setattr(program_sums, "contiguous", lambda a: read.append(a.size) or a)
    run = program_sums.specialize(TERMS, x.dtype, (x.shape, other.shape, None), dims, False)
    out = run(x, other, 2.0, dims=dims, keepdim=False)
    np.testing.assert_allclose(out, ((x - other) * 2.0).sum(dims), 1e-11, 1e-11)
    assert read == [x.size, other.size]


def test_nan_infinity_and_arguments_beyond_the_polynomials(rng):
    x = rng.standard_normal((4, 600))
    x[1, 3], x[2, 5], x[3, 300] = math.nan, math.inf, 1e9
    run = program_sums.specialize(SINES, x.dtype, (x.shape,), (1,), False)
    with np.errstate(invalid="ignore"):
        np.testing.assert_allclose(run(x, dims=(1,), keepdim=False), (2 * np.sin(x)).sum(1), 1e-9)


@pytest.mark.slow
def test_truth_values_choose(rng):
    x, mask = rng.standard_normal((5, 8)), rng.random((5, 8)) < 0.5
    for shape in ((5, 8), (5, 1), (1, 8), ()):
        chosen = np.resize(mask, shape)
        run = program_sums.specialize(
            CHOSEN, x.dtype, (shape, x.shape), (0,), True, bools=frozenset((0,))
        )
        wanted = np.where(chosen, x, -x).sum(0, keepdims=True)
        np.testing.assert_allclose(run(chosen, x, dims=(0,), keepdim=True), wanted, 1e-12)


def test_small_arrays_in_any_memory(rng):
    """Not in C order, read-only, or at an odd address."""
    x, y = (rng.standard_normal((6, 10)).astype(np.float32) for _ in range(2))
    run = program_sums.specialize(TERMS, x.dtype, (x.shape, y.shape, None), (1,), False)
    memory = np.zeros(x.nbytes + 1, np.uint8)
    odd = memory[1:].view(np.float32).reshape(x.shape)
    odd[...] = x
    fixed = x.copy()
    fixed.flags.writeable = False
    layouts = (odd, fixed, np.asfortranarray(x), np.repeat(x, 2, 1)[:, ::2], x[::-1][::-1])
    wanted = run(x, y, 0.3, dims=(1,), keepdim=False)
    for laid_out in layouts:
        assert run(laid_out, y, 0.3, dims=(1,), keepdim=False).tobytes() == wanted.tobytes()
