"""The choice between these kernels and NumPy's library, with a clock and contestants of our own."""

from __future__ import annotations

import itertools
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import tinytorch
from tests.backends.optimized.gemm.test_gemm import assert_product, matrix
from tinytorch import nn
from tinytorch.backends.optimized import OptimizedBackend
from tinytorch.backends.optimized.gemm import library, matmul as products
from tinytorch.backends.optimized.gemm.library import Choices, ProductClass, class_of
from tinytorch.dtypes import Array
from tinytorch.graph.compiler.native import products as native_products
from tinytorch.jit import threads
from tinytorch.jit.blas import Blas, find_blas
from tinytorch.jit.library import exports

has_library = pytest.mark.skipif(sys.platform == "win32", reason="no library can be called there")
LARGE = (64, 512, 512)  # m, n, k
PRODUCT = ProductClass(4, "NN", "few rows", 1)


class Contest:
    """Contestants that are as fast as they are told, by a clock that they move on.

    Attributes:
        calls: of each.
    """

    def __init__(self, own: float, library: float, error: float = 0.0) -> None:
        self.now, self.seconds, self.error = 0.0, {"own": own, "library": library}, error
        self.calls = {"own": 0, "library": 0}

    def _run(self, who: str, a: Array, b: Array) -> Array:
        self.now += self.seconds[who]
        self.calls[who] += 1
        return np.zeros((a.shape[0], b.shape[1]), a.dtype)

    def choices(self, folder: Path | None, name: str = "fake 1", fits: bool = True) -> Choices:
        return Choices(
            lambda a, b, bias, count: self._run("own", a, b),
            lambda a, b, bias, count: self._run("library", a, b) + np.float32(self.error),
            lambda count: fits,
            name,
            lambda: ([folder] if folder else [], folder),
            (lambda: self.now, lambda: self.now),
        )


@pytest.mark.parametrize(
    ("own", "theirs", "taken"), [(2.0, 1.0, True), (1.0, 1.0, False), (1.03125, 1.0, False)]
)
def test_the_library_is_taken_where_it_is_clearly_faster(
    tmp_path: Path, own: float, theirs: float, taken: bool
) -> None:
    contest = Contest(own, theirs)
    choices = contest.choices(tmp_path)
    assert choices.prefers_library(PRODUCT) is taken
    assert choices.known() == {str(PRODUCT): (own, theirs)}
    before = dict(contest.calls)
    assert choices.prefers_library(PRODUCT) is taken
    assert contest.calls == before  # measured once


def test_another_process_finds_the_choice_on_disk(tmp_path: Path) -> None:
    Contest(2.0, 1.0).choices(tmp_path).prefers_library(PRODUCT)
    later = Contest(1.0, 2.0)
    assert later.choices(tmp_path).prefers_library(PRODUCT)
    assert later.calls["own"] == 0
    assert not later.choices(tmp_path, "fake 2").prefers_library(PRODUCT)  # of another version
    assert later.calls["own"] > 0
    assert (
        Contest(1.0, 2.0).choices(tmp_path).prefers_library(PRODUCT)
    )  # whose times are still there


def test_a_choice_stays_within_a_process(tmp_path: Path) -> None:
    choices = Contest(2.0, 1.0).choices(tmp_path)
    assert choices.prefers_library(PRODUCT)
    (tmp_path / library.FILE).unlink()
    Contest(1.0, 2.0).choices(tmp_path).prefers_library(PRODUCT)
    assert choices.prefers_library(PRODUCT)


@pytest.mark.parametrize("content", ["", "{", '{"fake 1": {"x": 3}}', "[]"])
def test_a_damaged_file_is_measured_anew(tmp_path: Path, content: str) -> None:
    (tmp_path / library.FILE).write_text(content)
    choices = Contest(2.0, 1.0).choices(tmp_path)
    assert choices.prefers_library(PRODUCT) and str(PRODUCT) in choices.known()


def disturb(contest: Contest) -> Callable[..., Array]:
    """Let these kernels take longer from call to call; the method that did without."""
    run = contest._run

    def disturbed(who: str, a: Array, b: Array) -> Array:
        contest.seconds["own"] *= 1.5
        return run(who, a, b)

    contest._run = disturbed  # type: ignore[method-assign]
    return run


def test_a_busy_machine_is_no_place_to_measure(tmp_path: Path) -> None:
    contest = Contest(4.0, 1.0)
    choices = contest.choices(tmp_path)
    run = disturb(contest)
    layouts = ("NN", "NT", "TN", "TT")
    *unsteady, last = (PRODUCT._replace(layout=layout) for layout in layouts)
    assert len(unsteady) == library.MOST_UNSTEADY
    assert not any(choices.prefers_library(product) for product in unsteady)
    assert not list(tmp_path.iterdir())  # they are measured again by another process
    contest._run = run  # type: ignore[method-assign]
    assert not any(choices.prefers_library(product) for product in unsteady)  # and not by this one
    assert not choices.prefers_library(last)  # nor is another
    assert Contest(4.0, 1.0).choices(tmp_path).prefers_library(PRODUCT)


def test_one_unsteady_class_says_nothing_of_others(tmp_path: Path) -> None:
    contest = Contest(4.0, 1.0)
    choices, run = contest.choices(tmp_path), disturb(contest)
    assert not choices.prefers_library(PRODUCT)
    contest._run = run  # type: ignore[method-assign]
    assert choices.prefers_library(PRODUCT._replace(size="large"))


def test_a_clock_that_slows_down_is_no_matter(tmp_path: Path) -> None:
    """Times that were 1.3 apart had every class left to these kernels."""
    contest = Contest(2.0, 1.0)
    choices, run = contest.choices(tmp_path), contest._run

    def slower(who: str, a: Array, b: Array) -> Array:
        if who == "own":
            contest.seconds = {name: 1.5 * s for name, s in contest.seconds.items()}
        return run(who, a, b)

    contest._run = slower  # type: ignore[method-assign]
    assert choices.prefers_library(PRODUCT)
    own, theirs = choices.known()[str(PRODUCT)]
    assert own == pytest.approx(2 * theirs)


def test_classes_are_kept_side_by_side(tmp_path: Path) -> None:
    choices = Contest(2.0, 1.0).choices(tmp_path)
    other = PRODUCT._replace(layout="TN")
    assert choices.prefers_library(PRODUCT) and choices.prefers_library(other)
    assert choices.known().keys() == {str(PRODUCT), str(other)}


def test_a_library_with_wrong_results_is_never_taken(tmp_path: Path) -> None:
    assert not Contest(2.0, 1.0, error=1.0).choices(tmp_path).prefers_library(PRODUCT)


def test_without_a_library_nothing_is_measured(tmp_path: Path) -> None:
    contest = Contest(2.0, 1.0)
    assert not contest.choices(tmp_path, fits=False).prefers_library(PRODUCT)
    assert contest.calls == {"own": 0, "library": 0} and not list(tmp_path.iterdir())


def test_threads_that_wait_busily_are_not_woken(monkeypatch: pytest.MonkeyPatch) -> None:
    """OpenBLAS's and MKL's; Accelerate, whose number cannot be set, lets its own sleep."""
    monkeypatch.setattr(library, "JIT", True)
    monkeypatch.setattr(library.threads, "cores", lambda: 4)
    settable = Blas("OpenBLAS", 8, {}, get_threads=lambda: 4, set_threads=lambda count: None)
    for blas, expected in ((settable, [1]), (Blas("Accelerate", 8, {}), [4]), (None, [])):
        monkeypatch.setattr(library, "find_blas", lambda blas=blas: blas)
        assert [count for count in (1, 2, 4) if library.fits(count)] == expected


def test_where_nothing_can_be_written_the_choice_is_for_this_process() -> None:
    contest = Contest(2.0, 1.0)
    choices = contest.choices(None)
    assert choices.prefers_library(PRODUCT) and choices.prefers_library(PRODUCT)
    assert contest.calls["own"] == 1 + library.ROUNDS


def strides(rows: int, columns: int, layout: str = "N") -> tuple[int, int]:
    return (4 * columns, 4) if layout == "N" else (4, 4 * rows)


@pytest.mark.parametrize(
    ("shape", "size"),
    [
        ((32, 1024, 1024), "few rows"), ((1024, 32, 1024), "few rows"),
        ((1024, 1024, 16), "shallow"), ((512, 512, 512), "medium"),
        ((1024, 1024, 1024), "large"), ((256, 256, 128), None), ((1, 4096, 4096), None),
    ],
)  # fmt: skip
def test_sizes(shape: tuple[int, int, int], size: str | None) -> None:
    m, n, k = shape
    found = class_of(shape, strides(m, k), strides(k, n, "T"), 4, 2)
    assert found == (ProductClass(4, "NT", size, 2) if size else None)


@pytest.mark.parametrize("wrong", [(4 * 512 * 2, 8), (0, 4), (-4 * 512, 4), (4 * 512 + 2, 4)])
def test_layouts_that_blas_does_not_know_are_ours(wrong: tuple[int, int]) -> None:
    assert class_of((512, 512, 512), wrong, strides(512, 512), 4, 1) is None
    assert class_of((512, 512, 512), strides(512, 512), wrong, 4, 1) is None


def test_the_shapes_that_are_timed_are_of_their_class() -> None:
    for product in library.all_classes():
        a, b = library.operands(product)
        shape = (a.shape[0], b.shape[1], a.shape[1])
        assert class_of(shape, a.strides, b.strides, 4, product.threads) == product


@has_library
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("layouts", list(itertools.product(("C", "transposed"), repeat=2)))
def test_its_product_and_bias(rng: Any, dtype: Any, layouts: tuple[str, str]) -> None:
    a, b = matrix(rng, (9, 20), dtype, layouts[0]), matrix(rng, (20, 13), dtype, layouts[1])
    assert_product(library.library_affine(a, b, np.empty(0, dtype), 1), a, b)
    bias = rng.standard_normal(13).astype(dtype)
    assert_product(library.library_affine(a, b, bias, 1), a, b, bias)


@has_library
def test_its_product_as_a_symbol_starts_from_a_matrix_and_ends_in_relu(rng: Any) -> None:
    a, b, start = (rng.standard_normal(s).astype(np.float32) for s in ((6, 8), (8, 6), (6, 6)))
    b[0, 0] = np.nan
    exported = exports[library.library_gemm(4).symbol]
    exported.register()
    wide = np.full((6, 10), 7.0, np.float32)  # rows of C are apart

    def run(into: Array, begin: Array) -> None:
        exported.callback.ctypes(
            6, 6, 8, a.ctypes.data, *a.strides, b.ctypes.data, *b.strides, into.ctypes.data,
            into.strides[0], begin.ctypes.data, begin.strides[0], 1, 0,
        )  # fmt: skip

    expected = np.maximum(start + a @ b, 0)
    run(wide, start)
    np.testing.assert_allclose(wide[:, :6], expected, rtol=1e-4, atol=1e-5)
    assert (wide[:, 6:] == 7).all() and np.isnan(wide[:, 0]).all()
    run(start, start)  # accumulated
    np.testing.assert_allclose(start, expected, rtol=1e-4, atol=1e-5)


@pytest.fixture
def taking_library(monkeypatch: pytest.MonkeyPatch) -> Callable[[], list[int]]:
    """The library is always the faster; gives the numbers of threads of its products."""
    counts: list[int] = []

    class Always:
        def prefers_library(self, product: ProductClass) -> bool:
            return True

    def noted(a: Array, b: Array, bias: Array, count: int) -> Array:
        counts.append(count)
        return affine(a, b, bias, count)

    affine = library.library_affine
    monkeypatch.setattr(library, "library_affine", noted)
    for module in (products, native_products):
        monkeypatch.setattr(module, "choices", Always)
    return lambda: counts


@has_library
def test_the_backend_takes_it_for_large_products(
    rng: Any, taking_library: Callable[[], list[int]]
) -> None:
    m, n, k = LARGE
    x, w = (rng.standard_normal(s).astype(np.float32) for s in ((m, k), (n, k)))
    bias, g = rng.standard_normal(n).astype(np.float32), rng.standard_normal((m, n))
    calls = (
        lambda ops: ops.matmul(x, w.T),
        lambda ops: ops.linear(x, w, bias),
        lambda ops: ops.linear(x.reshape(2, m // 2, k), w),
        lambda ops: ops.linear_weight(g.astype(np.float32), x),
        lambda ops: ops.matmul(x.reshape(2, m // 2, k), np.ascontiguousarray(w.T)),
    )
    free, own = OptimizedBackend(), OptimizedBackend(own_kernels_only=True)
    for number, call in enumerate(calls, 1):
        theirs = call(free)
        assert len(taking_library()) == number
        np.testing.assert_allclose(call(own), theirs, rtol=1e-3, atol=1e-3)
        assert len(taking_library()) == number
        assert (call(free) == theirs).all() and taking_library().pop()  # the same bits again
    free.matmul(x[:4], w.T)
    assert len(taking_library()) == len(calls)
    assert set(taking_library()) == {threads.get_num_threads()}


def test_what_a_class_overrides_stays_its_own() -> None:
    class Mine(OptimizedBackend):
        def matmul(self, a: Array, b: Array) -> Array:  # type: ignore[override]
            return np.full((1, 1), 3.0)

    mine = Mine(own_kernels_only=True)
    assert mine.matmul(np.ones((1, 1)), np.ones((1, 1)))[0, 0] == 3.0
    assert mine.own_kernels_only and not Mine().own_kernels_only


@pytest.mark.slow
@has_library
def test_a_compiled_step_calls_it_on_one_thread(
    rng: Any, taking_library: Callable[[], list[int]]
) -> None:
    m, n, k = LARGE
    layer = nn.Linear(k, n)
    x = tinytorch.from_numpy(rng.standard_normal((m, k)).astype(np.float32))
    blas, count = find_blas(), threads.get_num_threads()
    assert blas is not None
    threads.set_num_threads(1)
    try:
        for backend in (OptimizedBackend(), OptimizedBackend(own_kernels_only=True)):
            step = tinytorch.compile(
                lambda x: tinytorch.nn.functional.relu(layer(x)), backend=backend, mode="native"
            )
            with tinytorch.no_grad():
                found, expected = step(x), (x @ layer.weight.T + layer.bias).relu()
                np.testing.assert_allclose(found.numpy(), expected.numpy(), rtol=1e-3, atol=1e-4)
                assert (step(x).numpy() == found.numpy()).all()
            (trace,) = step.traces
            source = trace.code.program.source
            assert ("gemm_library_f32(" in source) is not backend.own_kernels_only
    finally:
        threads.set_num_threads(count)
