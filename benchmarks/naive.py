"""What loops to learn from cost: the naive backend beside loops that index arrays, and NumPy.

Loops over lists are as easy to read as loops over the elements of an array, and faster; how much
faster is the question here.
"""

import thread_count  # noqa: F401, I001 - before NumPy

import argparse
from collections.abc import Callable

import numpy as np
from runner import ROUNDS, Case, as_json, measure

from tinytorch.backends import find_backend
from tinytorch.bench import format_seconds, format_table

SIZE = 24
CONVOLUTION = {"stride": (1, 1), "padding": (1, 1), "dilation": (1, 1), "groups": 1}


def indexed_matmul(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """The product as it is often first written."""
    c = np.zeros((a.shape[0], b.shape[1]), a.dtype)
    for i in range(a.shape[0]):
        for j in range(b.shape[1]):
            for k in range(a.shape[1]):
                c[i, j] += a[i, k] * b[k, j]
    return c


def indexed_conv2d(x: np.ndarray, w: np.ndarray) -> np.ndarray:
    """3x3, padding 1, as it is often first written."""
    n, _, height, width = x.shape
    padded = np.pad(x, ((0, 0), (0, 0), (1, 1), (1, 1)))
    y = np.zeros((n, w.shape[0], height, width), x.dtype)
    for at in np.ndindex(*y.shape):
        image, out, row, column = at
        for c, i, j in np.ndindex(*w.shape[1:]):
            y[at] += padded[image, c, row + i, column + j] * w[out, c, i, j]
    return y


def cases() -> list[tuple[Case, int]]:
    """Each case with its number of multiply-adds."""
    naive, numpy = find_backend("naive"), find_backend("numpy")
    rng = np.random.default_rng(0)
    a, b = (rng.standard_normal((SIZE, SIZE)).astype(np.float32) for _ in range(2))
    x = rng.standard_normal((2, 2, 8, 8)).astype(np.float32)
    w = rng.standard_normal((4, 2, 3, 3)).astype(np.float32)
    products: dict[str, Callable[[], np.ndarray]] = {
        "ours": lambda: naive.matmul(a, b),
        "indexed": lambda: indexed_matmul(a, b),
        "numpy": lambda: numpy.matmul(a, b),
    }
    convolutions: dict[str, Callable[[], np.ndarray]] = {
        "ours": lambda: naive.conv2d(x, w, **CONVOLUTION),
        "indexed": lambda: indexed_conv2d(x, w),
        "numpy": lambda: numpy.conv2d(x, w, **CONVOLUTION),
    }
    for functions in (products, convolutions):
        for function in functions.values():
            np.testing.assert_allclose(function(), functions["numpy"](), atol=1e-4)
    return [
        (Case("naive", f"matmul {SIZE}x{SIZE}x{SIZE}", products), SIZE**3),
        (Case("naive", "conv2d 2x2x8x8->4 k3", convolutions), x[:, :1].size * w.size),
    ]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=ROUNDS)
    parser.add_argument("--json", action="store_true", help="one JSON object on stdout")
    options = parser.parse_args()
    measured = [(measure(c, clock="cpu", rounds=options.rounds), n) for c, n in cases()]
    if options.json:
        print(as_json([result for result, _ in measured]))
        return
    rows = [
        [
            result.name + (" !" if result.disturbed else ""),
            format_seconds(result.seconds["ours"]),
            format_seconds(result.seconds["ours"] / count),
            f"{result.ratios['indexed']:.1f}",
            f"{result.ratios['numpy']:.4f}",
        ]
        for result, count in measured
    ]
    print("loops on the naive backend, CPU time of one thread; ratios: other / ours\n")
    print(format_table(["", "ours", "multiply-add", "indexed/ours", "numpy/ours"], rows))


if __name__ == "__main__":
    main()
