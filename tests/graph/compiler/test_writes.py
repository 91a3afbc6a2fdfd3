"""Programs whose point is the order of their writes: compiled, they leave eager's state."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

import tinytorch
from tinytorch.graph import trace
from tinytorch.state import using_backend
from tinytorch.tensor import Tensor


def lion(a: Tensor, b: Tensor, p: Tensor, g: Tensor) -> None:
    update = a * 0.9 + g * 0.1
    a.mul_(0.99).add_(g, alpha=0.01)
    p.sub_(update * 0.01)


def average_of_the_old_weights(a: Tensor, b: Tensor, p: Tensor, g: Tensor) -> None:
    old = a.clone()
    a.sub_(g * 0.1)
    b.mul_(0.9).add_(old, alpha=0.1)


def swap(a: Tensor, b: Tensor, p: Tensor, g: Tensor) -> None:
    old = a.clone()
    a.copy_(b)
    b.copy_(old)


def rotation(a: Tensor, b: Tensor, p: Tensor, g: Tensor) -> None:
    old = a.clone()
    a.copy_(b)
    b.copy_(p)
    p.copy_(old)


def fibonacci(a: Tensor, b: Tensor, p: Tensor, g: Tensor) -> None:
    following = a + b
    a.copy_(b)
    b.copy_(following)


def leapfrog(a: Tensor, b: Tensor, p: Tensor, g: Tensor) -> None:
    half = b - a * 0.05
    a.add_(half * 0.1)
    b.copy_(half - a * 0.05)


def product_with_a_copy_of_itself(a: Tensor, b: Tensor, p: Tensor, g: Tensor) -> None:
    a.mul_(a.clone().detach())


def result_of_before_the_write(a: Tensor, b: Tensor, p: Tensor, g: Tensor) -> Tensor:
    old = a.clone()
    a.copy_(g)
    return old


def chain(a: Tensor, b: Tensor, p: Tensor, g: Tensor) -> Tensor:
    a.copy_(b)
    b.copy_(p)
    p.copy_(g)
    return a + b


PROGRAMS: list[Callable[..., Tensor | None]] = [
    lion, average_of_the_old_weights, swap, rotation, fibonacci, leapfrog,
    product_with_a_copy_of_itself, result_of_before_the_write, chain,
]  # fmt: skip


@pytest.mark.parametrize("threads", [1, 2])
@pytest.mark.parametrize("backend", ["numpy", "optimized"])
@pytest.mark.parametrize("program", PROGRAMS, ids=lambda p: p.__name__)
def test_the_state_is_as_after_eager(
    program: Callable[..., Tensor | None], backend: str, threads: int, rng: np.random.Generator
):
    size = 5 if threads == 1 else 20_000  # enough for threads to share
    start = rng.standard_normal((3, size)).astype(np.float32)
    batches = rng.standard_normal((3, size)).astype(np.float32)
    before = tinytorch.get_num_threads()
    tinytorch.set_num_threads(threads)
    try:
        found = []
        for compiled in (False, True):
            state = [tinytorch.tensor(x) for x in start]

            def step(g: Tensor, state: list[Tensor] = state) -> Tensor | None:
                return program(*state, g)

            with using_backend(backend):
                run = tinytorch.compile(step) if compiled else step
                results = [run(tinytorch.tensor(g)) for g in batches]
            found.append([*state, *(r for r in results if r is not None)])
    finally:
        tinytorch.set_num_threads(before)
    for eager, ours in zip(*found, strict=True):
        np.testing.assert_allclose(ours.numpy(), eager.numpy(), 1e-6, 1e-6)


@pytest.mark.parametrize("backend", ["numpy", "optimized"])
def test_a_tensor_that_was_copied_into_another_is_not_that(backend):
    def copies(x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        double, given, made = x * 2.0, tinytorch.zeros(2), tinytorch.zeros(2)
        return double, given.copy_(x), made.copy_(double)

    x = tinytorch.ones(2)
    with using_backend(backend):
        double, given, made = tinytorch.compile(copies)(x)
    x.zero_()
    double.zero_()
    assert given.tolist() == [1.0, 1.0] and made.tolist() == [2.0, 2.0]


def test_a_product_of_one_factor_is_not_that_factor():
    def products(x: Tensor) -> Tensor:
        return x.prod(0).add_(x.cumprod(0)[0].mul_(2.0)) + x.logcumsumexp(0).add_(1.0)

    x = tinytorch.tensor([2.0])
    assert products(x).tolist() == trace(products, x)(x).tolist() == [9.0] and x.item() == 2.0


@pytest.mark.parametrize("backend", ["numpy", "optimized"])
def test_a_gradient_is_added_to_in_place(backend: str) -> None:
    w, bucket = tinytorch.ones(3, requires_grad=True), tinytorch.zeros(6)

    def step(x: Tensor) -> None:
        (w * x).sum().backward()

    with using_backend(backend):
        compiled = tinytorch.compile(step)
        w.grad = bucket[:3]
        for _ in range(3):
            compiled(tinytorch.ones(3))
        np.testing.assert_array_equal(bucket.numpy(), [3.0, 3.0, 3.0, 0.0, 0.0, 0.0])
        held, w.grad = w.grad, None
        for _ in range(3):  # the first of them makes a new one
            compiled(tinytorch.ones(3))
    np.testing.assert_array_equal(w.grad.numpy(), [3.0, 3.0, 3.0])
    np.testing.assert_array_equal(held.numpy(), [3.0, 3.0, 3.0])


def test_a_gradient_that_the_function_replaces_is_another_tensor() -> None:
    w = tinytorch.ones(3, requires_grad=True)

    def step(x: Tensor) -> None:
        w.grad = None
        (w * x).sum().backward()
        (w * x).sum().backward()

    compiled = tinytorch.compile(step)
    for factor in (1.0, 2.0, 3.0):
        before = w.grad
        compiled(tinytorch.full((3,), factor))
        np.testing.assert_array_equal(w.grad.numpy(), [2.0 * factor] * 3)
        assert before is None or before.numpy()[0] == 2.0 * (factor - 1.0)


def test_a_gradient_that_is_added_to_is_dropped() -> None:
    w = tinytorch.ones(3, requires_grad=True)
    compiled = tinytorch.compile(lambda x: (w * x).sum().backward(), keep_grads=False)
    w.grad = tinytorch.ones(3)
    compiled(tinytorch.ones(3))
    assert w.grad is None


def _multiplied(w, mask):
    w.data *= mask


def _replaced(w, mask):
    w.data = w.data * mask


def _written(w, mask):
    w.data.mul_(mask)


@pytest.mark.parametrize("change", [_multiplied, _replaced, _written])
def test_the_data_of_a_leaf_is_written_in_a_compiled_forward(change):
    """As masked convolutions do before each use of their weight."""
    w, mask = tinytorch.ones(3, requires_grad=True), tinytorch.tensor([1.0, 0.0, 1.0])

    def forward(x):
        change(w, mask)
        return (w * x).sum()

    x = tinytorch.tensor([1.0, 2.0, 3.0])
    with pytest.warns(RuntimeWarning, match="overwrites a leaf"):
        out = tinytorch.compile(forward)(x)
    out.backward()
    assert out.item() == 4.0 and w.tolist() == [1.0, 0.0, 1.0] and w.grad.tolist() == x.tolist()
    with tinytorch.no_grad():
        w.fill_(2.0)
        assert tinytorch.compile(forward)(x).item() == 8.0 and w.tolist() == [2.0, 0.0, 2.0]
