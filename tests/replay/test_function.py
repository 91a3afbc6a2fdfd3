"""When a function is replayed, when it runs itself, and what a program must not keep."""

from __future__ import annotations

import pickle
from typing import Any

import numpy as np
import pytest

import tinytorch
import tinytorch.nn.functional as F
from tests.replay.common import programs, runs
from tinytorch import ops, tensor
from tinytorch.autograd import grad, gradcheck
from tinytorch.backends.numpy import NumpyBackend
from tinytorch.backends.optimized import OptimizedBackend
from tinytorch.dispatch import Mode, apply
from tinytorch.errors import AutogradError, ShapeError
from tinytorch.replay import NotReplayable, function as replaying, keep, make_program, replayed
from tinytorch.replay.gradients import Several, _Parts
from tinytorch.replay.trace import Trace
from tinytorch.state import STATE, current_backend
from tinytorch.tensor import Tensor


@pytest.fixture(autouse=True)
def _on_numpy() -> Any:
    with tinytorch.using_backend(NumpyBackend()):
        yield


@pytest.fixture
def hot(monkeypatch: pytest.MonkeyPatch) -> None:
    """The second call makes the program, which the third runs."""
    monkeypatch.setattr(replaying, "HOT", 1)


# -- when a program runs ---------------------------------------------------------------------------


def _lopsided(x: Tensor, y: Tensor) -> Tensor:
    """Its gradient reads y and, only where it is differentiated again, not x."""
    return x * 2.0 + y * y * y


lopsided = replayed(_lopsided)


class Count(Mode):
    ops = 0

    def run(self, op: Any, inputs: Any, params: Any, plan: Any) -> Any:
        self.ops += 1
        return self.below(op, inputs, params, plan)


def test_only_what_is_called_often_has_a_program() -> None:
    x = tinytorch.ones(3)
    for _ in range(replaying.HOT):
        lopsided(x, x)
    assert programs(lopsided) == [replaying.HOT]
    lopsided(x, x)
    assert runs(lopsided)
    lopsided(tinytorch.ones(4), x[:1])  # other shapes are other calls
    assert programs(lopsided)[1:] == [1]


@replayed
def sorted_twice(x: Tensor) -> Tensor:
    return x.argsort().argsort()


@replayed
def summed_sine(x: Tensor) -> Tensor:
    return x.cumsum(0).sin()


def test_large_tensors_have_programs_whose_gradients_run_little_twice(hot: None) -> None:
    x = tinytorch.ones(replaying.LARGEST // 4 + 1)
    y = tinytorch.ones(replaying.LARGEST // 4 + 1, requires_grad=True)
    for _ in range(3):
        sorted_twice(x)  # without a gradient
        summed_sine(y)  # whose gradient would sum once more
        x.sum()
        x.view(-1, 1).index_select(0, tensor([2, 1]))
        F.one_hot(tensor([2, 1]), 3)
        F.one_hot(tensor([2, 1]), replaying.LARGEST)  # whose zeros are written at once
    assert runs(sorted_twice)
    assert programs(F.one_hot)[-1] is False and len(programs(F.one_hot)) == 2
    assert programs(summed_sine) == [False]
    assert runs(tinytorch.sum)
    assert runs(tinytorch.index_select)  # it reads a few elements


@replayed
def faulty(x: Tensor) -> Tensor:
    if isinstance(STATE.get().mode, Trace):
        raise KeyError("a fault of ours")
    return x * 2.0


@replayed
def dependent(x: Tensor) -> Tensor:
    return x * x.max().item()


def test_an_error_while_a_program_is_made_is_told_and_a_reason_is_not(hot: None) -> None:
    x = tinytorch.ones(3)
    for _ in range(3):
        dependent(x)
    assert programs(dependent) == [False]
    faulty(x)
    with pytest.warns(RuntimeWarning, match="faulty runs op by op.*KeyError: 'a fault of ours'"):
        assert faulty(x).tolist() == [2.0, 2.0, 2.0]
    assert programs(faulty) == [False]
    assert faulty(x).tolist() == [2.0, 2.0, 2.0]  # without another word


def test_a_call_on_large_tensors_counts_as_many(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(replaying, "HOT", 3)
    x = tinytorch.ones(replaying.LARGEST)  # four times as many bytes
    for _ in range(2):
        x.sum()
    assert runs(tinytorch.sum)


def test_modes_see_every_op(hot: None) -> None:
    x, y = (tensor([1.0, 2.0], requires_grad=True) for _ in range(2))
    for _ in range(3):
        out = lopsided(x, y)
    with Count() as forward:
        lopsided(x, y)
    with Count() as backward:
        out.sum().backward()
    assert forward.ops == 4 and backward.ops > 4
    assert y.grad is not None and y.grad.tolist() == [3.0, 12.0]


def test_hooks_are_called(hot: None) -> None:
    x = tensor([1.0, 2.0], requires_grad=True)
    for _ in range(3):
        out = lopsided(x, x)
    assert runs(lopsided)
    seen = []
    out.register_hook(lambda g: seen.append(g.tolist()))
    x.register_hook(lambda g: g * 10.0)
    out.sum().backward()
    assert seen == [[1.0, 1.0]]
    assert x.grad is not None and x.grad.tolist() == [50.0, 140.0]


def test_gradients_are_recorded_only_where_they_are_wanted(hot: None) -> None:
    x, y = tensor([1.0]), tensor([2.0])
    for first in (False, True):
        for second in (False, True):
            x.requires_grad, y.requires_grad = first, second
            for _ in range(3):
                out = lopsided(x, y)
            assert runs(lopsided)
            assert out.requires_grad == (first or second)
            if first or second:
                out.backward()
            assert x.grad is None or (first and x.grad.item() == 2.0)
            assert y.grad is None or (second and y.grad.item() == 12.0)
            x.grad = y.grad = None
            with tinytorch.no_grad():
                for _ in range(3):
                    assert not lopsided(x, y).requires_grad


def test_gradients_of_gradients(hot: None) -> None:
    x, y = (
        tensor(np.random.default_rng(i).standard_normal(3) + 3, requires_grad=True)
        for i in range(2)
    )
    for _ in range(3):
        lopsided(x, y)
    assert runs(lopsided)
    assert gradcheck(lopsided, (x, y), order=2)
    assert gradcheck(tinytorch.dist, (x, y), order=2)
    assert runs(tinytorch.dist)


def test_an_input_that_comes_from_another_counts_once(hot: None) -> None:
    x = tensor([2.0], requires_grad=True)
    for graph in (False, True):
        for _ in range(3):
            y = x * 3.0
            (found,) = grad(lopsided(x, y), x, create_graph=graph)
        assert runs(lopsided)
        assert found is not None and found.tolist() == [2 + 9 * 36.0]


def test_numbers_that_are_equal_and_not_the_same(hot: None) -> None:
    copysign = replayed(lambda x, number: tinytorch.copysign(x, number))
    x = tensor([1.0])
    for number, sign in ((0.0, 1.0), (-0.0, -1.0), (0, 1.0), (-0.0, -1.0)):
        for _ in range(3):
            assert copysign(x, number).item() == sign
        assert runs(copysign)


def test_keys_of_few_arguments_differ(hot: None) -> None:
    """They are made in other places than keys of many."""

    @replayed
    def described(x: Tensor, *others: Any) -> Tensor:
        codes = [len(others), *(ord(type(o).__name__[0]) for o in others)]
        parts = [p for o in others for p in (o if isinstance(o, (tuple, list)) else (o,))]
        codes += [ord(type(p).__name__[1]) * (i + 1) for i, p in enumerate(parts)]
        codes += [int(p) * (i + 3) for i, p in enumerate(parts) if not isinstance(p, Tensor)]
        return x * 0.0 + float(sum(codes))

    x, y = tinytorch.ones(2), tinytorch.ones(2)
    calls = [(x,), (x, 1), (x, True), (x, 1.0), (x, 2), (x, y), (x, 1, 1)]
    calls += [(x, (1, 0)), (x, (0, 1)), (x, (True, False)), (x, [1, 0]), (x, (1, 0, 2)), (x, (1,))]
    calls += [(x, (True,)), (x, (1.0,)), (x, ()), (x, (1, 0, True)), (x, (1, 0.0, 2))]
    calls += [(x, 1, y), (x, 2, y), (x, 1, True), (x, True, 1), (x, 1, (1, 0)), (x, 1, (True, 0))]
    for args in [*calls * 4, *calls[::-1]]:
        assert described(*args).tolist() == described.replayed(*args).tolist()  # type: ignore[attr-defined]

    @replayed
    def named(x: Tensor, n: Any = 0, m: Any = 0) -> Tensor:
        return x * 0.0 + (ord(type(n).__name__[0]) + n * 2.0 + m * 3.0 + ord(type(m).__name__[0]))

    options: list[dict[str, Any]] = [{}, {"n": 1}, {"m": 1}, {"n": True}, {"n": 1.0}, {"n": 2}]
    options += [{"n": 1, "m": 2}, {"m": 1, "n": 2}, {"m": True}]
    for given in [*options * 4, *options[::-1]]:
        assert named(x, **given).tolist() == named.replayed(x, **given).tolist()  # type: ignore[attr-defined]
        assert named(x=x, **given).tolist() == named.replayed(x, **given).tolist()  # type: ignore[attr-defined]


def test_keys_of_sequences_differ_by_what_is_in_them(hot: None) -> None:
    @replayed
    def counted(given: Any) -> Tensor:
        return given[0] * 0.0 + float(sum(t.requires_grad for t in given) + 10 * len(given))

    x, y = tinytorch.ones(2), tinytorch.ones(2, requires_grad=True)
    for given in [[x, x], [x, y], (y, y), (x,), [y, x], [x, x, x]] * 5:
        assert counted(given).tolist() == counted.replayed(given).tolist()  # type: ignore[attr-defined]
    with pytest.raises((TypeError, AttributeError)):
        counted([1.5, x])

    @replayed
    def joined(given: Any, other: Any = 0, *, dim: Any = 0) -> Tensor:
        is_list, tensors = isinstance(given, list), given if isinstance(given, (tuple, list)) else 0
        code = 1.0 + 2 * is_list if tensors else 5.0
        return (tensors or (given,))[0] * 0.0 + (code + 10 * isinstance(other, Tensor) + 100 * dim)

    calls: list[tuple[tuple[Any, ...], dict[str, Any]]] = [(([x, x],), {}), (((x, x),), {})]
    calls += [((x, x), {}), (([x, x], 1), {}), (([x, x],), {"dim": 1}), (((x, x),), {"dim": True})]
    calls += [(([x, x],), {"dim": 2}), (([x, x],), {"other": 2}), ((x,), {"dim": 1})]
    for args, options in calls * 5:
        assert joined(*args, **options).tolist() == joined.replayed(*args, **options).tolist()  # type: ignore[attr-defined]


def test_shapes_of_two_numbers_have_programs(hot: None) -> None:
    @replayed
    def filled(*shape: Any, value: float = 0.5, dtype: Any = tinytorch.float32) -> Tensor:
        of_one = not isinstance(shape[0], int)
        sizes = shape[0] if of_one else shape
        code = 10.0 * isinstance(sizes, list) + 20.0 * of_one + isinstance(sizes[0], bool) + value
        return apply(ops.full, shape=tuple(map(int, sizes)), value=code, dtype=dtype)

    double = {"dtype": tinytorch.float64}
    calls: list[tuple[tuple[Any, ...], dict[str, Any]]] = [(((2, 3),), {}), (((3, 2),), {})]
    calls += [(([2, 3],), {}), (((2, 3),), {"value": 1.5}), (((2, 3),), double), ((2, 3), {})]
    calls += [((2, 3), double), ((2, 3), {"value": 1.5}), ((2, 3, 1), {}), ((2, 4), {})]
    calls += [(((True, 3),), {}), ((True, 3), {}), ((True, 3), double)]
    for args, options in calls * 5:
        given, meant = filled(*args, **options), filled.replayed(*args, **options)  # type: ignore[attr-defined]
        assert (given.tolist(), given.meta) == (meant.tolist(), meant.meta)
    assert len(programs(filled)) >= 10  # those without a bool
    assert all(type(p) is replaying._Program for p in programs(filled)[:10])
    filled((2, 3)).add_(1.0)
    assert filled((2, 3)).tolist() == [[20.5] * 3] * 2


def test_a_backend_of_a_user_has_no_programs(hot: None) -> None:
    class Mine(NumpyBackend):
        """Its kernels may print, or be stepped through."""

    with tinytorch.using_backend(Mine()):
        for _ in range(3):
            assert lopsided(tinytorch.ones(1), tinytorch.ones(1)).item() == 3
        assert current_backend().programs is None


@pytest.mark.parametrize("function", [F.mse_loss, tinytorch.dist, tinytorch.sum, tinytorch.zeros])
def test_functions_can_be_pickled(function: Any) -> None:
    assert pickle.loads(pickle.dumps(function)) is function


# -- values that a program reads -------------------------------------------------------------------


def test_a_guard_that_does_not_hold_runs_the_function(hot: None) -> None:
    x, index = tensor([[1.0, 2.0], [3.0, 4.0]]), tensor([[0], [1]])
    for _ in range(3):
        assert tinytorch.gather(x, 1, index).tolist() == [[1.0], [4.0]]
    assert runs(tinytorch.gather)
    with pytest.raises(IndexError, match="index 2 is out of range: there are 2"):
        tinytorch.gather(x, 1, tensor([[0], [2]]))
    with pytest.raises(IndexError, match="index -1 is out of range"):
        tinytorch.gather(x, 1, tensor([[0], [-1]]))
    for _ in range(3):
        assert tinytorch.take(x, tensor([1, 2])).tolist() == [2.0, 3.0]
    assert runs(tinytorch.take)
    assert tinytorch.take(x, tensor([1, -1])).tolist() == [2.0, 4.0]


def test_what_is_put_at_other_places_than_before(hot: None) -> None:
    x, values = tinytorch.arange(4.0), tensor([10.0, 20.0]).requires_grad_()
    for places, wanted in (([0, 1], [10, 20, 2, 3]), ([-1, -2], [0, 1, 20, 10])) * 3:
        assert x.index_put((tensor(places),), values).tolist() == wanted
    for places, gradient in (([0, 1], [1, 1]), ([2, 2], [0, 1]), ([3, 0], [1, 1])) * 3:
        out = x.index_put((tensor(places),), values)
        assert grad(out.sum(), values)[0].tolist() == gradient
    with pytest.raises(IndexError, match="index 4"):
        x.index_put((tensor([4, 0]),), values)
    for mask, count in (([True, False, True, False], 2), ([True] * 4, 4)) * 3:  # read each time
        assert x.index_put((tensor(mask),), tensor(7.0)).tolist().count(7.0) == count


def test_labels_that_are_ignored_after_those_that_count(hot: None) -> None:
    x = tensor([[0.0, -1.0], [-2.0, -3.0]], requires_grad=True)
    for _ in range(3):
        assert F.nll_loss(x, tensor([0, 1])).item() == 1.5
    assert runs(F.nll_loss)
    assert F.nll_loss(x, tensor([-100, 1])).item() == 3.0
    with pytest.raises(IndexError, match="class 2 is out of range"):
        F.nll_loss(x, tensor([0, 2]))


def test_a_warning_is_given_at_each_call(hot: None) -> None:
    x = tinytorch.zeros(2, 3)
    for _ in range(4):
        with pytest.warns(UserWarning, match="Implicit dimension choice for softmax"):
            F.softmax(x)


def test_what_a_function_makes_is_made_for_each_call(hot: None) -> None:
    @replayed
    def zeros_like(x: Tensor) -> Tensor:
        return apply(ops.full, shape=x.shape, value=0.0, dtype=x.dtype)

    x = tinytorch.ones(2)
    first, *others = (zeros_like(x) for _ in range(4))
    first.add_(1.0)
    for other in others:
        other.add_(1.0)
        assert other.tolist() == [1.0, 1.0]


@pytest.mark.parametrize(
    ("function", "reason"),
    [
        (lambda x: x, "an argument"),
        (lambda x: x * tinytorch.rand(2), "does more"),
        (lambda x: x if x.sum() > 0 else -x, "bool needs values"),
        (lambda x: x * float(x.max()), "needs values"),
        (lambda x: (x * 2.0).add_(1.0), "in place|does more"),
        (lambda x: (x, x), "an argument"),
        (lambda x: x.shape, "no tensor"),
        (lambda x: apply(ops.full, shape=(2,), value=1.0, dtype=x.dtype).requires_grad_(), "leaf"),
    ],
)  # fmt: skip
def test_what_no_program_is_made_of(function: Any, reason: str, hot: None) -> None:
    function.__name__ = "f"
    x = tensor([1.0, 2.0])
    with pytest.raises(NotReplayable, match=reason):
        make_program(function, current_backend(), (x,), {})
    call = replayed(function)
    for _ in range(4):
        call(x)
    assert programs(call) == [False]


# -- memory ----------------------------------------------------------------------------------------


def test_views_are_views(hot: None) -> None:
    x = tinytorch.zeros(2, 3)
    y = tinytorch.zeros(2, 3, requires_grad=True)
    for _ in range(3):
        view, recorded = x.squeeze(0).transpose(0, 1), y.transpose(0, 1)
    assert runs(tinytorch.transpose)
    view.add_(1.0)
    assert x.tolist() == [[1.0] * 3] * 2
    assert recorded.history.op.view
    computed = y * 1.0
    with pytest.raises(AutogradError, match="shares memory"):
        computed.transpose(0, 1).add_(1.0)


def test_a_view_is_never_a_copy(hot: None) -> None:
    for backend in (NumpyBackend(), OptimizedBackend()):
        with tinytorch.using_backend(backend):
            x, like = tinytorch.zeros(2, 3), tinytorch.zeros(3, 2)
            for _ in range(4):
                x.view(-1).add_(1.0)
                x.view(3, 2).add_(1.0)
                x.view_as(like).add_(1.0)
            assert x.tolist() == [[12.0] * 3] * 2
            turned = tinytorch.zeros(3, 2).T
            for asked in ((-1,), (6, 1)):
                with pytest.raises(ShapeError, match="without copying"):
                    turned.view(*asked)
            with pytest.raises(ShapeError, match="without copying"):
                turned.view_as(like)
            row = tinytorch.zeros(3, 4)[:, :1]  # not in order, and yet a view
            row.view(3).add_(1.0)
            assert row.tolist() == [[1.0]] * 3


def test_a_value_that_the_gradient_reads_is_missed_when_it_was_overwritten(hot: None) -> None:
    x, y = (tensor([1.0], requires_grad=True) for _ in range(2))
    for _ in range(3):
        z, w = x * 1.0, y * 1.0
        out = lopsided(z, w)
    assert runs(lopsided)
    with tinytorch.no_grad():
        z.mul_(2.0)  # which it does not read
    out.backward(retain_graph=True)
    with tinytorch.no_grad():
        w.mul_(2.0)
    with pytest.raises(AutogradError, match="overwritten in place"):
        out.backward()


@replayed
def bent(x: Tensor, w: Tensor) -> Tensor:
    return F.linear(x, w).sin() * 2.0


@replayed
def bent_once(x: Tensor, w: Tensor) -> Tensor:
    return keep(F.linear(x, w)).sin() * 2.0


@replayed
def bent_and_straight(x: Tensor, w: Tensor) -> tuple[Tensor, Tensor]:
    product = keep(F.linear(x, w))
    return product.sin() * 2.0, product


def test_what_is_kept_is_not_computed_again(hot: None) -> None:
    x = tinytorch.ones(2, 4)
    w = tinytorch.linspace(0, 1, 4 * replaying.LARGEST).view(-1, 4).requires_grad_()
    results = [grad(f(x, w).sum(), [w])[0] for _ in range(4) for f in (bent, bent_once)]
    assert programs(bent) == [False]  # its gradient would make the product once more
    assert type(programs(bent_once)[-1]) is Several
    assert all(bool((g == results[0]).all()) for g in results)


def test_what_is_kept_is_computed_again_for_a_gradient_of_the_gradient(hot: None) -> None:
    @replayed
    def doubled_sine(x: Tensor) -> Tensor:
        return keep(x * 2.0).sin()

    x = tensor([0.3, 0.7], requires_grad=True)
    for _ in range(4):
        (g,) = grad(doubled_sine(x).sum(), [x], create_graph=True)
        assert np.allclose(g.tolist(), 2 * np.cos([0.6, 1.4]))
        (second,) = grad(g.sum(), [x])
        assert np.allclose(second.tolist(), -4 * np.sin([0.6, 1.4]))
    assert type(programs(doubled_sine)[-1]) is Several


def test_a_result_that_may_be_written_is_computed_again(hot: None) -> None:
    x, w = tinytorch.ones(2, 3), tinytorch.ones(4, 3, requires_grad=True)
    expected = grad(bent(x, w).sum(), [w])[0].tolist()
    for _ in range(3):
        out, product = bent_and_straight(x, w)
    product.detach().zero_()
    assert grad(out.sum(), [w])[0].tolist() == expected


def test_errors_are_those_of_the_function(hot: None) -> None:
    x = tinytorch.ones(2)
    for _ in range(3):
        lopsided(x, x)
    with pytest.raises(ShapeError, match="broadcast"):
        lopsided(x, tinytorch.ones(3))
    with pytest.raises(TypeError):
        lopsided(x)
    with pytest.raises((TypeError, AttributeError)):
        lopsided([1.0], "x")


def test_gradients_of_many_results_are_gathered_without_a_copy_for_each() -> None:
    first, second = _Parts({0: "g"}), _Parts({1: "h"})
    both = first + second
    assert both is first and both == {0: "g", 1: "h"}
