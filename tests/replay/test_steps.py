"""Steps of a backward that are programs give what the steps give, bit for bit."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from random import Random
from typing import Any

import numpy as np
import pytest

import tinytorch
from tinytorch import ops, tensor
from tinytorch.autograd import grad
from tinytorch.backends.numpy import NumpyBackend
from tinytorch.backends.optimized import OptimizedBackend
from tinytorch.dispatch import Mode, apply
from tinytorch.errors import AutogradError
from tinytorch.formulas import attach_gradient
from tinytorch.op import OPS
from tinytorch.replay import function as replaying
from tinytorch.replay.steps import StepProgram
from tinytorch.tensor import Tensor
from tinytorch.testing.op_samples import draw_sample

DIFFERENTIABLE = [op for op in OPS.values() if op.vjps is not None and not op.random]
COMPILED = ["tanh", "div", "pow", "maximum", "atan2", "clip", "prod", "amax", "gelu", "where"]
NEVER = 10**9


@pytest.fixture
def hot(monkeypatch: pytest.MonkeyPatch) -> None:
    """The first step of a kind makes the program, which the second runs."""
    monkeypatch.setattr(replaying, "HOT", 0)


def programs(backend: Any) -> list[Any]:
    return [p for p in backend.programs.values() if type(p) is StepProgram]


def bits(t: Tensor | None) -> Any:
    """The bits of a tensor, those of a NaN apart."""
    if t is None:
        return None
    array = t.numpy()
    is_nan = array != array
    return t.meta, np.where(is_nan, np.zeros_like(array), array).tobytes(), is_nan.tobytes()


def gradients(op: Any, inputs: Any, params: Any, seed: int) -> list[Any]:
    given = [
        x.detach().requires_grad_(x.is_floating_point()) if isinstance(x, Tensor) else x
        for x in inputs
    ]
    out = apply(op, *given, **params)
    if not out.requires_grad:
        return []
    g = tensor(np.random.default_rng(seed).standard_normal(out.shape), dtype=out.dtype)
    leaves = [x for x in given if isinstance(x, Tensor) and x.requires_grad]
    return [bits(t) for t in grad(out, leaves, g, allow_unused=True)]


def other_values(x: Any) -> Any:
    """The same shape with other numbers; whole numbers, which may be indices, stay."""
    if not isinstance(x, Tensor) or not x.is_floating_point():
        return x
    flipped: Any = np.flip(x.numpy()) * 0.5
    return tinytorch.from_numpy(np.array(flipped, x.numpy().dtype, order="C"))


def check(name: str, backend: Any, style: str, monkeypatch: pytest.MonkeyPatch) -> None:
    with tinytorch.using_backend(backend):
        for seed in range(4):
            sample = draw_sample(name, Random(seed), style, "float32")
            inputs = sample.tensors()
            for values in (inputs, [other_values(x) for x in inputs], inputs):
                monkeypatch.setattr(replaying, "HOT", NEVER)
                wanted = gradients(OPS[name], values, sample.params, seed)
                monkeypatch.setattr(replaying, "HOT", 0)
                for _ in range(2):
                    assert gradients(OPS[name], values, sample.params, seed) == wanted


@pytest.mark.parametrize("style", ["smooth", "edges"])
@pytest.mark.parametrize("op", DIFFERENTIABLE, ids=lambda op: op.name)
def test_a_program_gives_the_gradient_of_any_values(
    op: Any, style: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    check(op.name, NumpyBackend(), style, monkeypatch)


@pytest.mark.slow_beyond(2)
@pytest.mark.parametrize("name", COMPILED)
def test_programs_of_compiled_kernels(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    backend = OptimizedBackend()
    check(name, backend, "edges", monkeypatch)
    check(name, backend, "smooth", monkeypatch)
    assert programs(backend)


UNARY: list[Callable[[Tensor], Tensor]] = [
    lambda x: x.tanh(), lambda x: x * x, lambda x: x * -0.0, lambda x: x * 0.0, lambda x: x + x,
    lambda x: x.sigmoid() * x, lambda x: x.sum(0), lambda x: x.amax(1, keepdim=True) + x,
    lambda x: x.T.exp().T, lambda x: x[1:] * 2.0, lambda x: x**3, lambda x: 1.5 / (x + 4.0),
]  # fmt: skip
BINARY: list[Callable[[Tensor, Tensor], Tensor]] = [
    lambda x, y: x * y, lambda x, y: x / (y * y + 1.0), lambda x, y: x - y, lambda x, y: x + y,
    lambda x, y: tinytorch.maximum(x, y), lambda x, y: tinytorch.where(x > y, x, y * 2.0),
]  # fmt: skip


def random_function(random: Random) -> Callable[[list[Tensor]], Tensor]:
    """A few functions, one after the other, each of what there is already."""
    steps = [
        (random.choice(UNARY), random.choice(BINARY), random.random(), random.random())
        for _ in range(6)
    ]

    def function(leaves: list[Tensor]) -> Tensor:
        values = list(leaves)
        for unary, binary, first, second in steps:
            x, y = (values[int(r * len(values))] for r in (first, second))
            made = unary(x)
            values.append(made if made.shape == x.shape else x * 0.5)
            values.append(binary(values[-1], y))
        return values[-1].sum() + values[-2].mean()

    return function


@pytest.mark.parametrize("seed", range(12))
def test_random_functions(seed: int, monkeypatch: pytest.MonkeyPatch, rng: Any) -> None:
    function, backend = random_function(Random(seed)), NumpyBackend()

    def found(arrays: Any, how_hot: int) -> Any:
        monkeypatch.setattr(replaying, "HOT", how_hot)
        leaves = [tinytorch.from_numpy(a.copy()).requires_grad_() for a in arrays]
        function(leaves).backward()
        kept = [x.grad._data for x in leaves if x.grad is not None]
        assert not any(np.shares_memory(a, b) for a, b in itertools.combinations(kept, 2))
        return [bits(x.grad) for x in leaves]

    with tinytorch.using_backend(backend):
        for _ in range(4):
            arrays = [rng.standard_normal((3, 4)).astype(np.float32) for _ in range(3)]
            assert found(arrays, 1) == found(arrays, NEVER)
    assert programs(backend)


def test_numbers_are_part_of_what_a_step_is_known_by(hot: None) -> None:
    backend = NumpyBackend()
    with tinytorch.using_backend(backend):
        x = tensor([1.0, -2.0], requires_grad=True)
        for number, sign in [(0.0, False), (-0.0, True), (2.0, False), (3.0, False), (0.0, False)]:
            for _ in range(3):
                (g,) = grad((x * number).sum(), x)
                assert g is not None and g.tolist() == [number] * 2
                assert np.signbit(g.numpy()).tolist() == [sign] * 2
        for dims in (0, 1):
            y = tensor(np.ones((2, 2)), requires_grad=True)
            for _ in range(3):
                (g,) = grad(apply(ops.cumsum, y, dim=dims).sum(), y)
                assert g is not None and g.tolist()[0] == ([2.0, 2.0] if dims == 0 else [2.0, 1.0])
    assert programs(backend)


def test_what_a_step_is_known_by_keeps_no_tensor_alive() -> None:
    def power(x: Tensor) -> Tensor:
        return x**3.0

    backend = NumpyBackend()
    with tinytorch.using_backend(backend):
        for _ in range(4 * replaying.HOT):
            x = tinytorch.rand(8, 8).requires_grad_()
            power(x).sum().backward()
        keys = [part for key in backend.programs for part in key]
    assert not any(isinstance(part, Tensor) for part in keys)
    assert any("3.0" in str(part) for part in keys) and len(backend.programs) < replaying.HOT


def test_formulas_of_a_user_run_each_time_and_new_ones_count(hot: None) -> None:
    from tinytorch.op import Op

    row = OPS["tanh"]
    mine = Op("mine", "a", "elementwise", row._shape_rule, row._dtype_rule, row._flops,
              scalar=row.scalar)  # fmt: skip
    calls = []

    def formula(g: Tensor) -> Tensor:
        calls.append(g)
        return g * 2.0 + 1.0

    class WithMine(NumpyBackend):
        replays = True

        def mine(self, a: Any) -> Any:
            return np.tanh(a)

    x = tensor([1.0], requires_grad=True)
    with tinytorch.using_backend(WithMine()):
        attach_gradient(mine, {"a": formula})
        for n in range(4):
            grad(apply(mine, x), x)
            assert len(calls) == n + 1
        formula.__module__ = "tinytorch.mine"  # as if it were one of the package
        for factor in (3.0, 5.0):

            def scaled(g: Tensor, factor: float = factor) -> Tensor:
                return g * factor + 1.0

            code = {3.0: lambda g: g * 3.0 + 1.0, 5.0: lambda g: g * 5.0 + 1.0}[factor]
            code.__module__ = "tinytorch.mine"
            attach_gradient(mine, {"a": code})
            for _ in range(3):
                (g,) = grad(apply(mine, x), x)
                assert g is not None and g.tolist() == [factor + 1.0]


class Count(Mode):
    ops = 0

    def run(self, op: Any, inputs: Any, params: Any, plan: Any) -> Any:
        self.ops += 1
        return self.below(op, inputs, params, plan)


def test_modes_and_graphs_of_gradients_see_every_op(hot: None) -> None:
    backend = NumpyBackend()
    with tinytorch.using_backend(backend):
        x = tensor([0.5], requires_grad=True)
        for _ in range(3):
            grad(x.tanh(), x)
        assert programs(backend)
        with Count() as counted:
            grad(x.tanh(), x)
        assert counted.ops >= 4  # tanh, the gradient of the result, and three of the formula
        (g,) = grad(x.tanh(), x, create_graph=True)
        assert g is not None and g.requires_grad
        (second,) = grad(g, x)
        t = np.tanh(0.5)
        assert second is not None and second.item() == pytest.approx(-2 * t * (1 - t * t))


def test_what_was_freed_or_overwritten_is_missed(hot: None) -> None:
    backend = NumpyBackend()
    with tinytorch.using_backend(backend):
        x = tensor([0.5, 1.0], requires_grad=True)
        for _ in range(3):
            y = x * x
            grad(y.sum(), x)
        assert programs(backend)
        with pytest.raises(AutogradError, match="freed"):
            grad(y.sum(), x)
        y = x * x
        with tinytorch.no_grad():
            x.add_(1.0)
        with pytest.raises(AutogradError, match="overwritten in place"):
            grad(y.sum(), x)


@pytest.mark.parametrize("first", [False, True])
def test_what_is_saved_for_others_is_no_part_of_another_program(hot: None, first: bool) -> None:
    """`w` has no gradient, or one that nobody asks for: then `a` is saved for it, too."""
    a, b = (tensor([1.0, 2.0, 4.0], requires_grad=True) for _ in range(2))
    with tinytorch.using_backend(NumpyBackend()):
        for function in (lambda w: a * w, lambda w: a / w, lambda w: w / a, lambda w: (a * w) * a):
            found = []
            for is_wanted in (first, not first, first, not first):
                w = b if is_wanted else b.detach()
                found.append(grad(function(w).sum(), a)[0].tolist())
                function(w).sum().backward(inputs=[a])
            assert found == found[:1] * 4


def test_hooks_change_what_a_program_is_given(hot: None) -> None:
    with tinytorch.using_backend(NumpyBackend()):
        x = tensor([0.5], requires_grad=True)
        for _ in range(4):
            y = x * 3.0
            y.register_hook(lambda g: g * 10.0)
            (g,) = grad(y * 2.0, x)
            assert g is not None and g.tolist() == [60.0]


def test_a_backend_of_a_user_has_none(hot: None) -> None:
    class Mine(NumpyBackend):
        """Its kernels may print."""

    with tinytorch.using_backend(Mine()):
        x = tensor([0.5], requires_grad=True)
        for _ in range(3):
            (g,) = grad(x * x, x)
            assert g is not None and g.tolist() == [1.0]
