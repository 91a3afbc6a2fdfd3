"""Backends by name, and backends of a user."""

from __future__ import annotations

import asyncio
import threading

import numpy as np
import pytest

import tinytorch
from tests.backends.loading import load
from tinytorch import backends
from tinytorch.backends import ComputeBackend, find_backend, reference
from tinytorch.errors import BackendError, MissingExtraError
from tinytorch.op import OPS, Op
from tinytorch.state import current_backend


@pytest.fixture(autouse=True)
def _restored(monkeypatch):
    """What a test registers or sets is gone after it."""
    before = tinytorch.get_backend()
    monkeypatch.setattr(backends, "_factories", dict(backends._factories))
    monkeypatch.setattr(backends, "_instances", dict(backends._instances))
    yield
    tinytorch.set_backend(before)


def test_built_in_names():
    assert tinytorch.list_backends() == ["blocked", "naive", "numpy", "optimized"]


def test_register_set_get():
    class Mine(type(find_backend("numpy"))):
        pass

    tinytorch.register_backend("mine", Mine)
    assert "mine" in tinytorch.list_backends()
    tinytorch.set_backend("mine")
    assert isinstance(tinytorch.get_backend(), Mine)
    assert find_backend("mine") is tinytorch.get_backend()  # made once
    with pytest.raises(BackendError, match="there is a backend 'mine' already; pass replace=True"):
        tinytorch.register_backend("mine", Mine)
    tinytorch.register_backend("mine", Mine, replace=True)
    assert find_backend("mine") is not tinytorch.get_backend()


def test_an_unknown_name_lists_the_known_and_changes_nothing():
    before = tinytorch.get_backend()
    known = "there is no backend 'nosuch'; there are blocked, naive, numpy, optimized"
    with pytest.raises(BackendError, match=known):
        tinytorch.set_backend("nosuch")
    with pytest.raises(BackendError, match=known):
        tinytorch.using_backend("nosuch")
    assert tinytorch.get_backend() is before


def test_a_factory_must_make_a_backend():
    tinytorch.register_backend("wrong", dict)
    before = tinytorch.get_backend()
    with pytest.raises(BackendError, match="backend 'wrong': dict is not a ComputeBackend; derive"):
        tinytorch.set_backend("wrong")
    assert tinytorch.get_backend() is before


def test_a_missing_package_is_named(monkeypatch):
    monkeypatch.setattr(backends, "find_spec", lambda name: None)
    monkeypatch.setattr(backends, "_instances", {})
    with pytest.raises(MissingExtraError, match=r"needs numba, .*pip install 'tinytorch\[fast\]'"):
        tinytorch.set_backend("optimized")


# -- one method is enough --------------------------------------------------------------------------


def _network(x: np.ndarray) -> list[np.ndarray]:
    """Every kind of op, forward and backward."""
    rng = np.random.default_rng(0)
    w = tinytorch.tensor(rng.standard_normal((6, 4)), requires_grad=True)
    k = tinytorch.tensor(rng.standard_normal((2, 1, 2, 2)), requires_grad=True)
    h = (tinytorch.tensor(x) @ w).relu().softmax(1)
    params = {"stride": (1, 1), "padding": (0, 0), "dilation": (1, 1), "groups": 1}
    y = tinytorch.apply(OPS["conv2d"], h.reshape(1, 1, 3, 4), k, **params)
    loss = (y * y).mean() + h.max(1).values.sum() + h[[0, 2, 2]].cumsum(1).sum()
    loss.backward()
    return [loss.detach().numpy(), w.grad.numpy(), k.grad.numpy()]


@pytest.mark.slow_beyond(3)
@pytest.mark.parametrize("base", tinytorch.list_backends())
def test_a_backend_of_one_method_by_inheritance(base):
    calls = []

    class OneMethod(type(load(base))):
        def matmul(self, a, b):
            calls.append((a.shape, b.shape))
            return np.einsum("...ik,...kj->...ij", a, b)

    x = np.random.default_rng(1).standard_normal((3, 6))
    tinytorch.register_backend("one", OneMethod)
    with tinytorch.using_backend("one"):
        got = _network(x)
    assert calls[0] == ((3, 6), (6, 4)) and len(calls) >= 2  # forward and backward
    with tinytorch.using_backend("numpy"):
        for mine, wanted in zip(got, _network(x), strict=True):
            np.testing.assert_allclose(mine, wanted, rtol=1e-9)


def test_a_backend_from_scratch_needs_matmul_and_conv2d():
    class Nothing(ComputeBackend):
        pass

    with pytest.raises(TypeError, match=r"abstract.*conv2d.*matmul"):
        Nothing()

    class Scratch(ComputeBackend):
        def __init__(self):  # without super().__init__()
            self.convolutions = 0

        def matmul(self, a, b):
            return np.matmul(a, b)

        def conv2d(self, x, w, b=None, **params):
            self.convolutions += 1
            return reference.conv2d(x, w, b, **params)

    x = np.random.default_rng(1).standard_normal((3, 6))
    backend = Scratch()
    with tinytorch.using_backend(backend):
        got = _network(x)
    assert backend.convolutions == 3  # its two gradients are convolutions too
    with tinytorch.using_backend("numpy"):
        for mine, wanted in zip(got, _network(x), strict=True):
            np.testing.assert_allclose(mine, wanted, rtol=1e-9)


def test_a_method_for_a_kind_of_op():
    seen = []

    class Spy(type(find_backend("numpy"))):
        def elementwise(self, op, *operands):
            seen.append(op.name)
            return reference.find_kernel(op)(*operands)

    with tinytorch.using_backend(Spy()):
        (tinytorch.ones(2) + 1).exp().sum()
    assert seen == ["add", "exp"]


def test_an_op_of_the_user_runs_from_its_scalar_on_every_backend():
    from tinytorch import dtype_rules, shapes

    def softsign(a):
        return a / (1 + abs(a))

    op = Op("softsign", "a", "elementwise", shapes.broadcast, dtype_rules.floating,
            lambda *_: 0, scalar=softsign)  # fmt: skip
    x = np.linspace(-2, 2, 5)
    for name in ("naive", "numpy"):
        with tinytorch.using_backend(name):
            got = tinytorch.apply(op, tinytorch.tensor(x))
        np.testing.assert_allclose(got.numpy(), x / (1 + abs(x)))


def test_an_op_without_a_kernel_says_what_to_write():
    from tinytorch import dtype_rules, shapes

    op = Op("fancy", "a b", "movement", shapes.same, dtype_rules.any_type, lambda *_: 0)
    with pytest.raises(NotImplementedError, match=r"has no kernel for fancy: write a method fancy"):
        tinytorch.apply(op, tinytorch.ones(2), tinytorch.ones(2))


# -- a choice for a block belongs to its thread or coroutine ---------------------------------------


def _name() -> str:
    return type(current_backend()).__name__


def test_using_backend_nests_and_ends_with_the_block():
    tinytorch.set_backend("naive")
    with tinytorch.using_backend("numpy"):
        assert _name() == "NumpyBackend"
        with tinytorch.using_backend("naive"):
            assert _name() == "NaiveBackend"
        with pytest.raises(ZeroDivisionError), tinytorch.using_backend("naive"):
            raise ZeroDivisionError
        assert _name() == "NumpyBackend"
    assert _name() == "NaiveBackend"


def test_threads_choose_for_themselves():
    tinytorch.set_backend("naive")
    inside, seen = threading.Barrier(3), {}

    def work(name: str) -> None:
        with tinytorch.using_backend(name):
            inside.wait()  # both are in their block, and this thread sees neither
            seen[name] = _name()
            inside.wait()

    threads = [threading.Thread(target=work, args=(name,)) for name in ("numpy", "naive")]
    for t in threads:
        t.start()
    inside.wait()
    here = _name()
    inside.wait()
    for t in threads:
        t.join()
    assert seen == {"numpy": "NumpyBackend", "naive": "NaiveBackend"}
    assert here == "NaiveBackend"


def test_coroutines_choose_for_themselves():
    tinytorch.set_backend("naive")

    async def work(name: str, wanted: str) -> None:
        with tinytorch.using_backend(name):
            for _ in range(3):
                await asyncio.sleep(0)  # the other runs, in its own block
                assert _name() == wanted

    async def both() -> None:
        await asyncio.gather(work("numpy", "NumpyBackend"), work("naive", "NaiveBackend"))
        assert _name() == "NaiveBackend"

    asyncio.run(both())


def test_set_backend_is_for_all_threads():
    tinytorch.set_backend("numpy")
    seen: list[str] = []
    thread = threading.Thread(target=lambda: seen.append(_name()))
    thread.start()
    thread.join()
    assert seen == ["NumpyBackend"]
