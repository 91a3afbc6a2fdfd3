"""`tinytorch.compile`: whose memory arguments, results and state are."""

from __future__ import annotations

import numpy as np
import pytest

import tinytorch
from tinytorch import nn, ones, optim
from tinytorch.errors import AutogradError
from tinytorch.graph import TraceError
from tinytorch.tensor import Tensor

pytestmark = pytest.mark.usefixtures("numpy_backend")


def test_results_are_never_used_again():
    step = tinytorch.compile(lambda x: (x * 2.0, (x + 1.0).reshape(2, 2), x.exp().T), mode="python")
    first = step(ones(4) * 0.0)
    copies = [r.numpy().copy() for r in first]
    for i in range(3):
        step(ones(4) * float(i + 1))
    for result, before in zip(first, copies, strict=True):
        assert np.array_equal(result.numpy(), before)
        result.fill_(7.0)  # and may be written
    assert step(ones(4) * 0.0)[0].tolist() == [0.0] * 4


def test_a_constant_cannot_be_changed_through_a_result():
    @tinytorch.compile(mode="python")
    def function(x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        constant = tinytorch.tensor([1.0, 2.0])
        return constant, tinytorch.zeros(2), x + constant

    for result in function(ones(2)):
        result.fill_(9.0)
    assert [r.tolist() for r in function(ones(2))] == [[1.0, 2.0], [0.0, 0.0], [2.0, 3.0]]


def test_a_view_of_an_argument_is_a_view():
    x = ones(2, 3)
    y, z = tinytorch.compile(lambda x: (x.T, x), mode="python")(x)
    assert z is x and np.shares_memory(y.numpy(), x.numpy())
    written = tinytorch.compile(lambda x: x.add_(1.0), mode="python")
    assert all(written(x) is x for _ in range(2)) and x.tolist() == [[3.0] * 3] * 2


@pytest.mark.parametrize("backend", ["numpy", "optimized"])
def test_a_view_of_an_argument_that_was_copied_or_written_is_a_view(backend: str):
    def function(x: Tensor) -> tuple[Tensor, Tensor]:
        return x[1:], x.tanh()

    def writing(x: Tensor) -> tuple[Tensor, Tensor]:
        row = x.unsqueeze(0)
        row.clamp_(0.0, 3.0)
        return row, x[0].detach()

    def state(x: Tensor) -> Tensor:
        counts.add_(x)
        return counts.reshape(9)

    counts = tinytorch.zeros(3, 3)
    with tinytorch.using_backend(backend):
        for each in (function, writing, state):
            compiled = tinytorch.compile(each)
            for x in (ones(3, 3), ones(3, 3).T, ones(3, 6)[:, ::2], ones(3, 3)):
                results = compiled(x)
                for y in [results] if each is state else results[: 1 + (each is writing)]:
                    memory = counts if each is state else x
                    assert np.shares_memory(y.numpy(), memory.numpy())
                    y.fill_(7.0)
                    assert memory[1:].tolist()[0][0] == 7.0 or y.ndim == 1


def test_what_contiguous_copies_depends_on_the_order_of_an_argument():
    def function(x: Tensor) -> Tensor:
        y = x.contiguous()
        y.add_(1.0)
        return y * 2.0

    def of_a_view(x: Tensor) -> Tensor:
        y = x.T.contiguous()
        x.add_(1.0)
        return y * 2.0

    def of_a_result(x: Tensor) -> Tensor:
        y = x * 2.0
        z = y.contiguous()
        y.add_(1.0)
        return z * 1.0

    def rows() -> Tensor:
        return tinytorch.arange(9.0).reshape(3, 3)

    for each in (function, of_a_view, of_a_result):
        compiled = tinytorch.compile(each)
        for make in (rows, lambda: rows().T, rows):
            x, y = make(), make()
            try:
                got = compiled(x)
            except TraceError as error:
                assert each is not function
                assert "contiguous() copied it depends on memory order" in str(error)
            else:
                assert got.tolist() == each(y).tolist() and x.tolist() == y.tolist()
        if each is function:
            assert compiled.reasons[1] == "x is not in C order, and was in C order"


@pytest.mark.parametrize("requires_grad", [False, True])
def test_a_tensor_that_is_returned_twice_is_one_tensor(requires_grad: bool):
    def function(x: Tensor) -> tuple[list[Tensor], dict[str, Tensor], Tensor]:
        y = x * 3.0
        return [y, x], {"y": y}, y * 2.0

    x = tinytorch.tensor([1.0, 2.0], requires_grad=requires_grad)
    compiled = tinytorch.compile(function)
    for _ in range(2):
        (y, same), named, double = compiled(x)
        assert named["y"] is y and same is x and double is not y
    if requires_grad:
        (y * named["y"] + double).sum().backward()  # 9 x^2 + 6 x
        assert x.grad is not None and x.grad.tolist() == [24.0, 42.0]


def test_an_input_given_twice():
    function = tinytorch.compile(lambda a, b: (a * 2.0 + b, a - b), mode="python")
    x = ones(3)
    function(ones(3), ones(3)), function(ones(3), ones(3))
    s, d = function(x, x)
    assert (s.tolist(), d.tolist(), x.tolist()) == ([3.0] * 3, [0.0] * 3, [1.0] * 3)


def test_an_argument_that_is_written_and_given_twice():
    @tinytorch.compile(mode="python")
    def function(a: Tensor, b: Tensor) -> Tensor:
        a.mul_(2.0)
        return b + 1.0

    a = ones(2)
    assert function(a, ones(2)).tolist() == [2.0, 2.0] and a.tolist() == [2.0, 2.0]
    assert function(a, ones(2)).tolist() == [2.0, 2.0] and a.tolist() == [4.0, 4.0]
    with pytest.raises(TraceError, match="a is written in place and shares memory with b"):
        function(a, a)
    with pytest.raises(TraceError, match="shares memory"):
        function(a, Tensor.from_numpy(a.numpy()[::-1]))


def test_a_batch_that_shares_memory_with_a_parameter():
    w = tinytorch.ones(2, requires_grad=True)
    optimizer = optim.SGD([w], lr=0.5)

    @tinytorch.compile(mode="python")
    def step(x: Tensor) -> Tensor:
        optimizer.zero_grad()
        loss = (w * x).sum()
        loss.backward()
        optimizer.step()
        return loss

    for _ in range(2):
        step(ones(2))
    assert w.tolist() == [0.0, 0.0]
    with pytest.raises(TraceError, match="shares memory"):
        step(w.detach())


def test_memory_that_cannot_be_written():
    buffer = Tensor.from_numpy(np.broadcast_to(np.float32(1.0), (3,)))

    @tinytorch.compile(mode="python")
    def step(x: Tensor) -> None:
        buffer.add_(x)

    with pytest.raises(AutogradError, match="cannot be written in place"):
        step(ones(3))


def test_arrays_in_another_order():
    model = nn.Linear(3, 2)
    model.weight._data = np.asfortranarray(model.weight._data)
    optimizer = optim.SGD(model.parameters(), lr=0.5)

    def step(x: Tensor) -> Tensor:
        optimizer.zero_grad()
        loss = model(x).reshape(8).sum()
        loss.backward()
        optimizer.step()
        return loss

    compiled = tinytorch.compile(step, mode="python")
    start = model.weight.detach().numpy().copy()
    x = Tensor.from_numpy(np.arange(12, dtype=np.float32).reshape(3, 4).T)
    losses = [compiled(x).item() for _ in range(3)]
    got = model.weight.detach().numpy().copy()
    with tinytorch.no_grad():
        model.weight.copy_(tinytorch.tensor(start))
        model.bias.add_(0.5 * 4 * 3)
    assert [step(x).item() for _ in range(3)] == pytest.approx(losses, rel=1e-5)
    np.testing.assert_allclose(model.weight.detach().numpy(), got, 1e-5)


def test_a_write_is_seen_by_histories():
    w = tinytorch.ones(2, requires_grad=True)
    optimizer = optim.SGD([w], lr=0.5)

    @tinytorch.compile(mode="python")
    def step(x: Tensor) -> None:
        optimizer.zero_grad()
        (w * x).sum().backward()
        optimizer.step()

    for _ in range(3):  # the third call is one that the guard lets pass
        y = (w * w).sum()
        step(ones(2))
        with pytest.raises(AutogradError, match="was overwritten in place"):
            y.backward()


def test_a_result_that_is_the_new_state():
    w = ones(2)

    @tinytorch.compile(mode="python")
    def add(x: Tensor) -> tuple[Tensor, Tensor]:
        old = w.clone()
        w.add_(x)
        return w, old

    for i in range(3):
        new, old = add(ones(2))
        assert (new.tolist(), w.tolist(), old.tolist()) == (
            [2.0 + i] * 2, [2.0 + i] * 2, [1.0 + i] * 2
        )  # fmt: skip
        assert new is w


def test_gradients_that_add_up():
    w = tinytorch.ones(3, requires_grad=True)

    @tinytorch.compile(mode="python")
    def add(x: Tensor) -> Tensor:
        loss = (w * x).sum()
        loss.backward()
        return loss

    for i in range(1, 5):
        add(ones(3))
        assert w.grad is not None and w.grad.tolist() == [float(i)] * 3
    held = w.grad
    w.grad = None
    add(ones(3))
    assert w.grad.tolist() == [1.0] * 3 and held.tolist() == [4.0] * 3
    assert add.reasons == ["first call", "w.grad is set, and was not"]
