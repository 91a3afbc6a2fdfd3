"""What the thirteenth module's parts do inside the package."""

import numpy as np

import tinytorch
from tinytorch.backends import find_backend, reference
from tinytorch.backends.blocked import elementwise, matmul
from tinytorch.op import OPS
from tito.checks import check, close

RNG = np.random.default_rng(13)
SHAPES = [(1, 1, 1), (5, 7, 3), (64, 64, 64), (3, 260, 514)]
GEOMETRY = {"stride": (2, 1), "padding": (1, 2), "dilation": (1, 2), "groups": 2}


def _matrices(*shapes: tuple[int, ...]) -> list[np.ndarray]:
    return [RNG.normal(size=shape).astype(np.float32) for shape in shapes]


def test_products_of_all_orders_and_shapes() -> None:
    """your loop orders and your blocks multiply matrices of every shape"""
    for m, k, n in SHAPES:
        a, b = _matrices((m, k), (k, n))
        exact = a.astype(np.float64) @ b.astype(np.float64)
        for multiply in (matmul.matmul_ijk, matmul.matmul_ikj, matmul.matmul_blocked):
            c = np.full((m, n), np.nan, np.float32)
            multiply(a, b, c)
            check(np.allclose(c, exact, atol=1e-3), f"{multiply.__name__} of {(m, k, n)}")


def test_transposed_matrices_and_rows_of_both() -> None:
    """your transposition and your sums of products are under every linear layer"""
    for m, k, n in SHAPES:
        a, w = _matrices((m, k), (n, k))
        exact = a.astype(np.float64) @ w.astype(np.float64).T
        check(np.allclose(matmul.matmul(a, w.T), exact, atol=1e-3), "a transposed matrix")
        check(np.allclose(matmul.linear(a, w), exact, atol=1e-3), f"linear of {(m, k, n)}")


def test_threads() -> None:
    """your threads share the rows of a product"""
    a, b = _matrices((37, 20), (20, 31))
    c = np.full((37, 31), np.nan, np.float32)
    matmul.matmul_parallel(2, a, b, c)
    check(np.allclose(c, a @ b, atol=1e-3), "two threads")


def test_convolution_agrees_with_numpy() -> None:
    """the blocked backend's convolution, on your layout and your tile, agrees with NumPy's"""
    x, w, b = _matrices((3, 4, 9, 7), (6, 2, 3, 2), (6,))
    out = find_backend("blocked").conv2d(x, w, b, **GEOMETRY)
    check(np.allclose(out, reference.conv2d(x, w, b, **GEOMETRY), atol=1e-4), "forward")


def test_gradients_of_a_convolution_agree_with_numpy() -> None:
    """so do both of its gradients"""
    x, w = _matrices((3, 4, 9, 7), (6, 2, 3, 2))
    g, blocked = reference.conv2d(x, w, **GEOMETRY), find_backend("blocked")
    back = blocked.conv2d_input(g, w, input_size=(9, 7), **GEOMETRY)
    exact = reference.conv2d_input(g, w, input_size=(9, 7), **GEOMETRY)
    check(np.allclose(back, exact, atol=1e-3), "input")
    weight = blocked.conv2d_weight(x, g, kernel_size=(3, 2), **GEOMETRY)
    exact = reference.conv2d_weight(x, g, kernel_size=(3, 2), **GEOMETRY)
    check(np.allclose(weight, exact, atol=1e-2), "weight")


def test_chains_in_one_pass() -> None:
    """a fused chain is what its parts are, and a step with momentum is the optimizer's"""
    x, y = _matrices((1000,), (1000,))
    fused = elementwise.fuse(OPS["relu"], OPS["add"])
    check(np.array_equal(fused(x, y), np.maximum(x + y, 0)), "relu of a sum")
    ends = []
    for backend in ("numpy", "blocked"):
        with tinytorch.using_backend(backend):
            p = tinytorch.tensor([1.0, -2.0, 3.0])
            optimizer = tinytorch.optim.SGD([p], lr=0.1, momentum=0.9, weight_decay=0.1)
            for _ in range(3):
                p.grad = p * 2.0
                optimizer.step()
            ends.append(p.tolist())
    close(ends[1], ends[0])
