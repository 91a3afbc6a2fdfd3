"""What the thirteenth module's parts do inside the package."""

import numpy as np

import tinytorch
from tinytorch.backends import find_backend, reference
from tinytorch.backends.blocked import elementwise, matmul
from tinytorch.op import OPS
from tito.checks import check, close

RNG = np.random.default_rng(13)


def test_products_of_all_orders_and_shapes() -> None:
    """your loop orders, your blocks and your threads multiply matrices of every shape"""
    for m, k, n in [(1, 1, 1), (5, 7, 3), (64, 64, 64), (3, 260, 514)]:
        a, b = (RNG.normal(size=s).astype(np.float32) for s in ((m, k), (k, n)))
        exact = a.astype(np.float64) @ b.astype(np.float64)
        for multiply in (matmul.matmul_ijk, matmul.matmul_ikj, matmul.matmul_blocked):
            c = np.full((m, n), np.nan, np.float32)
            multiply(a, b, c)
            check(np.allclose(c, exact, atol=1e-3), f"{multiply.__name__} of {(m, k, n)}")
        c = np.full((m, n), np.nan, np.float32)
        matmul.matmul_parallel(2, a, b, c)
        check(np.allclose(c, exact, atol=1e-3), f"two threads, {(m, k, n)}")
        transposed = np.ascontiguousarray(b.T).T
        check(np.allclose(matmul.matmul(a, transposed), exact, atol=1e-3), "a transposed matrix")


def test_convolutions_agree_with_numpy() -> None:
    """the blocked backend's convolution and its gradients, on your columns, agree with NumPy's"""
    shape = {"stride": (2, 1), "padding": (1, 2), "dilation": (1, 2), "groups": 2}
    x, w = RNG.normal(size=(3, 4, 9, 7)), RNG.normal(size=(6, 2, 3, 2))
    blocked = find_backend("blocked")
    out = blocked.conv2d(x, w, **shape)
    check(np.allclose(out, reference.conv2d(x, w, **shape)), "forward")
    back = blocked.conv2d_input(out, w, input_size=(9, 7), **shape)
    check(np.allclose(back, reference.conv2d_input(out, w, input_size=(9, 7), **shape)), "input")
    weight = blocked.conv2d_weight(x, out, kernel_size=(3, 2), **shape)
    exact = reference.conv2d_weight(x, out, kernel_size=(3, 2), **shape)
    check(np.allclose(weight, exact), "weight")


def test_chains_in_one_pass() -> None:
    """a fused chain is what its parts are, and a step with momentum is the optimizer's"""
    x, y = (RNG.normal(size=1000).astype(np.float32) for _ in range(2))
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
