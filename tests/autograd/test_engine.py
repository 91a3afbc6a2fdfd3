"""backward and grad: what is found, what is freed, what is refused."""

from __future__ import annotations

import gc
import itertools
import threading
from typing import Any

import numpy as np
import pytest
import torch

import tinytorch
from tinytorch.autograd import backward, grad
from tinytorch.bench.counters import OpCounter
from tinytorch.errors import AutogradError
from tinytorch.history import owner_of
from tinytorch.replay import programs_at_once


@pytest.fixture(autouse=True)
def _numpy() -> Any:
    with tinytorch.using_backend("numpy"):
        yield


def test_gradients_add_up_over_paths_and_over_calls() -> None:
    x = tinytorch.tensor([1.0, 2.0], requires_grad=True)
    (x * x + x).sum().backward()
    assert x.grad.tolist() == [3.0, 5.0]
    (x * 2).sum().backward()
    assert x.grad.tolist() == [5.0, 7.0]


def test_a_chain_of_100_000_ops() -> None:
    x = tinytorch.tensor([1.0], requires_grad=True)
    y = x
    for _ in range(100_000):
        y = y + 1.0
    y.backward()
    assert x.grad.tolist() == [1.0]


def test_the_third_derivative() -> None:
    x = tinytorch.tensor(2.0, dtype="float64", requires_grad=True)
    y = x**5
    (first,) = grad(y, x, create_graph=True)
    (second,) = grad(first, x, create_graph=True)
    (third,) = grad(second, x)
    assert [first.item(), second.item(), third.item()] == [80.0, 160.0, 240.0]


def test_any_true_value_asks_for_a_graph() -> None:
    """Programs ask whether it is True itself: from the 33rd call on, 1 gave no history."""
    x = tinytorch.tensor([1.0, 2.0], requires_grad=True)
    with tinytorch.using_backend("optimized"), programs_at_once():
        for _ in range(3):
            (first,) = grad(tinytorch.sinh(x).sum(), x, create_graph=1)  # type: ignore[arg-type]
            assert first.requires_grad


def test_history_makes_no_reference_cycles() -> None:
    def step() -> None:
        w = tinytorch.ones(3, requires_grad=True)
        loss = (w * tinytorch.ones(3)).tanh().sum()
        loss.backward()

    step()
    gc.collect()
    gc.disable()
    gc.set_debug(gc.DEBUG_SAVEALL)
    try:
        for _ in range(50):
            step()
        gc.collect()
        types = {type(x) for x in gc.garbage}  # those of other threads, such as pytest's, as well
    finally:
        gc.set_debug(0)
        gc.garbage.clear()
        gc.enable()
    assert [t for t in types if t.__module__.startswith("tinytorch")] == []


def test_values_that_no_gradient_reads_are_not_kept() -> None:
    import weakref

    w = tinytorch.ones(1000, requires_grad=True)
    middle = w * 2.0
    watched = weakref.ref(middle._data)
    out = middle + 1.0  # the gradient of an addition reads nothing
    del middle
    assert watched() is None
    out.sum().backward()
    assert w.grad.tolist() == [2.0] * 1000


def test_backward_frees_and_retain_graph_keeps() -> None:
    x = tinytorch.ones(2, requires_grad=True)
    y = (x * x).sum()
    y.backward(retain_graph=True)
    y.backward()
    assert x.grad.tolist() == [4.0, 4.0]
    with pytest.raises(tinytorch.AutogradError) as error:
        y.backward()
    assert str(error.value) == (
        "backward: the history of sum was freed by an earlier backward; pass retain_graph=True to "
        "that one to call it twice"
    )
    assert x.grad.tolist() == [4.0, 4.0]


def test_backward_needs_a_single_element_or_a_gradient() -> None:
    x = tinytorch.ones(2, 3, requires_grad=True)
    y = x * 2
    with pytest.raises(tinytorch.AutogradError) as error:
        y.backward()
    assert str(error.value) == (
        "backward: a gradient is only implied for a single element, and this tensor has shape "
        "(2, 3); reduce it first (loss.mean()) or pass gradient="
    )
    with pytest.raises(tinytorch.ShapeError, match=r"gradient has shape \(3,\), the tensor \(2, 3"):
        y.backward(tinytorch.ones(3))
    y.backward(tinytorch.ones(2, 3))
    assert x.grad.tolist() == [[2.0] * 3] * 2


def test_backward_needs_a_history() -> None:
    with pytest.raises(tinytorch.AutogradError, match="this tensor has no history"):
        tinytorch.ones(1).backward()


@pytest.mark.parametrize(
    ("use", "fails"),
    [
        (lambda w, a: w * a, True),  # the gradient for w reads a
        (lambda w, a: w * a[::2][:2], True),  # it reads a view of a
        (lambda w, a: w + a, False),  # it reads nothing
    ],
)
def test_an_overwritten_value_is_noticed_only_where_it_is_needed(use: Any, fails: bool) -> None:
    w = tinytorch.ones(4, 1, requires_grad=True)
    a = tinytorch.ones(4)
    y = use(w, a).sum()
    a.add_(1)
    if fails:
        with pytest.raises(tinytorch.AutogradError, match="overwritten in place after it was used"):
            y.backward()
        assert w.grad is None
    else:
        y.backward()
        assert w.grad.tolist() == [[4.0]] * 4


def test_an_overwritten_output_is_noticed() -> None:
    x = tinytorch.ones(2, requires_grad=True)
    y = x.exp()
    with tinytorch.no_grad():
        y.detach().zero_()
    with pytest.raises(tinytorch.AutogradError) as error:
        y.sum().backward()
    assert str(error.value) == (
        "backward: a value of shape (2,) that the gradient of exp needs was overwritten in place "
        "after it was used; write into a copy, or call backward before writing"
    )


def test_an_optimizer_step_between_two_forwards_is_fine() -> None:
    w = tinytorch.ones(2, requires_grad=True)
    for _ in range(3):
        (w * w).sum().backward()
        with tinytorch.no_grad():
            w -= w.grad * 0.1
        w.grad = None
    assert w.tolist() == pytest.approx([0.512] * 2)


def test_grad_changes_no_grad_attribute_and_says_what_is_unused() -> None:
    x = tinytorch.ones(2, requires_grad=True)
    z = tinytorch.ones(2, requires_grad=True)
    (gx,) = grad((x * 3).sum(), x)
    assert gx.tolist() == [3.0, 3.0]
    assert x.grad is None
    with pytest.raises(tinytorch.AutogradError, match=r"input 1 \(shape \(2,\)\) was not used"):
        grad((x * 3).sum(), [x, z])
    assert grad((x * 3).sum(), [x, z], allow_unused=True)[1] is None
    with pytest.raises(tinytorch.AutogradError, match=r"input 0 .* does not require grad"):
        grad((x * 3).sum(), tinytorch.ones(2))


def test_grad_of_a_computed_tensor() -> None:
    x = tinytorch.tensor([1.0, 2.0], requires_grad=True)
    y = x * x
    z = (y * y).sum()
    gy, gx = grad(z, [y, x])
    assert gy.tolist() == [2.0, 8.0]
    assert gx.tolist() == [4.0, 32.0]


def test_hooks_see_and_replace_gradients_and_can_be_removed() -> None:
    x = tinytorch.ones(2, requires_grad=True)
    seen: list[Any] = []
    y = x * 2
    y.register_hook(lambda g: seen.append(g.tolist()))
    remove = x.register_hook(lambda g: g * 10)
    y.sum().backward()
    assert seen == [[1.0, 1.0]]
    assert x.grad.tolist() == [20.0, 20.0]
    remove()
    x.grad = None
    (x * 2).sum().backward()
    assert x.grad.tolist() == [2.0, 2.0]
    x.register_hook(lambda g: tinytorch.ones(5))
    with pytest.raises(tinytorch.ShapeError, match=r"hook returned a gradient of shape \(5,\)"):
        (x * 2).sum().backward()


def test_retain_grad_keeps_the_gradient_of_a_computed_tensor() -> None:
    x = tinytorch.ones(2, requires_grad=True)
    y = x * 3
    y.retain_grad()
    (y * y).sum().backward()
    assert y.grad.tolist() == [6.0, 6.0]
    assert x.grad.tolist() == [18.0, 18.0]


def test_two_leaves_never_share_the_memory_of_their_gradients() -> None:
    a = tinytorch.ones(2, requires_grad=True)
    b = tinytorch.ones(2, requires_grad=True)
    seed = tinytorch.ones(2)
    (a + b).backward(seed)
    a.grad.mul_(10)
    assert b.grad.tolist() == [1.0, 1.0]
    assert seed.tolist() == [1.0, 1.0]
    c = tinytorch.ones(3, requires_grad=True)
    c.sum().backward()  # the gradient of a sum is a broadcast view
    c.grad.mul_(2)
    assert c.grad.tolist() == [2.0] * 3


def test_many_threads_at_once() -> None:
    shared = tinytorch.ones(4, requires_grad=True)
    errors: list[BaseException] = []

    def work(i: int) -> None:
        try:
            own = tinytorch.full((4,), float(i), requires_grad=True)
            for _ in range(50):
                own.grad = None
                (own * own).sum().backward()
                assert own.grad.tolist() == [2.0 * i] * 4
                (shared * 1.0).sum().backward()
        except BaseException as error:
            errors.append(error)

    threads = [threading.Thread(target=work, args=(i,)) for i in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert errors == []
    assert shared.grad.tolist() == [400.0] * 4


def test_no_grad_records_nothing() -> None:
    x = tinytorch.ones(2, requires_grad=True)
    with tinytorch.no_grad():
        assert (x * 2).history is None
    assert (x.detach() * 2).history is None


def test_backward_of_several_tensors_is_that_of_their_sum() -> None:
    x, y = tinytorch.ones(2, requires_grad=True), tinytorch.ones(2, requires_grad=True)
    z = x * y
    seed = tinytorch.tensor([1.0, 5.0])
    backward([z.sum(), z * 3.0], [None, seed])
    assert x.grad.tolist() == y.grad.tolist() == [4, 16] and seed.tolist() == [1, 5]
    with pytest.raises(AutogradError, match="2 outputs need as many gradients, not 1"):
        backward((x, y), [seed])


def test_casts_give_the_gradient_in_the_inputs_dtype() -> None:
    x = tinytorch.ones(2, requires_grad=True)
    w = tinytorch.ones(2, dtype="float64", requires_grad=True)
    (x * w).sum().backward()
    assert x.grad.dtype is tinytorch.float32
    assert w.grad.dtype is tinytorch.float64


def test_a_slice_and_the_whole_leave_gradients_that_others_hold_alone() -> None:
    x = tinytorch.ones(4, requires_grad=True)
    seed, half = tinytorch.ones(4), tinytorch.ones(2)
    y, z = x + 0.0, x[1:3]
    again = x[2:4]
    found = grad([y, z, again], x, [seed, half, half])[0]
    np.testing.assert_array_equal(found.numpy(), [1.0, 2.0, 3.0, 2.0])
    np.testing.assert_array_equal(seed.numpy(), np.ones(4))
    np.testing.assert_array_equal(half.numpy(), np.ones(2))


@pytest.mark.parametrize("backend", ["numpy", "optimized"])
def test_a_slice_of_everything_leaves_gradients_that_others_hold_alone(backend: str) -> None:
    if backend == "optimized":
        pytest.importorskip("numba")
    with tinytorch.using_backend(backend):
        x = tinytorch.ones(4, requires_grad=True)
        whole, turned, part = x.narrow(0, 0, 4), x.flip(0), x[1:3]
        seeds = [tinytorch.arange(4.0), tinytorch.arange(4.0), tinytorch.ones(2)]
        pairs = list(zip((whole, turned, part), seeds, strict=True))
        for order in itertools.permutations(pairs):
            outputs, given = zip(*order, strict=True)
            found = grad(outputs, x, given, retain_graph=True)[0]
            np.testing.assert_array_equal(found.numpy(), [3.0, 4.0, 4.0, 3.0])
        for seed, kept in zip(seeds, ([0, 1, 2, 3], [0, 1, 2, 3], [1, 1]), strict=True):
            np.testing.assert_array_equal(seed.numpy(), kept)
        spread = tinytorch.ones(1).expand(4)  # which nobody may write to
        found = grad([whole, x[:2]], x, [spread, tinytorch.ones(2)])[0]
        np.testing.assert_array_equal(found.numpy(), [2.0, 2.0, 1.0, 1.0])


@pytest.mark.slow
def test_large_gradients_are_kept_without_a_copy_and_never_shared() -> None:
    pytest.importorskip("numba")
    from tinytorch.jit.buffers import pool

    with tinytorch.using_backend("optimized"):
        a, b, w = (tinytorch.ones(256, 256, requires_grad=True) for _ in range(3))
        for _ in range(5):  # the first steps are not replayed yet
            a.grad = b.grad = w.grad = None
            (((a + b) @ w) * tinytorch.full((256, 256), 2.0)).sum().backward()
            kept = w.grad.numpy()
            assert not pool.holds(owner_of(kept))
            assert (kept == 1024.0).all()
            a.grad.fill_(7.0)
            assert (b.grad.numpy() == 512.0).all()
        for _ in range(8):  # nothing writes into what is kept
            (a.detach() @ b.detach()).sum()
        assert (kept == 1024.0).all()


def test_backward_adds_to_the_grad_of_what_is_named_and_still_wants_it() -> None:
    x = tinytorch.tensor([1.0, 2.0], requires_grad=True)
    y = x * 3
    (y * y).sum().backward(inputs=[y])
    assert y.grad.tolist() == [6.0, 12.0] and x.grad is None
    loss = (x * x).sum()
    x.requires_grad_(False)
    loss.backward()
    assert x.grad is None
    w = tinytorch.ones(2, requires_grad=True)
    for wrong in ([], [x]):
        with pytest.raises(tinytorch.AutogradError, match="`inputs` must be tensors"):
            (w * x).sum().backward(inputs=wrong)
    w.grad = tinytorch.ones(1)
    with pytest.raises(tinytorch.ShapeError, match=r"\.grad has shape \(1,\)"):
        (w * x).sum().backward()


def test_retain_grad_is_last_and_once_and_follows_in_place_operations() -> None:
    x = tinytorch.tensor([1.0, 2.0], requires_grad=True)
    y = x * 3
    y.retain_grad()
    y.retain_grad()
    y.register_hook(lambda g: -g)
    (y * y).sum().backward()
    assert y.grad.tolist() == [-6.0, -12.0]
    z = x * 3
    z.retain_grad()
    before = z + 1
    z.mul_(2)
    (z * z + before).sum().backward()
    assert z.grad.tolist() == [12.0, 24.0]
    with pytest.raises(tinytorch.AutogradError, match="retain_grad: this tensor does not"):
        x.detach().retain_grad()


def test_a_handle_removes_its_own_hook_and_a_hook_keeps_the_dtype() -> None:
    def double(g: Any) -> Any:
        return g * 2

    x = tinytorch.ones(1, requires_grad=True)
    x.register_hook(double)
    x.register_hook(lambda g: g + 1)
    second = x.register_hook(double)
    second.remove()
    second.remove()
    x.sum().backward()
    assert x.grad.tolist() == [3.0]
    x.register_hook(lambda g: g.to("float64"))
    with pytest.raises(tinytorch.DTypeError, match="a hook returned a float64 gradient"):
        x.sum().backward()


def test_set_grad_enabled_is_a_call_too_and_no_grad_decorates_generators() -> None:
    x = tinytorch.ones(1, requires_grad=True)

    @tinytorch.no_grad()
    def steps() -> Any:
        try:
            while True:
                yield (x * 2).requires_grad
        except KeyError:
            yield "caught"
        return "end"

    running = steps()
    assert [next(running), (x * 2).requires_grad, next(running)] == [False, True, False]
    assert running.throw(KeyError()) == "caught"
    with pytest.raises(StopIteration, match="end"):
        next(running)
    with tinytorch.enable_grad():
        tinytorch.set_grad_enabled(False)
        assert not (x * 2).requires_grad
        with tinytorch.set_grad_enabled(True):
            assert (x * 2).requires_grad
        assert not (x * 2).requires_grad

        @tinytorch.set_grad_enabled(True)
        def record() -> bool:
            return (x * 2).requires_grad

        assert record() and not (x * 2).requires_grad
    assert (x * 2).requires_grad


def test_a_gradient_is_added_to_in_place_under_a_mode() -> None:
    w, bucket = tinytorch.ones(3, requires_grad=True), tinytorch.zeros(6)
    w.grad = bucket[3:]
    with OpCounter():
        (w * 2.0).sum().backward()
    np.testing.assert_array_equal(bucket.numpy(), [0.0, 0.0, 0.0, 2.0, 2.0, 2.0])


def test_any_iterable_of_tensors_is_taken() -> None:
    """`grad(loss, weights.values())` is how meta-learning is written."""
    x, w = (tinytorch.tensor([2.0], requires_grad=True) for _ in range(2))
    named = {"x": x, "w": w}
    found = grad((x * w).sum(), named.values())
    assert [g.item() for g in found] == [2.0, 2.0]
    found = grad((t * 3 for t in (x, w)), (t for t in (w, x)), iter([tinytorch.ones(1), None]))
    assert [g.item() for g in found] == [3.0, 3.0]
    (x * w).sum().backward(inputs=(t for t in (x,)))
    assert x.grad is not None and x.grad.item() == 2.0 and w.grad is None


@pytest.mark.parametrize("wrong", [[1.0], None, 3, [None]])
def test_what_is_no_tensor_has_no_gradient(wrong: Any) -> None:
    x = tinytorch.ones(1, requires_grad=True)
    with pytest.raises(TypeError, match="a gradient is of tensors and for tensors, not"):
        grad(x * 2, wrong)
    with pytest.raises(TypeError, match="a gradient is of tensors and for tensors, not"):
        grad(wrong, x)


def test_zeros_for_what_was_not_used() -> None:
    for t in (tinytorch, torch):
        x, y = (t.ones(2, 3, requires_grad=True) for _ in range(2))
        gx, gy = t.autograd.grad((x * 2).sum(), (x, y), materialize_grads=True)
        assert gx.tolist() == [[2.0] * 3] * 2 and gy.tolist() == [[0.0] * 3] * 2
        assert t.autograd.grad(x.sum(), (x, y), allow_unused=True)[1] is None
        with pytest.raises(ValueError, match="materialize_grads=True"):
            t.autograd.grad(x.sum(), y, allow_unused=False, materialize_grads=True)
