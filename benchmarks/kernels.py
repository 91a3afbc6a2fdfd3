"""Kernels of the optimized backend beside NumPy, NumPy with tuned OpenBLAS, and PyTorch.

Every result is checked before anything is timed. Ratios are others / ours: 2.00 says that the other
takes twice as long.
"""

from thread_count import THREADS  # noqa: I001 - before NumPy

import argparse
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from openblas import OpenBlas, core_types
from tinytorch.bench.peak import memory_bandwidth
from roofline import draw
from processor import describe
from runner import ATTEMPTS, ROUNDS, Case, as_json, check_share, highest_peak, measure, report

from tinytorch.backends import find_backend, reference
from tinytorch.backends.optimized import OptimizedBackend
from tinytorch.backends.optimized.elementwise.loops import compile_elementwise
from tinytorch.jit import threads
from tinytorch.jit.library import cache_info

BACKEND: Any = find_backend("optimized")
BLOCKED: Any = find_backend("blocked")
GEMM = [
    *((n, n, n) for n in (64, 128, 256, 512, 1024, 2048, 127, 333)),
    (1000, 17, 513), (32, 784, 128), (10, 128, 32), (32, 768, 3072), (768, 128, 3072),
]  # fmt: skip
CONV = [  # n, c, h, w, o, k, stride, padding
    (32, 1, 28, 28, 16, 3, 1, 1),
    (32, 16, 14, 14, 32, 3, 1, 1),
    (8, 3, 32, 32, 16, 3, 1, 1),
    (1, 64, 56, 56, 64, 3, 1, 1),
    (8, 128, 28, 28, 128, 3, 1, 1),
    (8, 64, 28, 28, 128, 3, 2, 1),
    (8, 64, 28, 28, 128, 1, 1, 0),
    (32, 1, 28, 28, 6, 5, 1, 2),
    (32, 6, 14, 14, 16, 5, 1, 0),
]
WINOGRAD = [  # n, channels, height and width, output channels
    (1, 64, 56, 64),
    (8, 128, 28, 128),
    (8, 32, 32, 32),
    (1, 256, 14, 256),
]
ROWS = [(32, 128), (256, 1024), (4096, 1024)]
CLASSES = [(32, 10), (256, 1000), (512, 32000)]
PARAMETERS = [1_000, 10_000, 101_770, 1_000_000, 20_000_000]
EPS = 1e-5
MOST_FLOPS = 5e9
"""Of a case in a short run."""


def normal(*shape: int) -> Any:
    """Random numbers, always the same ones for a shape."""
    return np.random.default_rng(0).standard_normal(shape, dtype=np.float32)


def check(name: str, ours: Any, exact: Any, tolerance: float = 1e-4) -> None:
    """Raises AssertionError unless the largest difference is below `tolerance` times `exact`."""
    scale = max(float(np.max(np.abs(exact))), 1e-30)
    error = float(np.max(np.abs(np.asarray(ours, np.float64) - exact))) / scale
    if not error <= tolerance:
        raise AssertionError(f"{name}: the result is off by {error:.2e} of its largest element")


def on_one_thread(a: Any, b: Any) -> Any:
    """A product by one thread, in a process that has more."""
    threads.set_num_threads(1)
    try:
        return BACKEND.matmul(a, b)
    finally:
        threads.set_num_threads(THREADS)


def gemm_cases(workers: dict[str, OpenBlas]) -> Iterator[Case]:
    """Products in four layouts; "T" is a transposed view. With the `blocked` backend beside,
    and where there are several threads the same product on one."""
    for m, k, n in GEMM:
        for layout in ("NN", "NT", "TN", "TT"):
            shapes = [
                ((k, m), True) if layout[0] == "T" else ((m, k), False),
                ((n, k), True) if layout[1] == "T" else ((k, n), False),
            ]
            a, b = (normal(*s).T if flipped else normal(*s) for s, flipped in shapes)
            ta, tb = torch.from_numpy(a), torch.from_numpy(b)
            name = f"{m}x{k}x{n} {layout}"
            check(name, BACKEND.matmul(a, b), a.astype(np.float64) @ b.astype(np.float64))
            yield Case(
                "GEMM", name,
                {
                    "ours": partial(BACKEND.matmul, a, b),
                    "numpy": partial(np.matmul, a, b),
                    "torch": partial(torch.mm, ta, tb),
                    "blocked": partial(BLOCKED.matmul, a, b),
                    **({"one thread": partial(on_one_thread, a, b)} if THREADS > 1 else {}),
                },
                {f"blas:{t}": partial(w.seconds, shapes) for t, w in workers.items()},
                flops=2 * m * k * n,
                nbytes=4 * (m * k + k * n + m * n),
            )  # fmt: skip


def gemv_cases(workers: dict[str, OpenBlas]) -> Iterator[Case]:
    """A row times a matrix."""
    for k, n in ((4096, 4096), (784, 128)):
        for layout in ("NN", "NT"):
            shapes = [((1, k), False), ((n, k), True) if layout == "NT" else ((k, n), False)]
            a, b = (normal(*s).T if flipped else normal(*s) for s, flipped in shapes)
            ta, tb = torch.from_numpy(a), torch.from_numpy(b)
            name = f"1x{k}x{n} {layout}"
            check(name, BACKEND.matmul(a, b), a.astype(np.float64) @ b.astype(np.float64))
            yield Case(
                "GEMV", name,
                {
                    "ours": partial(BACKEND.matmul, a, b),
                    "numpy": partial(np.matmul, a, b),
                    "torch": partial(torch.mm, ta, tb),
                },
                {f"blas:{t}": partial(w.seconds, shapes) for t, w in workers.items()},
                flops=2 * k * n,
                nbytes=4 * k * n,
            )  # fmt: skip


def conv_params(stride: int, padding: int) -> dict[str, Any]:
    """The same along both axes."""
    return {
        "stride": (stride, stride), "padding": (padding, padding), "dilation": (1, 1), "groups": 1,
    }  # fmt: skip


def conv_cases(workers: dict[str, OpenBlas]) -> Iterator[Case]:
    """Convolution forward, and both its gradients together."""
    for n, c, h, w, o, k, stride, padding in CONV:
        x, weight, bias = normal(n, c, h, w), normal(o, c, k, k), normal(o)
        params = conv_params(stride, padding)
        out = BACKEND.conv2d(x, weight, bias, **params)
        g = normal(*out.shape)
        wide = [v.astype(np.float64) for v in (x, weight, bias, g)]
        name = f"{n}x{c}x{h}x{w}->{o} k{k} s{stride}"
        check(name, out, reference.conv2d(*wide[:3], **params))
        tx, tw, tb, tg = map(torch.from_numpy, (x, weight, bias, g))
        flops, nbytes = 2 * out.size * c * k * k, 4 * (x.size + weight.size + out.size)
        yield Case(
            "conv2d forward", name,
            {
                "ours": partial(BACKEND.conv2d, x, weight, bias, **params),
                "torch": partial(F.conv2d, tx, tw, tb, stride, padding),
            },
            flops=flops, nbytes=nbytes,
        )  # fmt: skip

        def backward(
            x: Any = x, weight: Any = weight, g: Any = g, params: Any = params
        ) -> tuple[Any, Any]:
            return (
                BACKEND.conv2d_input(g, weight, input_size=x.shape[2:], **params),
                BACKEND.conv2d_weight(x, g, kernel_size=weight.shape[2:], **params),
            )

        dx, dw = backward()
        check(name, dx, reference.conv2d_input(wide[3], wide[1], input_size=(h, w), **params))
        check(name, dw, reference.conv2d_weight(wide[0], wide[3], kernel_size=(k, k), **params))
        yield Case(
            "conv2d backward", name,
            {
                "ours": backward,
                "torch": partial(
                    torch.ops.aten.convolution_backward, tg, tx, tw, [o], [stride] * 2,
                    [padding] * 2, [1, 1], False, [0, 0], 1, [True, True, False],
                ),
            },
            flops=2 * flops, nbytes=2 * nbytes,
        )  # fmt: skip


def winograd_cases(workers: dict[str, OpenBlas]) -> Iterator[Case]:
    """Convolution by Winograd's algorithm, the transform of the weights included.

    Gflop/s count the multiplications of the direct sum, most of which are never done.
    """
    params = conv_params(stride=1, padding=1)
    for m in (4, 2):
        conv2d = OptimizedBackend(winograd=m).conv2d
        for n, c, size, o in WINOGRAD:
            x, weight, bias = normal(n, c, size, size), normal(o, c, 3, 3), normal(o)
            name = f"F({m},3) {n}x{c}x{size}x{size}->{o}"
            exact = reference.conv2d(*(v.astype(np.float64) for v in (x, weight, bias)), **params)
            check(name, conv2d(x, weight, bias, **params), exact)
            yield Case(
                "conv2d, Winograd", name,
                {
                    "ours": partial(conv2d, x, weight, bias, **params),
                    "torch": partial(F.conv2d, *map(torch.from_numpy, (x, weight, bias)), 1, 1),
                },
                flops=2 * exact.size * c * 9, nbytes=4 * (x.size + weight.size + exact.size),
            )  # fmt: skip


def bias_relu(x: float, b: float) -> float:
    return max(x + b, 0)


def numpy_softmax(x: Any) -> Any:
    e = np.exp(x - x.max(1, keepdims=True))
    return e / e.sum(1, keepdims=True)


def numpy_layer_norm(x: Any, w: Any, b: Any) -> Any:
    return (x - x.mean(1, keepdims=True)) / np.sqrt(x.var(1, keepdims=True) + EPS) * w + b


def numpy_gelu(x: Any) -> Any:
    return 0.5 * x * (1 + np.tanh(0.7978845608 * (x + 0.044715 * x * x * x)))


def memory_cases(workers: dict[str, OpenBlas]) -> Iterator[Case]:
    """Kernels that read a number, do little with it, and write one."""
    fused = compile_elementwise(bias_relu)
    for rows, columns in ROWS:
        x, b, w = normal(rows, columns), normal(columns), normal(columns)
        tx, tb, tw = map(torch.from_numpy, (x, b, w))
        contestants: dict[str, dict[str, Callable[[], Any]]] = {
            "bias + relu": {
                "ours": partial(fused, x, b),
                "numpy": lambda x=x, b=b: np.maximum(x + b, 0),
                "torch": lambda x=tx, b=tb: torch.relu(x + b),
            },
            "softmax": {
                "ours": partial(BACKEND.softmax, x, dim=1),
                "numpy": partial(numpy_softmax, x),
                "torch": partial(torch.softmax, tx, 1),
            },
            "layer norm": {
                "ours": partial(BACKEND.layer_norm, x, w, b, eps=EPS),
                "numpy": partial(numpy_layer_norm, x, w, b),
                "torch": partial(F.layer_norm, tx, (columns,), tw, tb, EPS),
            },
            "gelu (tanh)": {
                "ours": partial(BACKEND.gelu, x, approximate="tanh"),
                "numpy": partial(numpy_gelu, x),
                "torch": partial(F.gelu, tx, approximate="tanh"),
            },
            "gelu": {
                "ours": partial(BACKEND.gelu, x, approximate="none"),
                "torch": partial(F.gelu, tx),
            },
        }
        for name, functions in contestants.items():
            check(name, functions["ours"](), functions["torch"]().numpy())
            yield Case("memory-bound", f"{name} {rows}x{columns}", functions, nbytes=8 * x.size)


def numpy_cross_entropy(x: Any, target: Any) -> tuple[Any, Any]:
    n = np.arange(len(x))
    shift = x.max(1, keepdims=True)
    e = np.exp(x - shift)
    total = e.sum(1, keepdims=True)
    loss = (np.log(total[:, 0]) + shift[:, 0] - x[n, target]).mean()
    dx = e / total
    dx[n, target] -= 1
    dx /= len(x)
    return loss, dx


def torch_cross_entropy(x: Any, target: Any) -> tuple[Any, Any]:
    x.grad = None
    loss = F.cross_entropy(x, target)
    loss.backward()
    return loss.detach(), x.grad


def our_cross_entropy(x: Any, target: Any, g: Any) -> tuple[Any, Any]:
    return BACKEND.cross_entropy(x, target), BACKEND.cross_entropy_backward(g, x, target)


def loss_cases(workers: dict[str, OpenBlas]) -> Iterator[Case]:
    """Cross entropy with its gradient; PyTorch's time includes its autograd engine."""
    for rows, classes in CLASSES:
        x = normal(rows, classes)
        target = np.random.default_rng(1).integers(0, classes, rows)
        tx, tt = torch.from_numpy(x).requires_grad_(), torch.from_numpy(target)
        functions: dict[str, Callable[[], Any]] = {
            "ours": partial(our_cross_entropy, x, target, np.ones((), np.float32)),
            "numpy": partial(numpy_cross_entropy, x, target),
            "torch": partial(torch_cross_entropy, tx, tt),
        }
        for ours, theirs in zip(functions["ours"](), functions["torch"](), strict=True):
            check("cross entropy", ours, theirs.numpy())
        name = f"cross entropy, gradient {rows}x{classes}"
        yield Case("losses", name, functions, nbytes=12 * x.size)


class NumpyAdam:
    """Adam in array operations, in place."""

    def __init__(self, p: Any, g: Any) -> None:
        self.p, self.g, self.m, self.v = p, g, np.zeros_like(p), np.zeros_like(p)

    def __call__(self) -> None:
        self.m *= 0.9
        self.m += 0.1 * self.g
        self.v *= 0.999
        self.v += 0.001 * (self.g * self.g)
        self.p -= 1e-3 * (self.m / 0.1) / (np.sqrt(self.v / 0.001) + 1e-8)


def adam_cases(workers: dict[str, OpenBlas]) -> Iterator[Case]:
    """A step of Adam; PyTorch's plain loop, and its fused kernel."""
    for count in PARAMETERS:
        g = normal(count)
        p, m, v = (np.zeros(count, np.float32) for _ in range(3))
        theirs = [torch.zeros(count, requires_grad=True) for _ in range(2)]
        for parameter in theirs:
            parameter.grad = torch.from_numpy(g)
        step = partial(
            BACKEND.adam_step, p, g, m, v, np.zeros(()), lr=1e-3, beta1=0.9, beta2=0.999, eps=1e-8,
            weight_decay=0.0, decoupled=False,
        )  # fmt: skip
        plain = torch.optim.Adam([theirs[0]], foreach=False)
        step()
        plain.step()
        check("Adam", p, theirs[0].detach().numpy())
        yield Case(
            "optimizers", f"Adam, {count} parameters",
            {
                "ours": step,
                "numpy": NumpyAdam(np.zeros(count, np.float32), g),
                "torch": plain.step,
                "torch fused": torch.optim.Adam([theirs[1]], fused=True).step,
            },
            nbytes=28 * count,
        )  # fmt: skip


GROUPS = {
    "gemm": gemm_cases,
    "gemv": gemv_cases,
    "conv": conv_cases,
    "winograd": winograd_cases,
    "memory": memory_cases,
    "losses": loss_cases,
    "adam": adam_cases,
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--only", default=",".join(GROUPS), help=f"of {', '.join(GROUPS)}")
    parser.add_argument("--match", default="", help="only cases whose name contains this")
    parser.add_argument("--short", action="store_true", help="no case of several Gflop")
    parser.add_argument("--threads", type=int, default=1, help="more than one: wall clock")
    parser.add_argument("--rounds", type=int, default=ROUNDS)
    parser.add_argument("--attempts", type=int, default=ATTEMPTS, help="while others disturb")
    parser.add_argument("--json", action="store_true", help="one JSON object on stdout")
    parser.add_argument("--plot", type=Path, help="write the roofline picture here")
    options = parser.parse_args()
    unknown = set(options.only.split(",")) - set(GROUPS)
    if unknown:
        parser.error(f"--only: there is no {', '.join(sorted(unknown))}")
    torch.set_num_threads(THREADS)
    bandwidth = memory_bandwidth()
    workers = {t: OpenBlas(t) for t in core_types()}
    pids = [w.pid for w in workers.values()]
    clock = "cpu" if THREADS == 1 else "wall"
    try:
        results = [
            measure(
                case, clock=clock, rounds=options.rounds, workers=pids, attempts=options.attempts
            )
            for group in options.only.split(",")
            for case in GROUPS[group](workers)
            if options.match in case.name
            if not (options.short and (case.flops or 0) > MOST_FLOPS)
        ]
    finally:
        for worker in workers.values():
            worker.close()
    counted = {"GEMM", "GEMV", "conv2d forward", "conv2d backward"}
    for result in results:
        if result.share and result.peak and result.group in counted:
            check_share(result.name, result.share / THREADS, result.peak)
    if options.plot:
        draw(results, options.plot, peak=highest_peak(results), bandwidth=bandwidth)
    if options.json:
        facts = {
            "processor": describe(), "threads": THREADS, "clock": clock,
            "peak_flops": highest_peak(results), "bandwidth": bandwidth,
            "openblas": {t: w.architecture for t, w in workers.items()},
            "compile_seconds": cache_info().compile_seconds,
        }  # fmt: skip
        print(as_json(results, **facts))
        return
    report(results, bandwidth=bandwidth, cores=THREADS)


if __name__ == "__main__":
    main()
