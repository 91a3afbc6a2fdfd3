"""A value that was written after a call: a program refuses it where it reads it, and only there."""

from __future__ import annotations

import weakref
from collections.abc import Callable, Sequence
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st

import tinytorch
from tests.replay.common import runs
from tests.replay.test_programs import GUARDED, NAMES, PUBLIC
from tinytorch import tensor
from tinytorch.autograd import grad
from tinytorch.backends.numpy import NumpyBackend
from tinytorch.bench.counters import OpCounter
from tinytorch.errors import AutogradError
from tinytorch.replay import function as replaying, keep, replayed
from tinytorch.tensor import Tensor

BENCHMARKS = Path(__file__).resolve().parents[2] / "benchmarks"
REFUSED = "refused"


@pytest.fixture(autouse=True)
def _on_numpy(monkeypatch: pytest.MonkeyPatch) -> Any:
    """The second call makes the program, which the third runs."""
    monkeypatch.setattr(replaying, "HOT", 1)
    with tinytorch.using_backend(NumpyBackend()):
        yield


def halve(x: Tensor) -> None:
    with tinytorch.no_grad():
        x.mul_(0.5) if x.is_floating_point() else x.zero_()


def zero_data(x: Tensor) -> None:
    x.data.zero_()


def set_data(x: Tensor) -> None:
    x.data = tinytorch.zeros_like(x)


def op_by_op() -> Any:
    """A context of a backend that makes no programs."""
    backend = NumpyBackend()
    backend.programs = None
    return tinytorch.using_backend(backend)


WRITES = [halve, zero_data, set_data]


def hot(function: Callable[..., Any], *args: Tensor, **options: Any) -> Any:
    """What the program of a function returns."""
    for _ in range(3):
        out = function(*args, **options)
    assert runs(function)
    return out


# -- what one backward reads -----------------------------------------------------------------------


@pytest.mark.parametrize("write", WRITES)
@pytest.mark.parametrize("name", ["sort", "cummax"])
def test_a_gradient_that_reads_places_alone_lets_values_be_written(name: str, write: Any) -> None:
    w = tensor([[3.0, 1.0, 2.0]], requires_grad=True)
    values = hot(PUBLIC[name], w, 1)[0]
    expected = [[1.0, 1.0, 1.0]] if name == "sort" else [[3.0, 0.0, 0.0]]
    write(w)
    values.sum().backward()
    assert w.grad is not None and w.grad.tolist() == expected


@pytest.mark.parametrize("keepdim", [False, True])
@pytest.mark.parametrize("name", ["max", "min", "median", "kthvalue"])
def test_the_place_of_one_element_is_not_looked_for_again(name: str, keepdim: bool) -> None:
    """It is one of the results, in another shape: that may not be written."""
    w = tensor([[3.0, 1.0, 2.0], [3.0, 3.0, 3.0]], requires_grad=True)
    args = (2, 1, keepdim) if name == "kthvalue" else (1, keepdim)
    (wanted,) = grad(PUBLIC[name](w, *args)[0].sum(), w)
    for written in (None, 0, 1):
        outs = hot(PUBLIC[name], w, *args)
        halve(w if written is None else outs[written].detach())
        if written == 1:
            with pytest.raises(AutogradError, match="overwritten in place"):
                grad(outs[0].sum(), w)
        else:
            assert grad(outs[0].sum(), w)[0].tolist() == wanted.tolist()


@pytest.mark.parametrize("write", WRITES)
def test_a_gradient_that_is_differentiated_again_reads_all_that_is_kept(write: Any) -> None:
    w = tensor([3.0, 1.0, 2.0], requires_grad=True)
    values = hot(tinytorch.sort, w)[0]
    write(w)
    with pytest.raises(AutogradError, match=r"\(3,\) that the gradient of sort.*overwritten in pl"):
        grad(values.sum(), w, create_graph=True)
    with OpCounter(), pytest.raises(AutogradError, match="overwritten in place"):
        values.sum().backward()  # so does one that a mode sees: it is by ops
    values.sum().backward()  # and nothing was freed
    assert w.grad is not None and w.grad.tolist() == [1.0, 1.0, 1.0]


def test_one_result_may_read_what_another_does_not() -> None:
    x = tensor([1.0, 2.0, 6.0], requires_grad=True)
    for read, expected in ((1, [1 / 3] * 3), (0, None)):
        outs = hot(tinytorch.var_mean, x * 1.0, 0)
        y = x * 1.0
        outs = tinytorch.var_mean(y, 0)
        halve(y)
        if expected is None:
            with pytest.raises(AutogradError, match="overwritten in place"):
                grad(outs[read], x)
        else:
            (g,) = grad(outs[read], x)
            assert g is not None and g.tolist() == pytest.approx(expected)


@replayed
def of_a_part(x: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
    part = keep(x[:2])
    return part.sin() * y, y + 1.0


def test_what_is_kept_may_be_a_view_of_what_is_written() -> None:
    x, y = (tensor([1.0, 2.0], requires_grad=True) for _ in range(2))
    a, b = x * 1.0, y * 1.0
    first, second = hot(of_a_part, a, b)
    halve(a)
    with pytest.raises(AutogradError, match="overwritten in place"):
        grad(first.sum(), x)
    (g,) = grad(second.sum(), y)  # which reads neither
    assert g is not None and g.tolist() == [1.0, 1.0]


def test_a_walk_refuses_what_the_engine_refuses() -> None:
    w = tensor([3.0, 1.0, 2.0], requires_grad=True)

    def step(write: bool, function: Any) -> Any:
        w.grad = None
        x = w * 1.0
        out = function(x)
        if write:
            halve(x)
        (out * 2.0).sum().backward()
        assert w.grad is not None
        return w.grad.tolist()

    for _ in range(60):  # until all of it is a walk
        assert step(False, lambda x: tinytorch.sort(x)[0]) == [2.0, 2.0, 2.0]
        step(False, tinytorch.sinh)
    assert step(True, lambda x: tinytorch.sort(x)[0]) == [2.0, 2.0, 2.0]
    with pytest.raises(AutogradError, match="overwritten in place"):
        step(True, tinytorch.sinh)


def test_what_was_kept_for_a_second_gradient_is_freed_with_the_rest() -> None:
    w = tensor([3.0, 1.0, 2.0], requires_grad=True)
    for _ in range(3):
        x = w * 1.0
        values, _ = tinytorch.sort(x)
    alive = weakref.ref(x._data)
    del x
    assert alive() is not None
    values.sum().backward()
    assert alive() is None


# -- every function --------------------------------------------------------------------------------


def gradients(
    function: Any, name: str, arguments: Any, written: int, graph: bool, chosen: slice
) -> tuple[Any, int]:
    """Those of some results after one argument was halved, and how many arguments there are."""
    values = arguments.Values((12, 16), "float32", "contiguous", arguments.dims_of(name)[0])
    call = arguments.call_of(name, values)
    leaves: list[Tensor] = []
    given: list[Tensor] = []

    def make(array: Any) -> Tensor:
        x = tinytorch.from_numpy(array)
        if x.is_floating_point():
            leaves.append(x.requires_grad_())
            x = x * 1.0
        given.append(x)
        return x

    args = arguments.as_tensors(call.args, make, tinytorch)
    options = {k: arguments.as_tensors(x, make, tinytorch) for k, x in call.options.items()}
    result = function(*args, **options)
    outs = [
        out
        for out in (result if isinstance(result, (tuple, list)) else [result])
        if isinstance(out, Tensor) and out.requires_grad
    ][chosen]
    rng = np.random.default_rng(0)
    seeds = [tensor(rng.standard_normal(out.shape), dtype=out.dtype) for out in outs]
    if written >= 0:
        halve(given[written])
    try:
        found = grad(outs, leaves, seeds, create_graph=graph, allow_unused=True) if outs else ()
    except AutogradError as error:
        assert "overwritten in place" in str(error)
        return REFUSED, len(given)
    return [None if g is None else g.detach().numpy() for g in found], len(given)


@pytest.mark.filterwarnings("ignore:.*dimension")
@pytest.mark.parametrize("name", sorted({*NAMES} - {*GUARDED}))
def test_no_write_changes_a_gradient(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(BENCHMARKS))
    import op_arguments as arguments

    function = PUBLIC[name]
    for chosen in (slice(None), slice(1), slice(1, 2)):
        for _ in range(3):
            clean, count = gradients(function, name, arguments, -1, False, chosen)
        for graph in (False, True):
            for written in range(count):
                case = name, arguments, written, graph, chosen
                with op_by_op():
                    eager, _ = gradients(function, *case)
                found, _ = gradients(function, *case)
                if found is not REFUSED:
                    assert eager is not REFUSED
                    same(found, clean)


def same(found: Any, expected: Any) -> None:
    for a, b in zip(found, expected, strict=True):
        assert (a is None) == (b is None)
        if a is not None:
            np.testing.assert_allclose(a, b, rtol=1e-5, atol=1e-6)


# -- any function ----------------------------------------------------------------------------------

UNARY: list[Callable[[Tensor], Tensor]] = [
    lambda x: x.tanh(),
    lambda x: x.sin(),
    lambda x: x * 0.5,
    lambda x: x * x,
    lambda x: x.relu(),
    lambda x: x.sort(-1)[0],
    lambda x: x.amax(-1, keepdim=True),
    lambda x: x.mean(0, keepdim=True),
    lambda x: x.detach(),
    lambda x: x.transpose(0, 1),
    lambda x: x[:, :1],
    lambda x: x.view(3, 3) if x.numel() == 9 else x.sigmoid(),
    lambda x: keep(x.sigmoid()),
    lambda x: keep(x[:1]),
    lambda x: keep(x.cos()) + 1.0,
]
BINARY: list[Callable[[Tensor, Tensor], Tensor]] = [
    lambda x, y: x + y,
    lambda x, y: x - y,
    lambda x, y: x * y,
    lambda x, y: x * y.detach(),
    lambda x, y: tinytorch.where(x > y, x, y * 2.0),
    lambda x, y: x / (y * y + 1.0),
    lambda x, y: x.expand(3, 3) @ y.expand(3, 3),
]
Line = tuple[int, int, int]  # what is applied, and to which values


class Function:
    """A function of three tensors, drawn: its lines, and which of its values it returns."""

    def __init__(self, lines: Sequence[Line], results: int) -> None:
        self.lines, self.results = lines, results
        self.__name__ = "drawn"

    def __call__(self, x: Tensor, y: Tensor, z: Tensor) -> tuple[Tensor, ...]:
        values = [x, y, z]
        for which, a, b in self.lines:
            first, second = values[a % len(values)], values[b % len(values)]
            if which < len(UNARY):
                out = UNARY[which](first)
            else:
                out = BINARY[which - len(UNARY)](first, second)
            values.append(out if all(out is not v for v in values) else out * 1.0)
        return tuple(values[max(3, len(values) - self.results) :])

    def __repr__(self) -> str:
        return f"Function({self.lines}, {self.results})"


numbers = st.integers(0, 20)
functions = st.builds(
    Function,
    st.lists(
        st.tuples(st.integers(0, len(UNARY) + len(BINARY) - 1), numbers, numbers),
        min_size=1,
        max_size=6,
    ),
    st.integers(1, 3),
)


def drawn_gradients(
    function: Any,
    needs: Sequence[bool],
    chosen: int,
    written: int | None,
    write: Any,
    again: str,
) -> Any:
    """Gradients of results, and of these again, with a write after the call or between the two.

    Args:
        chosen: bits: of which results.
        written: which argument or result; None for none.
        again: "no": a plain backward; "modes": under a mode; "yes": a second one follows;
            "between": which is after the write.
    """
    rng = np.random.default_rng(3)
    leaves = [tensor(rng.uniform(0.2, 1.0, (3, 3)), requires_grad=n) for n in needs]
    given = [x * 1.0 if x.requires_grad else x.clone() for x in leaves]
    leaves = [x for x in leaves if x.requires_grad]
    outs = function(*given)
    named = [*given, *outs]
    outs = [t for i, t in enumerate(outs) if t.requires_grad and chosen >> i & 1]
    if not outs:
        return []
    seeds = [tensor(rng.standard_normal(t.shape), dtype=t.dtype) for t in outs]

    def change() -> None:
        if written is not None:
            write(named[written % len(named)])

    try:
        if again != "between":
            change()
        graph = again in ("yes", "between")
        with OpCounter() if again == "modes" else nullcontext():
            found = grad(outs, leaves, seeds, create_graph=graph, allow_unused=True)
        arrays = [None if g is None else g.detach().numpy().copy() for g in found]
        if again == "between":
            change()
        recorded = [g for g in found if g is not None and g.requires_grad]
        if graph and recorded:
            total = sum((g * g).sum() for g in recorded)
            second = grad(total, leaves, allow_unused=True)
            arrays += [None if g is None else g.detach().numpy() for g in second]
    except AutogradError as error:
        assert "overwritten in place" in str(error)
        return REFUSED
    return arrays


@settings(deadline=None, max_examples=150)
@given(
    functions,
    st.tuples(st.booleans(), st.booleans(), st.booleans()),
    st.integers(1, 7),
    st.integers(0, 5),
    st.sampled_from([halve, zero_data]),
    st.sampled_from(["no", "no", "modes", "yes", "between"]),
)
def test_a_program_gives_the_gradients_of_the_call_or_refuses(
    drawn: Function, needs: Any, chosen: int, written: int, write: Any, again: str
) -> None:
    function = replayed(drawn)
    with tinytorch.using_backend(NumpyBackend()):
        for _ in range(3):
            drawn_gradients(function, needs, chosen, None, write, "no")
        with op_by_op():
            expected = drawn_gradients(drawn, needs, chosen, None, write, again)
            eager = drawn_gradients(drawn, needs, chosen, written, write, again)
        assert expected is not REFUSED
        same(drawn_gradients(function, needs, chosen, None, write, again), expected)
        found = drawn_gradients(function, needs, chosen, written, write, again)
        if found is not REFUSED:
            same(found, expected)
            # an argument; of a result the program may not read what an op has kept
            assert eager is not REFUSED or again == "between" or written >= 3
