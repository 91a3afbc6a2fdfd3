"""Values are stored where nobody has to copy them, and only where that is right."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import tinytorch
import tinytorch.nn.functional as F
from tinytorch import Tensor, ops
from tinytorch.decompositions_attention import part_of_gradients
from tinytorch.dispatch import apply
from tinytorch.graph import trace
from tinytorch.graph.compiler import native
from tinytorch.graph.compiler.native.strides import disjoint_extents
from tinytorch.graph.compiler.schedule import Schedule, schedule_traced
from tinytorch.state import using_backend

N, HEADS, LENGTH, WIDTH = 2, 3, 5, 4


def scheduled(function: Callable[..., Any], *examples: Tensor, **options: Any) -> Schedule:
    with using_backend("optimized"):
        return schedule_traced(
            trace(function, *examples, decompose=None), **(options or native.ABILITIES)
        )


def names(schedule: Schedule) -> list[str]:
    return [step.op.name for step in schedule.steps]


def draw(rng: np.random.Generator, *shape: int) -> Tensor:
    return tinytorch.from_numpy(rng.standard_normal(shape, dtype=np.float32))


def check(function: Callable[..., Any], *inputs: Tensor, threads: int = 1) -> None:
    """Native code gives what eager gives."""
    count = tinytorch.get_num_threads()
    with using_backend("optimized"):
        try:
            tinytorch.set_num_threads(threads)
            compiled = tinytorch.compile(function, mode="native")
            for _ in range(2):  # the second time memory holds what the first left
                found, expected = compiled(*inputs), function(*inputs)
                np.testing.assert_allclose(found.numpy(), expected.numpy(), rtol=1e-5, atol=1e-5)
        finally:
            tinytorch.set_num_threads(count)


def mixed(weights: Tensor, v: Tensor) -> Tensor:
    return ((weights @ v).transpose(1, 2).reshape(N, LENGTH, HEADS * WIDTH)) * 2.0


def heads_side_by_side(weights: Tensor, g: Tensor, x: Tensor) -> Tensor:
    """As the gradient of `qkv.reshape(n, length, 3, heads, width).permute(...)`."""
    parts = [weights @ x, (x.transpose(-2, -1) @ weights).transpose(-2, -1), g @ x]
    whole = tinytorch.stack(parts)
    return whole.permute(1, 3, 0, 2, 4).reshape(N * LENGTH, 3 * HEADS * WIDTH).exp()


@pytest.mark.parametrize("threads", [1, 2])
def test_a_product_writes_the_order_in_which_its_heads_are_joined(rng, threads):
    weights, v = draw(rng, N, HEADS, LENGTH, LENGTH), draw(rng, N, HEADS, LENGTH, WIDTH)
    assert names(scheduled(mixed, weights, v)) == ["matmul", "mul"]
    check(mixed, weights, v, threads=threads)


@pytest.mark.parametrize("threads", [1, 2])
def test_the_parts_of_a_concatenation_are_written_into_it(rng, threads):
    weights, g = (draw(rng, N, HEADS, LENGTH, LENGTH) for _ in range(2))
    x = draw(rng, N, HEADS, LENGTH, WIDTH)
    assert names(scheduled(heads_side_by_side, weights, g, x)) == [*["matmul"] * 3, "exp"]
    check(heads_side_by_side, weights, g, x, threads=threads)


def test_without_kernels_that_can_it_is_copied(rng):
    weights, v = draw(rng, N, HEADS, LENGTH, LENGTH), draw(rng, N, HEADS, LENGTH, WIDTH)
    plain = scheduled(mixed, weights, v, is_kept=native.is_kept)
    assert names(plain) == ["matmul", "copy", "mul"]


@pytest.mark.parametrize("order", list(itertools.permutations(range(4))))
def test_every_order_of_dimensions(rng, order):
    def turned(a: Tensor, b: Tensor) -> Tensor:
        return (a @ b).permute(*order).reshape(-1).exp()

    check(turned, draw(rng, 2, 3, 4, 5), draw(rng, 2, 3, 5, 6))


@pytest.mark.parametrize("order", list(itertools.permutations(range(4))))
@pytest.mark.parametrize("dim", range(4))
def test_parts_of_every_order(rng, order, dim):
    def joined(a: Tensor, b: Tensor, c: Tensor) -> Tensor:
        parts = [(a @ b).permute(*order), (a @ c).permute(*order)]
        return tinytorch.cat(parts, dim=dim).exp().sum(dim=0)

    b, c = (draw(rng, 3, 2, 5, 2) for _ in range(2))
    check(joined, draw(rng, 3, 2, 4, 5), b, c)


def test_a_batch_of_more_dimensions_than_a_product_walks_through(rng):
    def turned(a: Tensor, b: Tensor) -> Tensor:
        return (a @ b).permute(2, 0, 3, 1, 4).reshape(-1).exp()

    check(turned, draw(rng, 2, 3, 2, 4, 5), draw(rng, 2, 3, 2, 5, 6))


def test_a_result_is_in_c_order(rng):
    def returned(a: Tensor, b: Tensor) -> tuple[Tensor, Tensor]:
        product = a @ b
        return product, product.transpose(1, 2).reshape(-1)

    def only_joined(a: Tensor, b: Tensor) -> Tensor:
        return (a @ b).transpose(1, 2).reshape(-1)

    a, b = draw(rng, 2, 3, 4, 5), draw(rng, 2, 3, 5, 6)
    assert names(scheduled(returned, a, b)) == ["matmul", "copy"]
    check(only_joined, a, b)
    with using_backend("optimized"):
        product, flat = tinytorch.compile(returned, mode="native")(a, b)
    assert product.numpy().flags.c_contiguous
    np.testing.assert_array_equal(product.transpose(1, 2).reshape(-1).numpy(), flat.numpy())


def test_what_another_node_reads_stays_in_c_order(rng):
    def read_twice(a: Tensor, b: Tensor) -> Tensor:
        product = a @ b
        return product.transpose(1, 2).reshape(-1).exp() + product.exp().sum()

    a, b = draw(rng, 2, 3, 4, 5), draw(rng, 2, 3, 5, 6)
    schedule = scheduled(read_twice, a, b)
    assert "copy" in names(schedule)
    check(read_twice, a, b)


def test_a_value_that_is_a_part_twice_or_read_elsewhere_is_copied(rng):
    def twice(a: Tensor, b: Tensor) -> Tensor:
        product = a @ b
        return tinytorch.cat([product, product]).exp()

    def also_read(a: Tensor, b: Tensor) -> Tensor:
        product = a @ b
        return tinytorch.cat([product, a @ b.exp()]).exp() * product.sum()

    a, b = draw(rng, 2, 3, 4, 5), draw(rng, 2, 3, 5, 6)
    for function in (twice, also_read):
        assert "cat" in names(scheduled(function, a, b))
        check(function, a, b)


# -- attention -------------------------------------------------------------------------------------


def gradients(g: Tensor, *qkv: Tensor, is_causal: bool = True) -> tuple[Tensor, list[Tensor]]:
    """Attention's gradients for query, key and value, flat, and each of them in its shape."""
    flat = apply(
        ops.scaled_dot_product_attention_backward, g, *qkv,
        is_causal=is_causal, scale=0.5, dropout_p=0.0,
    )  # fmt: skip
    shapes = tuple([x.shape for x in qkv])
    return flat, [part_of_gradients(flat, i, shapes) for i in range(3)]


def joined_gradients(g: Tensor, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    """As the gradient of `qkv.reshape(n, length, 3, heads, width).permute(...)`; g is read in the
    order in which the heads were joined."""
    upper = g.reshape(N, LENGTH, HEADS, WIDTH).transpose(1, 2)
    _, parts = gradients(upper, q, k, v)
    whole = tinytorch.stack(parts)
    return whole.permute(1, 3, 0, 2, 4).reshape(N * LENGTH, 3 * HEADS * WIDTH).exp()


def heads(rng: np.random.Generator, count: int) -> list[Tensor]:
    return [draw(rng, N, HEADS, LENGTH, WIDTH) for _ in range(count)]


@pytest.mark.parametrize("threads", [1, 2])
def test_attention_writes_the_order_in_which_its_heads_are_joined(rng, threads):
    def attend(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        mixed = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        return mixed.transpose(1, 2).reshape(N, LENGTH, HEADS * WIDTH) * 2.0

    qkv = heads(rng, 3)
    assert names(scheduled(attend, *qkv)) == ["scaled_dot_product_attention", "mul"]
    check(attend, *qkv, threads=threads)


@pytest.mark.parametrize("threads", [1, 2])
def test_the_gradients_of_attention_are_written_into_the_one_of_the_product(rng, threads):
    g, qkv = draw(rng, N, LENGTH, HEADS * WIDTH), heads(rng, 3)
    schedule = scheduled(joined_gradients, g, *qkv)
    assert names(schedule) == ["scaled_dot_product_attention_backward", "exp"]
    with using_backend("optimized"):
        text = native.build(schedule).source
    assert "copy" not in text
    check(joined_gradients, g, *qkv, threads=threads)


@pytest.mark.parametrize("order", list(itertools.permutations(range(4))))
@pytest.mark.parametrize("dim", range(4))
def test_gradients_of_attention_in_every_order(rng, order, dim):
    def joined(g: Tensor, *qkv: Tensor) -> Tensor:
        _, parts = gradients(g, *qkv)
        return tinytorch.cat([p.permute(*order) for p in parts], dim=dim).exp().sum(dim=0)

    check(joined, *heads(rng, 4))


def test_gradients_of_attention_with_shared_heads_and_other_lengths(rng):
    def joined(g: Tensor, *qkv: Tensor) -> Tensor:
        """The gradient of a product that gives six heads of queries, and two of keys and values."""
        _, parts = gradients(g, *qkv)
        return tinytorch.cat(parts, dim=1).transpose(1, 2).reshape(N * LENGTH, 10 * WIDTH).exp()

    def along_rows(g: Tensor, *qkv: Tensor) -> Tensor:
        _, parts = gradients(g, *qkv, is_causal=False)
        return tinytorch.cat(parts, dim=2).transpose(1, 2).reshape(N, -1).exp()

    many, few = draw(rng, N, 6, LENGTH, WIDTH), [draw(rng, N, 2, LENGTH, WIDTH) for _ in range(2)]
    assert names(scheduled(joined, many, many, *few)) == [
        "scaled_dot_product_attention_backward", "exp",
    ]  # fmt: skip
    check(joined, many, many, *few)
    longer = [draw(rng, N, 6, LENGTH + 2, WIDTH) for _ in range(2)]
    check(along_rows, many, many, *longer)


@pytest.mark.parametrize("lead", [(2, 1, 3), (1, 2, 3), (2, 2, 3), (3,), ()])
def test_attention_in_any_number_of_dimensions(rng, lead):
    def joined(g: Tensor, *qkv: Tensor) -> Tensor:
        d = g.ndim
        mixed = F.scaled_dot_product_attention(*qkv, is_causal=True)
        _, parts = gradients(mixed, *qkv)
        front = tuple(range(1, d - 1)) if d > 2 else ()
        whole = tinytorch.stack(parts).permute(*front, d - 1, 0, d)
        turned = mixed.transpose(-2, -1 if d == 2 else -3).reshape(-1).exp()
        return turned.sum() + whole.reshape(-1).exp()

    check(joined, *(draw(rng, *lead, LENGTH, WIDTH) for _ in range(4)))


@pytest.mark.parametrize(
    "case", ["swapped", "twice", "read elsewhere", "flat read elsewhere", "flat returned", "one"]
)
def test_gradients_of_attention_that_are_no_parts_are_copied(rng, case):
    def joined(g: Tensor, *qkv: Tensor) -> tuple[Tensor, ...]:
        flat, (dq, dk, dv) = gradients(g, *qkv)
        if case == "swapped":
            dq, dk = dk, dq
        elif case == "twice":
            dk = dq
        elif case == "one":
            return (tinytorch.cat([dq, dq, dq]).transpose(1, 2).reshape(-1).exp(),)
        whole = tinytorch.stack([dq, dk, dv]).permute(1, 3, 0, 2, 4).reshape(-1).exp()
        if case == "read elsewhere":
            return whole, dq.reshape(-1) + 1.0
        if case == "flat read elsewhere":
            return whole, flat + 1.0
        return (whole, flat) if case == "flat returned" else (whole,)

    given = heads(rng, 4)
    assert "cat" in names(scheduled(joined, *given))
    with using_backend("optimized"):
        compiled = tinytorch.compile(joined, mode="native")
        for _ in range(2):
            for a, b in zip(compiled(*given), joined(*given), strict=True):
                np.testing.assert_allclose(a.numpy(), b.numpy(), rtol=1e-5, atol=1e-5)


# -- lifetimes -------------------------------------------------------------------------------------


def test_a_concatenation_is_in_memory_from_its_first_part_on(rng):
    """What is computed between the parts must not share their memory."""

    def apart(a: Tensor, b: Tensor) -> Tensor:
        first = a @ b
        between = ((a.exp() @ b).exp() @ b.transpose(-2, -1)).exp().sum(dim=-1, keepdim=True)
        second = (a * between) @ b
        return tinytorch.cat([first, second], dim=1).exp()

    a, b = draw(rng, 2, 16, 8), draw(rng, 2, 8, 16)
    schedule = scheduled(apart, a * 0.1, b * 0.1)
    assert "cat" not in names(schedule)
    (cat,) = [n for n in schedule.graph.find_nodes(op="call_function") if n.target.name == "cat"]
    inside = [
        step
        for step in schedule.steps[:-1]
        if not disjoint_extents(step.output, schedule.views[cat])
    ]
    assert [step.op.name for step in inside] == ["matmul", "matmul"]
    assert len(schedule.steps) > 6, "there are steps in between"
    check(apart, a * 0.1, b * 0.1)


@pytest.mark.parametrize(
    ("name", "activation"),
    [
        ("gelu", tinytorch.nn.functional.gelu),
        ("softmax", lambda x: x.softmax(dim=-1)),
    ],
)
def test_gelu_softmax_and_their_gradients_are_written_in_place(name, activation, rng):
    def layer(x: Tensor, w: Tensor, g: Tensor) -> Tensor:
        return (activation(x @ w) * g).sum(dim=0)

    def gradient(x: Tensor, w: Tensor, g: Tensor) -> Tensor:
        inside = (x @ w).requires_grad_()
        activation(inside).backward(g @ w)
        assert inside.grad is not None
        return inside.grad.sum(dim=0)

    x, w, g = draw(rng, 8, 8), draw(rng, 8, 8), draw(rng, 8, 8)
    for function, op in ((layer, name), (gradient, f"{name}_backward")):
        steps = {step.op.name: step for step in scheduled(function, x, w, g).steps}
        assert steps[op].overwrites == 0
        plain = scheduled(function, x, w, g, is_kept=native.is_kept).steps
        assert {s.op.name: s for s in plain}[op].overwrites is None
        for threads in (1, 2):
            check(function, x, w, g, threads=threads)


def softmax_down(x: Tensor, w: Tensor) -> Tensor:
    return (x @ w).softmax(dim=0) @ w


def softmax_of_what_is_read_later(x: Tensor, w: Tensor) -> Tensor:
    scores = x @ w
    return scores.softmax(dim=-1) @ scores


def softmax_of_a_transposed(x: Tensor, w: Tensor) -> Tensor:
    return (x @ w).t().softmax(dim=-1) @ w


def softmax_of_an_input(x: Tensor, w: Tensor) -> Tensor:
    return x.softmax(dim=-1) @ w + x


def gradient_at_its_own_result(x: Tensor, w: Tensor) -> Tensor:
    """The gradient of the result is the result: both operands are one."""
    inside = (x @ w).requires_grad_()
    y = inside.softmax(dim=-1)
    y.backward(y.detach())
    assert inside.grad is not None
    return inside.grad @ w


def gradient_whose_upper_is_read_later(x: Tensor, w: Tensor) -> Tensor:
    """Only the result of softmax is not needed any more."""
    inside, g = (x @ w).requires_grad_(), w @ x
    inside.softmax(dim=-1).backward(g)
    assert inside.grad is not None
    return inside.grad @ g


@pytest.mark.parametrize("function", [
    softmax_down, softmax_of_what_is_read_later, softmax_of_a_transposed, softmax_of_an_input,
    gradient_at_its_own_result, gradient_whose_upper_is_read_later,
])  # fmt: skip
def test_rows_are_not_overwritten_that_are_read_later_or_in_another_order(function, rng):
    x, w = draw(rng, 8, 8), draw(rng, 8, 8)
    before = x.numpy().copy(), w.numpy().copy()
    check(function, x, w)
    np.testing.assert_array_equal(before, (x.numpy(), w.numpy()))
