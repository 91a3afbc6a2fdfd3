"""Backwards that are walks give what the engine gives step by step, bit for bit, and do no more."""

from __future__ import annotations

import itertools
import weakref
from collections.abc import Callable, Iterator
from random import Random
from typing import Any

import numpy as np
import pytest

import tinytorch
from tests.replay.test_steps import NEVER, bits, random_function
from tinytorch import nn, ops, tensor
from tinytorch.autograd import Function, engine
from tinytorch.backends.numpy import NumpyBackend
from tinytorch.backends.optimized import OptimizedBackend
from tinytorch.errors import AutogradError
from tinytorch.nn import functional as F
from tinytorch.replay import function as replaying, walks
from tinytorch.replay.walks import Walks
from tinytorch.state import no_mode_active
from tinytorch.tensor import Tensor

TURNS = 9  # backwards: the first ones make programs and the walk, the others take it


class Steps:
    """How many backwards went step by step."""

    taken = 0


@pytest.fixture
def steps(monkeypatch: pytest.MonkeyPatch) -> Steps:
    counted, through = Steps(), engine._through

    def counting(*args: Any) -> Any:
        counted.taken += no_mode_active()  # a program in the making walks, too
        return through(*args)

    monkeypatch.setattr(engine, "_through", counting)
    return counted


@pytest.fixture
def hot(monkeypatch: pytest.MonkeyPatch) -> Iterator[NumpyBackend]:
    """A backend on which the first call of a kind makes its program."""
    monkeypatch.setattr(replaying, "HOT", 0)
    backend = NumpyBackend()
    with tinytorch.using_backend(backend):
        yield backend


def backward_until_a_walk(loss: Callable[[], Tensor], steps: Steps) -> None:
    for _ in range(2 * TURNS):
        steps.taken = 0
        loss().backward()
    assert not steps.taken


def all_walks(backend: NumpyBackend) -> list[Walks]:
    assert backend.programs is not None
    return [found for found in backend.programs.values() if type(found) is Walks]


def leaf(*shape: int) -> Tensor:
    return tinytorch.randn(*shape).requires_grad_()


# -- the same gradients ----------------------------------------------------------------------------


@pytest.mark.parametrize("seed", range(16))
def test_random_functions(
    seed: int, monkeypatch: pytest.MonkeyPatch, rng: Any, steps: Steps
) -> None:
    function, backend = random_function(Random(seed)), NumpyBackend()

    def found(arrays: Any, on: Any) -> Any:
        leaves = [tinytorch.from_numpy(a.copy()).requires_grad_() for a in arrays]
        with tinytorch.using_backend(on):
            function(leaves).backward()
        kept = [x.grad._data for x in leaves if x.grad is not None]
        assert not any(np.shares_memory(a, b) for a, b in itertools.combinations(kept, 2))
        return [bits(x.grad) for x in leaves]

    for _ in range(TURNS):
        arrays = [rng.standard_normal((3, 4)).astype(np.float32) for _ in range(3)]
        monkeypatch.setattr(replaying, "HOT", NEVER)
        wanted = found(arrays, NumpyBackend())
        monkeypatch.setattr(replaying, "HOT", 0)
        steps.taken = 0
        assert found(arrays, backend) == wanted
    assert not steps.taken


class Attention(nn.Module):
    """Several results of one function, slices, and parameters that are read twice."""

    def __init__(self) -> None:
        super().__init__()
        self.qkv, self.out = nn.Linear(8, 24), nn.Linear(8, 8)

    def forward(self, x: Tensor) -> Tensor:
        q, k, v = self.qkv(x).chunk(3, -1)
        first = F.scaled_dot_product_attention(q, k, v)
        return self.out(self.out(first[:, 1:] + first[:, :-1])).mean(1)


def convolution() -> nn.Module:
    return nn.Sequential(
        nn.Conv2d(1, 4, 3, padding=1), nn.BatchNorm2d(4), nn.ReLU(), nn.MaxPool2d(2), nn.Flatten(),
        nn.Linear(16, 3),
    )  # fmt: skip


def multilayer() -> nn.Module:
    return nn.Sequential(nn.Linear(5, 7), nn.Tanh(), nn.Dropout(0.3), nn.Linear(7, 3))


class Recurrent(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.cells, self.out = nn.LSTM(5, 6, batch_first=True), nn.Linear(6, 3)

    def forward(self, x: Tensor) -> Tensor:
        return self.out(self.cells(x)[0][:, -1])


MODELS: dict[str, tuple[Callable[[], nn.Module], tuple[int, ...]]] = {
    "attention": (Attention, (4, 3, 8)),
    "convolution": (convolution, (4, 1, 4, 4)),
    "multilayer": (multilayer, (4, 5)),
    "recurrent": (Recurrent, (4, 3, 5)),
}


@pytest.mark.slow_beyond(3)
@pytest.mark.parametrize("backend", [NumpyBackend, OptimizedBackend])
@pytest.mark.parametrize("name", MODELS)
def test_training(name: str, backend: Any, monkeypatch: pytest.MonkeyPatch, steps: Steps) -> None:
    build, shape = MODELS[name]
    # that the sum of a weight's gradients is one product is of a program, and rounds otherwise
    monkeypatch.setattr("tinytorch.replay.program.join_products", lambda _, steps, kept: [*steps])

    def trained(how_hot: int) -> Any:
        monkeypatch.setattr(replaying, "HOT", how_hot)
        with tinytorch.using_backend(backend()):
            tinytorch.manual_seed(0)
            model = build()
            optimizer = tinytorch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
            for _ in range(2 * TURNS):
                x, y = tinytorch.randn(*shape), tinytorch.randint(0, 3, (4,))
                steps.taken = 0
                optimizer.zero_grad()
                F.cross_entropy(model(x), y).backward()
                optimizer.step()
        return [bits(t) for t in model.state_dict().values()]

    wanted = trained(NEVER)
    assert steps.taken and trained(0) == wanted
    assert not steps.taken


def test_gradients_are_added_to_those_there_are(hot: Any, steps: Steps) -> None:
    x, w = tensor([[1.0, 2.0]]), leaf(2, 2)
    for turn in range(1, 2 * TURNS):
        steps.taken = 0
        (x @ w).sum().backward()
        assert w.grad is not None and w.grad.tolist() == [[1.0 * turn] * 2, [2.0 * turn] * 2]
    assert not steps.taken


# -- when it is not the same history ---------------------------------------------------------------


def test_what_is_computed_once_and_what_is_computed_twice(hot: Any, steps: Steps) -> None:
    """Both have the same ops on the same shapes; only which result is which differs."""
    x, y = leaf(3), leaf(3)

    def once() -> Tensor:
        a = x.exp()
        return (a * a).sum()

    def twice() -> Tensor:
        return (x.exp() * x.exp()).sum()

    def other() -> Tensor:
        return (x.exp() * y.exp()).sum()

    wanted = [2 * np.exp(2 * x._data), np.exp(x._data + y._data)]
    for turn in range(40 * TURNS):
        x.grad = y.grad = None
        steps.taken = 0
        (once, twice, other)[turn % 3]().backward()
        assert x.grad is not None
        assert np.allclose(x.grad.numpy(), wanted[turn % 3 == 2])
        assert (y.grad is None) == (turn % 3 != 2)
    assert not steps.taken  # there is a walk for each


def test_numbers_and_parameters_are_looked_at(hot: Any, steps: Steps) -> None:
    x = leaf(2, 2)
    backward_until_a_walk(lambda: ((x * 2.0).cumsum(0)).sum(), steps)
    for number, dim, wanted in (
        (3.0, 0, [[6.0, 6.0], [3.0, 3.0]]),
        (2.0, 1, [[4.0, 2.0], [4.0, 2.0]]),
        (-0.0, 1, [[-0.0, -0.0], [-0.0, -0.0]]),
        (0.0, 1, [[0.0, 0.0], [0.0, 0.0]]),
    ):
        for _ in range(TURNS):
            x.grad = None
            ((x * number).cumsum(dim)).sum().backward()
            assert x.grad is not None and x.grad.tolist() == wanted
            assert np.signbit(x.grad.numpy()).tolist() == np.signbit(wanted).tolist()


def test_a_leaf_in_place_of_a_result_and_the_other_way_round(hot: Any, steps: Steps) -> None:
    x, frozen = leaf(3), tinytorch.randn(3)
    for made in (lambda: x.exp(), lambda: x, lambda: x.exp().exp(), lambda: x * frozen):
        for _ in range(TURNS):
            (made() * frozen).sum().backward()
            (found,) = tinytorch.autograd.grad((made() * frozen).sum(), x)
            assert x.grad is not None and bits(x.grad) == bits(found)
            x.grad = None


def test_a_hook_is_called(hot: Any, steps: Steps) -> None:
    x, seen = leaf(3), []

    def loss(hooked: bool = False) -> Tensor:
        a = x.exp()
        if hooked:
            a.register_hook(lambda g: seen.append(g) or g * 2.0)
        return (a * 3.0).sum()

    backward_until_a_walk(loss, steps)
    x.grad = None
    loss(True).backward()
    assert x.grad is not None and len(seen) == 1
    assert np.array_equal(x.grad.numpy(), np.exp(x._data) * 6.0)
    handle = x.register_hook(seen.append)
    loss().backward()
    assert len(seen) == 2
    handle.remove()
    loss().retain_grad()
    steps.taken = 0
    loss().backward()
    assert len(seen) == 2 and not steps.taken


def test_a_listener_is_told(hot: Any, steps: Steps, monkeypatch: pytest.MonkeyPatch) -> None:
    class Listener:
        def __init__(self) -> None:
            self.told: list[Any] = []

        def ready(self, leaf: Tensor, gradient: Tensor) -> None:
            self.told.append(leaf)

        def end(self, gradients: Any) -> None:
            self.told.append(len(gradients))

        def abandon(self) -> None:
            raise AssertionError

    x, listener = leaf(3), Listener()
    backward_until_a_walk(lambda: x.exp().sum(), steps)
    monkeypatch.setattr(engine, "listeners", [listener])
    x.exp().sum().backward()
    assert len(listener.told) == 2 and listener.told[0] is x and listener.told[1] == 1


def test_only_the_inputs_that_are_asked_for(hot: Any, steps: Steps) -> None:
    x, y = leaf(3), leaf(3)
    backward_until_a_walk(lambda: (x * y).sum(), steps)
    x.grad = y.grad = None
    (x * y).sum().backward(inputs=[x])
    assert x.grad is not None and y.grad is None
    (g,) = tinytorch.autograd.grad((x * y).sum(), y)
    assert g is not None and bits(g) == bits(x.detach()) and y.grad is None


def test_histories_that_are_never_the_same_cost_nothing_in_the_end(hot: Any) -> None:
    waits = []

    def length(x: Tensor, n: int) -> Tensor:
        for _ in range(n):
            x = x.tanh()
        return x.sum()

    x = leaf(3)
    for n in Random(0).choices(range(2, 40), k=400):
        length(x, n).backward()
        most = max(all_walks(hot), key=lambda known: known.wait)
        waits.append(most.wait)
    assert waits[-1] >= 32 and len(set(waits)) <= 4
    assert 2 <= len(most.walks) <= walks.MOST_WALKS


def test_a_history_of_too_many_steps_has_none(
    hot: Any, steps: Steps, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(walks, "MOST_SOURCES", 4)
    x = leaf(3)
    backward_until_a_walk(lambda: x.exp().sum(), steps)
    for _ in range(2 * TURNS):
        steps.taken = 0
        x.exp().exp().exp().sum().backward()
        assert steps.taken == 1


# -- errors, and memory ----------------------------------------------------------------------------


def test_overwritten_and_freed_values_are_noticed(hot: Any, steps: Steps) -> None:
    x, scale = leaf(3), tensor([1.0, 2.0, 3.0])
    backward_until_a_walk(lambda: (x.exp() * scale).sum(), steps)
    loss = (x.exp() * scale).sum()
    scale.mul_(2.0)
    with pytest.raises(AutogradError, match=r"shape \(3,\).*mul needs was overwritten in place"):
        loss.backward()
    loss = (x.exp() * scale).sum()
    loss.backward()
    with pytest.raises(AutogradError, match="freed by an earlier backward"):
        loss.backward()
    loss = (x.exp() * scale).sum()
    x.grad = None
    loss.backward(retain_graph=True)
    loss.backward()
    assert x.grad is not None and np.allclose(x.grad.numpy(), 2 * (x.exp() * scale)._data)


def test_a_walk_is_not_made_of_what_was_freed(hot: Any, steps: Steps) -> None:
    """The backward at which it was time for a walk raised an AssertionError."""
    x = leaf(3)
    for _ in range(2 * TURNS):
        loss = F.mse_loss(x.exp(), x)
        loss.backward()
        with pytest.raises(AutogradError, match="freed by an earlier backward"):
            loss.backward()


def test_a_write_to_something_else_does_not_matter(hot: Any, steps: Steps) -> None:
    x, other = leaf(3), tensor([1.0])
    backward_until_a_walk(lambda: x.exp().sum(), steps)
    loss = x.exp().sum()
    other.mul_(2.0)
    steps.taken = 0
    loss.backward()
    assert not steps.taken


def test_what_was_saved_is_let_go_of(hot: Any, steps: Steps) -> None:
    x = leaf(3)
    backward_until_a_walk(lambda: (x.exp() * x).sum(), steps)
    a = x.exp()
    b = a * x
    kept = weakref.ref(a._data)
    loss = b.sum()
    del a
    loss.backward()
    assert kept() is None and b.history is not None and b.history.inputs is None


def test_gradients_that_are_recorded_are_taken_step_by_step(hot: Any, steps: Steps) -> None:
    x = leaf(3)
    backward_until_a_walk(lambda: (x * x * x).sum(), steps)
    x.grad = None
    (x * x * x).sum().backward(create_graph=True)
    assert steps.taken and x.grad is not None
    (second,) = tinytorch.autograd.grad(x.grad.sum(), x)
    assert second is not None and np.allclose(second.numpy(), 6 * x._data)


def test_what_a_user_wrote_runs_each_time(hot: Any, steps: Steps) -> None:
    calls = []

    class Twice(Function):
        @staticmethod
        def forward(ctx: Any, x: Tensor) -> Tensor:
            return x * 2.0

        @staticmethod
        def backward(ctx: Any, g: Tensor) -> Tensor:
            calls.append(g)
            return g * 2.0

    x = leaf(3)
    for turn in range(2 * TURNS):
        Twice.apply(x.exp()).sum().backward()
        assert len(calls) == turn + 1 == steps.taken
        Twice.apply(x.exp()).backward(tinytorch.ones(3))
        calls.pop()
        steps.taken -= 1
    assert len(all_walks(hot)) <= 2  # a Function has another row at each call: none is remembered


@pytest.mark.parametrize("wrong", [lambda order: order[::-1], lambda order: order[1:]])
def test_an_order_that_is_none_makes_no_walk(
    wrong: Any, hot: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As of a student who is at work on `_topological_order`."""
    right, x = engine._topological_order, leaf(3)
    monkeypatch.setattr(engine, "_topological_order", lambda roots: wrong(right(roots)))
    for _ in range(2 * TURNS):
        (x.exp() * x.tanh()).sum().backward()
    assert all_walks(hot) and not any(known.walks for known in all_walks(hot))


def test_new_formulas_count(hot: Any, steps: Steps) -> None:
    from tinytorch.formulas import attach_gradient

    x, row = leaf(3), ops.tanh
    old = row.vjps, row.saved_inputs, row.saves_output, row.shared_vjp, row.formulas
    backward_until_a_walk(lambda: x.tanh().sum(), steps)
    try:
        attach_gradient(row, {"a": lambda g: g * 5.0})
        x.grad = None
        x.tanh().sum().backward()
        assert x.grad is not None and x.grad.tolist() == [5.0] * 3
    finally:
        row.vjps, row.saved_inputs, row.saves_output, row.shared_vjp, row.formulas = old
        row.plans.clear()
