"""Division of steps among threads: parts cover the result, and touch nothing of each other."""

from __future__ import annotations

from random import Random
from typing import Any

import numpy as np
import pytest
from hypothesis import given, strategies as st

import tinytorch
from tests.graph.compiler.native.test_build import (
    AllOps,
    assert_ops_conform,
    assert_same_training,
    schedule_of,
)
from tinytorch import nn
from tinytorch.dispatch import apply
from tinytorch.dtypes import Array, TensorMeta, float32
from tinytorch.graph.compiler import native
from tinytorch.graph.compiler.native import ops, partition
from tinytorch.graph.compiler.native.loops import Loop
from tinytorch.graph.compiler.native.partition import bounds, disjoint, divide, divide_loop, narrow
from tinytorch.graph.layout import Buffer, Memory, StridedView, contiguous_view
from tinytorch.nn import functional as F
from tinytorch.op import OPS
from tinytorch.state import using_backend
from tinytorch.tensor import Tensor
from tinytorch.testing.op_samples import draw_sample

BUFFER = Buffer(Memory.ARENA)


@pytest.fixture(autouse=True)
def _optimized():
    with using_backend("optimized"):
        yield


@pytest.fixture
def everything_divided(monkeypatch):
    """Two threads, and no step too small for them."""
    before = tinytorch.get_num_threads()
    monkeypatch.setattr(partition, "MIN_PARALLEL_WORK", 0.0)
    tinytorch.set_num_threads(2)
    yield
    tinytorch.set_num_threads(before)


def view_with(*shape: int) -> StridedView:
    return contiguous_view(BUFFER, 0, TensorMeta(shape, float32))


def elements(view: StridedView) -> Array:
    """The byte at which each element begins."""
    found = np.full(view.shape, view.offset)
    for axis, (n, stride) in enumerate(zip(view.shape, view.strides, strict=True)):
        steps = np.arange(n) * stride
        found += steps.reshape((n,) + (1,) * (len(view.shape) - axis - 1))
    return found


# -- geometry --------------------------------------------------------------------------------------


@given(st.integers(0, 200), st.integers(1, 9), st.sampled_from((1, 16)))
def test_bounds_cover_the_extent(extent: int, count: int, unit: int):
    ranges = bounds(extent, count, unit)
    if ranges is None:
        assert extent <= (count - 1) * unit
        return
    assert [i for a, b in ranges for i in range(a, b)] == list(range(extent))
    assert all(a < b and a % unit == 0 for a, b in ranges)


@st.composite
def windows(draw: st.DrawFn) -> tuple[StridedView, StridedView]:
    """Two windows of one array, the array perhaps turned."""
    shape = draw(st.lists(st.integers(1, 5), min_size=1, max_size=3))
    view = view_with(*shape)
    order = draw(st.permutations(range(len(shape))))
    view = StridedView(
        BUFFER, 0, tuple(shape[d] for d in order), tuple(view.strides[d] for d in order), float32
    )

    def window() -> StridedView:
        found = view
        for axis, n in enumerate(view.shape):
            start = draw(st.integers(0, n - 1))
            found = narrow(found, axis, start, draw(st.integers(start + 1, n)))
        return found

    return window(), window()


@given(windows())
def test_disjoint_places_share_no_element(pair: tuple[StridedView, StridedView]):
    a, b = pair
    if disjoint(a, b):
        assert not np.intersect1d(elements(a), elements(b)).size


def test_halves_of_a_matrix_are_disjoint_either_way():
    whole = view_with(4, 6)
    for axis, n in enumerate(whole.shape):
        first, second = (narrow(whole, axis, *each) for each in ((0, n // 2), (n // 2, n)))
        assert disjoint(first, second)
        assert not disjoint(first, narrow(whole, axis, n // 2 - 1, n))


# -- steps -----------------------------------------------------------------------------------------


def test_parts_write_the_whole_result_once():
    """Of every op that has a rule."""
    names = [n for n, op in OPS.items() if op.kind != "elementwise" and ops.knows(n)]
    function = AllOps(
        [
            (OPS[name], draw_sample(name, Random(f"{seed}{name}"), style="finite", dtype="float32"))
            for name in names
            for seed in range(8)
        ]
    )
    divided = set()
    for step in schedule_of(function, *function.tensors()).steps:
        parts = divide(step, 2)
        if parts is None:
            continue
        divided.add(step.op.name)
        written = np.concatenate([elements(part.output).ravel() for part in parts])
        np.testing.assert_array_equal(np.sort(written), elements(step.output).ravel())
    assert divided >= {"linear", "matmul", "conv2d", "max_pool2d", "layer_norm", "group_norm"}


def test_sums_over_the_batch_are_added_up(rng, everything_divided):
    x = rng.standard_normal((6, 40)).astype(np.float32)
    y = rng.standard_normal((6, 40)).astype(np.float32)

    def function(x: Tensor, y: Tensor) -> Any:
        return x.sum(0), (x * y).sum(0), (x * y).sum((0, 1))

    program = native.build(schedule_of(function, tinytorch.tensor(x), tinytorch.tensor(y)))
    assert "arrive(" in program.source
    for got, want in zip(program([x, y]), (x.sum(0), (x * y).sum(0), (x * y).sum()), strict=True):
        np.testing.assert_allclose(got, want, 1e-5, 1e-5)


def test_group_norm_and_its_gradients_on_two_threads(rng, everything_divided):
    x, g = rng.standard_normal((2, 6, 4, 20)).astype(np.float32)
    w, b = rng.standard_normal((2, 4)).astype(np.float32)
    of = {"groups": 2, "eps": 1e-3}

    def function(x: Tensor, g: Tensor, w: Tensor, b: Tensor) -> Any:
        forward = apply(OPS["group_norm"], x, w, b, **of)
        back = apply(OPS["group_norm_backward"], g, x, w, **of)
        return forward, back, apply(OPS["group_norm_weight"], g, x, **of)

    tensors = [*map(tinytorch.tensor, (x, g, w, b))]
    program = native.build(schedule_of(function, *tensors))
    assert "arrive(" in program.source
    for got, want in zip(program([x, g, w, b]), function(*tensors), strict=True):
        np.testing.assert_allclose(got, want.numpy(), 1e-5, 1e-5)


def test_a_loop_is_divided_along_its_first_long_dimension():
    loop = Loop((1, 6, 4))
    row, whole = view_with(4), view_with(1, 6, 4)
    loop.store(loop.op("add", OPS["add"].scalar, [whole, row], float32), whole)
    parts = divide_loop(loop, 2)
    assert parts is not None
    assert [part.shape for part in parts] == [(1, 3, 4)] * 2
    assert [part.read() for part in parts] == [
        [narrow(whole, 1, *e), row] for e in ((0, 3), (3, 6))
    ]
    assert divide_loop(Loop((1, 1)), 2) is None


# -- whole functions -------------------------------------------------------------------------------


def linear_layers(x: Tensor, w: Tensor, v: Tensor) -> Any:
    hidden = (x @ w.mT).relu()
    return hidden.softmax(-1) @ v, hidden.sum(1)


def test_rows_stay_with_a_thread(rng, everything_divided):
    """What follows by rows joins the phase: the threads meet once."""
    shapes = ((64, 32), (16, 32), (16, 8))
    arrays = [rng.standard_normal(s).astype(np.float32) for s in shapes]
    schedule = schedule_of(linear_layers, *map(tinytorch.tensor, arrays), passes=native.PASSES)
    program = native.build(schedule)
    assert program.source.count("begin(") == program.source.count("end(") == 1
    for got, want in zip(
        program(arrays), linear_layers(*map(tinytorch.tensor, arrays)), strict=True
    ):
        np.testing.assert_allclose(got, want.numpy(), 1e-5, 1e-6)


def descent(x: Tensor, w: Tensor, g: Tensor) -> Any:
    """A step of gradient descent for the weights of a convolution, and a user of the new ones."""
    w = w.detach().requires_grad_()
    (F.conv2d(x, w) * g).sum().backward()
    stepped = w.detach() - 0.1 * w.grad
    return stepped, stepped.sum(0)


@pytest.mark.slow
def test_a_weight_gradient_is_divided_in_its_group(rng, everything_divided):
    """Each thread sums over its images; the leader adds up, and only then is the step done."""
    shapes = (5, 3, 6, 6), (4, 3, 3, 3), (5, 4, 4, 4)
    arrays = [rng.standard_normal(s).astype(np.float32) for s in shapes]
    schedule = schedule_of(descent, *map(tinytorch.tensor, arrays), passes=native.PASSES)
    program = native.build(schedule)
    assert program.source.count(" conv2d_weight_by_") == 2
    total = program.source.rindex("loop_add_mul_sub(n")
    assert program.source.rindex(" conv2d_weight_by_") < program.source.rindex("end(", 0, total)
    for _ in range(2):  # whatever memory held
        for got, want in zip(program(arrays), descent(*map(tinytorch.tensor, arrays)), strict=True):
            np.testing.assert_allclose(got, want.numpy(), 1e-4, 1e-5)


def test_small_functions_are_left_to_one_thread():
    before = tinytorch.get_num_threads()
    tinytorch.set_num_threads(2)
    try:
        program = native.build(schedule_of(lambda x: x.exp() @ x, tinytorch.ones(8, 8)))
    finally:
        tinytorch.set_num_threads(before)
    assert "arrive(" not in program.source


@pytest.mark.parametrize("model", ["mlp", pytest.param("lenet", marks=pytest.mark.slow)])
def test_training_steps_equal_eager(model: str, everything_divided):
    assert_same_training(model, "sgd", steps=6, keep_grads=False)


@pytest.mark.slow
@pytest.mark.exhaustive_beyond(1)
@pytest.mark.parametrize("seed", range(3))
def test_ops_conform(seed: int, everything_divided):
    assert_ops_conform("float32", seed)


@pytest.mark.slow
def test_large_convolutions_are_divided(rng):
    x = tinytorch.tensor(rng.standard_normal((8, 16, 16, 16)).astype(np.float32))
    model = nn.Sequential(
        nn.Conv2d(16, 32, 3, padding=1), nn.ReLU(), nn.Flatten(), nn.Linear(32 * 16 * 16, 64)
    )
    batch = tinytorch.tensor(rng.standard_normal((6, 64, 64)).astype(np.float32))

    def function(x: Tensor, batch: Tensor) -> Any:
        loss = (model(x) ** 2).sum()
        return loss, *tinytorch.autograd.grad(loss, list(model.parameters())), batch @ batch

    expected = [t.detach().numpy() for t in function(x, batch)]
    before = tinytorch.get_num_threads()
    tinytorch.set_num_threads(2)
    try:
        compiled = tinytorch.compile(function, mode="native")
        results = [t.detach().numpy() for t in compiled(x, batch)]
        source = compiled.traces[-1].code.program.source
        tinytorch.set_num_threads(1)  # the code stays right
        alone = [t.detach().numpy() for t in compiled(x, batch)]
    finally:
        tinytorch.set_num_threads(before)
    for name in ("gemm", "gemm_batch", "conv2d_by_vectors", "conv2d_weight_by_products"):
        assert source.count(f"    {name}_f32(") >= 2, name
    for a, b, c in zip(results, alone, expected, strict=True):
        scale = np.abs(c).max()
        np.testing.assert_allclose(a, c, 1e-4, 1e-4 * scale)
        np.testing.assert_allclose(b, c, 1e-4, 1e-4 * scale)


def test_a_mean_over_rows_is_not_divided_by_the_rows_of_a_part(rng: np.random.Generator):
    """The gradient of twice a cross entropy, which is not computed together with the loss."""
    x = tinytorch.tensor(rng.standard_normal((501, 40)).astype(np.float32), requires_grad=True)
    labels = tinytorch.tensor(rng.integers(0, 40, 501))

    def gradient(y: tinytorch.Tensor) -> tinytorch.Tensor:
        (F.cross_entropy(x, y) * 2.0).backward()
        g = x.grad
        x.grad = None
        return g

    expected = gradient(labels).numpy()
    before = tinytorch.get_num_threads()
    tinytorch.set_num_threads(2)
    try:
        compiled = tinytorch.compile(gradient, backend="optimized", mode="native")
        found = compiled(labels).numpy()
    finally:
        tinytorch.set_num_threads(before)
    np.testing.assert_allclose(found, expected, 1e-5, 1e-8)
