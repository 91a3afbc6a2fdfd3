from __future__ import annotations

import pytest
from hypothesis import given, strategies as st

import tinytorch
from tinytorch.backends.numpy import NumpyBackend
from tinytorch.bench import OpCounter, OpStats, counters
from tinytorch.bench.counters import IN_PLACE_WRITE, total

sizes = st.integers(1, 9)


@given(m=sizes, k=sizes, n=sizes)
def test_a_matrix_product_takes_two_flops_per_multiply_add(m: int, k: int, n: int) -> None:
    a, b = tinytorch.ones(m, k), tinytorch.ones(k, n)
    with tinytorch.using_backend("numpy"), OpCounter() as counter:
        a @ b
    assert counter.ops["matmul"].flops == 2 * m * k * n
    assert counter.ops["matmul"].bytes == 4 * (m * k + k * n + m * n)


def test_a_convolution_takes_two_flops_per_tap_and_output() -> None:
    x, w = tinytorch.ones(2, 3, 8, 8), tinytorch.ones(5, 3, 3, 3)
    params = {"stride": (1, 1), "padding": (1, 1), "dilation": (1, 1), "groups": 1}
    with OpCounter() as counter:
        tinytorch.apply(tinytorch.ops.conv2d, x, w, **params)
    assert counter.ops["conv2d"].flops == 2 * (2 * 5 * 8 * 8) * (3 * 3 * 3)


def test_views_move_no_bytes_and_scalars_count_as_nothing() -> None:
    x = tinytorch.ones(4, 6)
    with OpCounter() as counter:
        x.reshape(24)
        x * 2.0
    assert counter.ops["reshape"].bytes == 0
    assert (counter.ops["mul"].flops, counter.ops["mul"].bytes) == (24, 2 * 4 * 24)


def test_forward_backward_and_optimizer_are_told_apart() -> None:
    model = tinytorch.nn.Linear(3, 2)
    optimizer = tinytorch.optim.SGD(model.parameters(), lr=0.1)
    with OpCounter() as counter:
        model(tinytorch.ones(4, 3)).sum().backward()
        optimizer.step()
    assert list(counter.phases) == ["forward", "backward", "optimizer"]
    assert counter.stats["forward", "matmul"].calls == 1
    assert counter.stats["backward", "matmul"].calls == 1  # for the weight; the input needs none
    assert counter.stats["optimizer", IN_PLACE_WRITE].calls == 2


def test_sums_over_phases_and_ops_are_the_whole() -> None:
    x = tinytorch.ones(5, 5, requires_grad=True)
    with OpCounter() as counter:
        (x @ x).exp().sum().backward()
    assert total(counter.ops.values()) == total(counter.phases.values()) == counter.total
    assert counter.total.calls == sum(s.calls for s in counter.stats.values()) > 4


def test_in_place_writes_are_counted() -> None:
    x = tinytorch.zeros(10)
    with OpCounter() as counter:
        x.add_(tinytorch.ones(10))
    assert counter.ops[IN_PLACE_WRITE].bytes == 2 * 40
    assert x.tolist() == [1.0] * 10


def test_counters_nest_and_both_see_each_op() -> None:
    x = tinytorch.ones(3)
    with OpCounter() as outer:
        x + x
        with OpCounter() as inner:
            x * x
    assert {name: s.calls for name, s in outer.ops.items()} == {"add": 1, "mul": 1}
    assert {name: s.calls for name, s in inner.ops.items()} == {"mul": 1}


def test_nothing_is_counted_after_the_block() -> None:
    with OpCounter() as counter:
        pass
    tinytorch.ones(3).exp()
    assert counter.total == OpStats()


def test_counting_does_not_change_results() -> None:
    x = tinytorch.rand(6, 6)
    with OpCounter():
        counted = (x @ x).softmax(1)
    assert counted.tolist() == (x @ x).softmax(1).tolist()


def test_time_is_that_of_the_kernel(monkeypatch: pytest.MonkeyPatch) -> None:
    now = [0.0]

    class Slow(NumpyBackend):
        def matmul(self, a, b):  # type: ignore[no-untyped-def]
            now[0] += 0.25
            return super().matmul(a, b)

    monkeypatch.setattr(counters, "perf_counter", lambda: now[0])
    x = tinytorch.ones(2, 2)
    with tinytorch.using_backend(Slow()), OpCounter() as counter:
        x @ x
        now[0] += 4.0  # between the ops
        x + x
    assert counter.ops["matmul"].seconds == counter.total.seconds == 0.25
