"""In-place writes in a traced function."""

from __future__ import annotations

import numpy as np
import pytest

import tinytorch
from tests.graph.tensors import floats, same
from tinytorch.graph import TraceError, trace
from tinytorch.tensor import Tensor

pytestmark = pytest.mark.usefixtures("numpy_backend")


def test_writes_are_put_back(rng):
    total = tinytorch.zeros(3)

    def accumulate(x):
        total.add_(x)
        return total * 2.0

    x = floats(rng, 3)
    traced = trace(accumulate, x)
    assert total.tolist() == [0.0, 0.0, 0.0]
    for i in range(1, 4):
        assert np.allclose(traced(x).numpy(), 2 * i * x.numpy())
    assert np.allclose(total.numpy(), 3 * x.numpy())


def test_written_arguments_are_put_back(rng):
    def f(x):
        x.mul_(2.0)
        return x + 1.0

    x = floats(rng, 3)
    twice = x * 2.0
    assert same(trace(f, x)(x), twice + 1.0) and same(x, twice)


def test_swap():
    a, b = tinytorch.tensor([1.0, 2.0]), tinytorch.tensor([3.0, 4.0])

    def swap():
        old = a.clone()
        a.copy_(b)
        b.copy_(old)

    def rotate():
        first, second = a.detach(), b.detach()
        old = first + 0.0
        first.copy_(second)
        second.copy_(old)

    trace(swap)()
    assert (a.tolist(), b.tolist()) == ([3.0, 4.0], [1.0, 2.0])
    trace(rotate)()
    assert (a.tolist(), b.tolist()) == ([1.0, 2.0], [3.0, 4.0])


def test_results_that_view_written_memory_keep_their_values():
    state = tinytorch.tensor([1.0, 2.0])

    def f():
        transposed = state.clone().reshape(2, 1)
        state.zero_()
        return transposed, state.T

    before, after = trace(f)()
    assert before.tolist() == [[1.0], [2.0]] and after.tolist() == [0.0, 0.0]


def test_views_see_writes_and_writes_into_views_reach_the_base():
    def f(x):
        y = x * 1.0
        row, turned = y[0], y.T
        row.add_(10.0)
        turned.mul_(2.0)
        return y, row, turned

    x = tinytorch.tensor([[1.0, 2.0], [3.0, 4.0]])
    for result, expected in zip(trace(f, x)(x), f(x), strict=True):
        assert same(result, expected)


def test_ambiguous_views_are_refused():
    def f(x):
        y = x * 1.0
        flat = y.reshape(-1)
        y.add_(1.0)
        return flat

    with pytest.raises(TraceError, match=r"a reshape from \(2, 2\) to \(4,\) may share memory"):
        trace(f, tinytorch.ones(2, 2))


def test_shared_memory_is_noticed():
    base = tinytorch.zeros(4)
    part = base[:2]

    def f():
        part.add_(1.0)
        return base * 1.0

    with pytest.raises(TraceError, match="part is written in place and shares memory with base"):
        trace(f)


def test_overwriting_what_backward_needs_is_an_error_as_in_eager(rng):
    def f(x):
        y = x * x
        with tinytorch.no_grad():
            x.add_(1.0)
        y.sum().backward()

    x = floats(rng, 3).requires_grad_()
    with pytest.raises(tinytorch.AutogradError, match="overwritten in place"):
        trace(f, x)


def test_a_gradient_that_an_argument_brings_can_be_written(rng):
    def halve(x):
        with tinytorch.no_grad():
            x.grad.mul_(0.5)

    x, g = floats(rng, 3).requires_grad_(), floats(rng, 3)
    x.grad = g.clone()
    trace(halve, x)(x)
    assert same(x.grad, g * 0.5)


def test_contiguous_is_the_tensor_itself_where_it_is_in_eager():
    def write(x: Tensor, transposed: bool) -> Tensor:
        v = (x.T if transposed else x).contiguous()
        v.mul_(3.0)
        return v

    for transposed in (False, True):
        x, y = tinytorch.ones(2, 3), tinytorch.ones(2, 3)
        eager, traced = write(x, transposed), trace(write, y, transposed)(y, transposed)
        assert traced.tolist() == eager.tolist() and y.tolist() == x.tolist()
        assert (traced is y) is (eager is x) is (not transposed)


def test_a_write_to_what_contiguous_may_have_copied_is_refused():
    with pytest.raises(TraceError, match=r"whether contiguous\(\) copied it depends"):
        trace(lambda x: (x.T + 1.0).contiguous().mul_(2.0), tinytorch.ones(2, 3))


def test_a_write_with_a_history_to_what_contiguous_may_have_copied_is_refused():
    def step(x: Tensor) -> Tensor:
        e = x.T * w
        y = e.contiguous()
        y += 1.0
        return y + e

    w = tinytorch.ones(3, 2, requires_grad=True)
    with pytest.raises(TraceError, match=r"whether contiguous\(\) copied it depends"):
        trace(step, tinytorch.ones(2, 3))


def test_a_history_is_not_left_in_an_argument():
    def step(x: Tensor) -> Tensor:
        x += w
        return x * 2.0

    w = tinytorch.ones(3, requires_grad=True)
    with pytest.raises(TraceError, match="from outside of the trace is written in place, at"):
        trace(step, tinytorch.ones(3))


def test_a_history_is_not_left_in_a_global_that_an_earlier_trace_holds():
    """Counting who holds its memory would find that trace, and blame a view of the user's."""
    s, w = tinytorch.zeros(3), tinytorch.ones(3)
    step = tinytorch.compile(lambda: s.copy_(w), mode="python")
    step()
    w.requires_grad_()
    with pytest.raises(TraceError, match="from outside of the trace is written in place, at"):
        step()


def test_a_write_with_a_history_into_a_reshaped_tensor_is_refused():
    def step(x: Tensor) -> Tensor:
        e = w * x
        y = e.reshape(-1)
        y += 1.0
        return y.sum() + e

    w = tinytorch.ones(2, 3, requires_grad=True)
    with pytest.raises(TraceError, match="may share memory or not"):
        trace(step, tinytorch.ones(2, 3))


def test_a_write_with_a_history_beside_a_reshape_of_unknown_order_is_refused():
    def step() -> Tensor:
        e = w.T * 2.0
        flat = e.reshape(-1)  # eager mode copies, as e has the order of w.T
        e.zero_()
        return flat

    w = tinytorch.ones(2, 3, requires_grad=True)
    assert step().tolist() == [2.0] * 6
    with pytest.raises(TraceError, match=r"a reshape from \(3, 2\) to \(6,\) may share memory"):
        trace(step)


def test_a_write_to_a_value_with_a_history_is_refused():
    w = tinytorch.ones(3, requires_grad=True)

    def scaled() -> Tensor:
        y = w * 2.0
        y.detach().mul_(3.0)
        return y

    with pytest.raises(TraceError, match="a value with a history is written in place, at"):
        trace(scaled)
