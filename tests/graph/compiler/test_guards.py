"""The world changes between calls: compiled code notices, and does what eager code does.

Each world is a function and something that it reads; each has mutations. Eager code on a second,
equal world is the specification: results, gradients and state must be the same after every call.
"""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

import tinytorch
from tinytorch import nn, optim
from tinytorch.errors import TinyTorchError
from tinytorch.graph import TraceError
from tinytorch.nn import functional as F
from tinytorch.state import using_backend
from tinytorch.tensor import Tensor

X = np.array([[1.0, -2.0, 3.0], [0.5, 0.25, -1.0]], np.float32)


@pytest.fixture(params=["numpy", "optimized"], autouse=True)
def backend(request: pytest.FixtureRequest) -> Iterator[None]:
    with using_backend(request.param):
        yield


BOTH = ["numpy", pytest.param("optimized", marks=pytest.mark.slow)]


@dataclass
class World:
    """A function of one tensor, what it reads, and ways to change that.

    Attributes:
        function: what is compiled.
        mutations: by name.
        state: tensors to compare after each call.
    """

    function: Callable[[Tensor], Any]
    mutations: dict[str, Callable[[], Any]]
    state: Callable[[], list[Tensor | None]] = list


def linear(inputs: int, outputs: int, seed: int = 0) -> nn.Linear:
    layer = nn.Linear(inputs, outputs)
    rng = np.random.default_rng(seed + 10 * inputs + outputs)
    with tinytorch.no_grad():
        for p in layer.parameters():
            p.copy_(tinytorch.tensor(rng.standard_normal(p.shape).astype(np.float32)))
    return layer


def attribute(holder: Any, name: str, value: Any) -> Callable[[], None]:
    return lambda: setattr(holder, name, value)


def entry(holder: Any, key: Any, value: Any) -> Callable[[], None]:
    return lambda: holder.__setitem__(key, value)


# -- models and training steps ---------------------------------------------------------------------


class Net(nn.Module):
    """Two layers, and attributes of every kind."""

    factor = 2.0

    def __init__(self) -> None:
        super().__init__()
        self.body = nn.Sequential(linear(3, 4), nn.Tanh())
        self.head = linear(4, 2)
        self.scale = 1.5
        self.extra = [linear(4, 4, seed=1)]
        self.options = {"shift": 0.5, "flags": [True, False]}

    def forward(self, x: Tensor) -> Tensor:
        h = self.body(x)
        for layer in self.extra:
            h = layer(h)
        if self.options["flags"][1]:
            h = h * 3.0
        return self.head(h) * self.scale * self.factor + self.options["shift"]


def model() -> World:
    net = Net()
    handles: list[Any] = []

    def hook() -> None:
        handles.append(net.head.register_forward_hook(lambda m, a, out: out * 2.0))

    return World(
        net,
        {
            "freeze the head": lambda: net.head.requires_grad_(False),
            "freeze by assignment": attribute(net.body[0].weight, "requires_grad", False),
            "unfreeze": lambda: net.requires_grad_(True),
            "replace the head": lambda: setattr(net, "head", linear(4, 2, seed=2)),
            "replace an item": lambda: net.body.__setitem__(1, nn.ReLU()),
            "append an item": lambda: net.body.append(nn.ReLU()),
            "delete an item": lambda: net.body.__delitem__(len(net.body) - 1),
            "a layer in a list": entry(net.extra, 0, linear(4, 4, seed=3)),
            "another in a list": lambda: net.extra.append(linear(4, 4, seed=4)),
            "another parameter": lambda: setattr(net.head, "bias", nn.Parameter([5.0, 6.0])),
            "no bias": lambda: setattr(net.head, "bias", None),
            "a forward hook": hook,
            "a pre-hook": lambda: net.head.register_forward_pre_hook(lambda m, a: (a[0] * 0.5,)),
            "no hook": lambda: handles and handles.pop().remove(),
            "an attribute": attribute(net, "scale", -1.5),
            "an entry": entry(net.options, "shift", -0.5),
            "an entry of an entry": entry(net.options["flags"], 1, True),
            "an attribute that hides the class's": attribute(net, "factor", 3.0),
            "another method": attribute(net, "forward", lambda x: x.sum()),
            "evaluation": net.eval,
            "training": net.train,
        },
        lambda: [p.grad for p in net.parameters()],
    )


def step_of(make: Callable[..., optim.Optimizer], **options: Any) -> Callable[[], World]:
    def world() -> World:
        net = nn.Sequential(linear(3, 4), nn.Tanh(), linear(4, 2))
        space = SimpleNamespace(optimizer=make(net.parameters(), **options))
        optimizer = space.optimizer

        def step(x: Tensor) -> Tensor:
            space.optimizer.zero_grad()
            loss = net(x).square().mean()
            loss.backward()
            space.optimizer.step()
            return loss.detach()

        def replace() -> None:
            net[0] = linear(3, 4, seed=5)

        return World(
            step,
            {
                "freeze a layer": lambda: net[0].requires_grad_(False),
                "unfreeze": lambda: net.requires_grad_(True),
                "replace a layer": replace,
                "another optimizer": lambda: setattr(
                    space, "optimizer", make(net.parameters(), **{**options, "lr": 0.02})
                ),
                "the first optimizer": lambda: setattr(space, "optimizer", optimizer),
                "another rate": entry(optimizer.param_groups[0], "lr", 0.01),
                "decay": entry(optimizer.param_groups[0], "weight_decay", 0.1),
                "fewer parameters": lambda: optimizer.param_groups[0]["params"].pop(),
                "another group": lambda: optimizer.param_groups.__setitem__(
                    0, {**optimizer.param_groups[0], "weight_decay": 0.2}
                ),
                "a gradient hook": lambda: net[2].weight.register_hook(lambda g: g * 2.0),
            },
            lambda: list(net.parameters()),
        )

    return world


# -- Python values ---------------------------------------------------------------------------------


@dataclass
class Settings:
    scale: float = 2.0
    shape: list[int] = field(default_factory=lambda: [2, 3])
    parent: Any = None


class Plain:
    power = 2

    def __init__(self) -> None:
        self.scale = 3.0
        self.counter = 0  # which nothing that is compiled mentions

    def __call__(self, x: Tensor) -> Tensor:
        return x**self.power * self.scale * self.offset()

    def offset(self) -> float:
        return 1.0


GLOBAL = 2.0


def helper(x: Tensor) -> Tensor:
    return x + 1.0


def other_helper(x: Tensor) -> Tensor:
    return x - 1.0


def values() -> World:
    global GLOBAL, helper
    GLOBAL, helper = 2.0, other_helper  # as they were, whatever another world did
    nested = {"a": {"b": [1.0, {"c": 2.0}]}, "t": (1.0, [4.0])}
    settings, plain = Settings(parent=Settings()), Plain()
    numbers = np.array([1.0, 2.0])
    names = {"on"}
    weights = [tinytorch.tensor([1.0]), tinytorch.tensor([2.0])]
    scale, zero = 1.0, 0.0

    class Local:
        constant = 4.0

    def inner(x: Tensor, by: float = 2.0, *, plus: float = 1.0) -> Tensor:
        return x * by + plus

    def function(x: Tensor) -> Tensor:
        y = helper(x) * GLOBAL + nested["a"]["b"][1]["c"] + nested["t"][1][0]
        y = y * settings.scale + settings.parent.scale + len(settings.shape)
        y = inner(y) + plain(x) * Local.constant + float(numbers[0])
        if "on" in names:
            y = y * 0.5
        for w in weights:
            y = y * w
        return y * scale + 1.0 / (tinytorch.ones(1) * zero)

    def set_global(name: str, value: Any) -> Callable[[], None]:
        return lambda: globals().__setitem__(name, value)

    def rebind() -> None:
        nonlocal scale
        scale = 7.0

    def negative_zero() -> None:
        nonlocal zero
        zero = -0.0

    return World(
        function,
        {
            "a deep entry": entry(nested["a"]["b"][1], "c", 3.0),
            "a list in a dict": entry(nested["a"], "b", [5.0, {"c": 6.0}]),
            "a list in a tuple": entry(nested["t"][1], 0, 9.0),
            "another tuple": entry(nested, "t", (1.0, [8.0])),
            "a dataclass": attribute(settings, "scale", 5.0),
            "a dataclass in a dataclass": attribute(settings.parent, "scale", 6.0),
            "another dataclass": attribute(settings, "parent", Settings(scale=9.0)),
            "a list's length": lambda: settings.shape.append(4),
            "a plain object": attribute(plain, "scale", -3.0),
            "an attribute nobody mentions": attribute(plain, "counter", 3),
            "a method": attribute(plain, "offset", lambda: 2.0),
            "a class attribute": attribute(Local, "constant", 5.0),
            "a global": set_global("GLOBAL", 3.0),
            "a function defined again": set_global("helper", lambda x: x * x),
            "a default": attribute(inner, "__defaults__", (3.0,)),
            "a keyword default": attribute(inner, "__kwdefaults__", {"plus": 4.0}),
            "code": lambda: setattr(
                inner, "__code__", (lambda x, by=2.0, *, plus=1.0: x - by).__code__
            ),
            "a set": names.clear,
            "a NumPy number": entry(numbers, 0, 3.0),
            "a tensor in a list": entry(weights, 1, tinytorch.tensor([5.0])),
            "one tensor less": lambda: weights.pop(),
            "values of a tensor": lambda: weights[0].mul_(2.0),
            "a variable": rebind,
            "negative zero": negative_zero,
        },
    )


WORLDS: dict[str, Callable[[], World]] = {
    "model": model,
    "SGD": step_of(optim.SGD, lr=0.1, momentum=0.9),
    "AdamW": step_of(optim.AdamW, lr=0.05),
    "values": values,
}
PAIRS = [(name, mutation) for name, make in WORLDS.items() for mutation in make().mutations]


class Twins:
    """A compiled world beside an eager one."""

    def __init__(self, name: str) -> None:
        self.make, self.name = WORLDS[name], name
        self.eager, self.compiled = self.make(), self.make()
        self.call = tinytorch.compile(self.compiled.function)

    def mutate(self, mutation: str) -> None:
        self.eager.mutations[mutation]()
        self.compiled.mutations[mutation]()

    def check(self, grad: bool = True) -> None:
        """Call both, and compare results, gradients and state."""
        with tinytorch.enable_grad() if grad else tinytorch.no_grad():
            try:
                expected = self.run(self.eager, self.eager.function)
            except TinyTorchError as error:  # a step without gradients: neither can
                with pytest.raises(type(error)):
                    self.run(self.compiled, self.call)
                return
            got = self.run(self.compiled, self.call)
        assert len(expected) == len(got)
        for e, g in zip(expected, got, strict=True):
            assert (e is None) == (g is None)
            if e is not None:
                np.testing.assert_allclose(g, e, rtol=2e-5, atol=1e-5)
                assert np.array_equal(np.signbit(g[np.isinf(g)]), np.signbit(e[np.isinf(e)]))

    def run(self, world: World, call: Callable[[Tensor], Tensor]) -> list[Any]:
        out = call(tinytorch.tensor(X))
        needs = out.requires_grad
        found: list[Any] = [out.detach(), tinytorch.tensor(float(needs))]
        if needs:
            out.sum().backward()
        return [None if t is None else t.detach().numpy().copy() for t in [*found, *world.state()]]


@pytest.mark.slow_beyond(7)
@pytest.mark.parametrize("backend", BOTH, indirect=True)
@pytest.mark.parametrize(("name", "mutation"), PAIRS, ids=[f"{a}-{b}" for a, b in PAIRS])
def test_a_change_between_calls_is_noticed(name: str, mutation: str) -> None:
    twins = Twins(name)
    twins.check()
    twins.check()
    twins.mutate(mutation)
    twins.check()
    twins.check()


def combine(name: str, seed: int, length: int) -> None:
    """Mutations and calls in random order, on one compiled function."""
    rng, twins = random.Random(seed), Twins(name)
    history = []
    names = list(twins.eager.mutations)
    for _ in range(length):
        grad = rng.random() < 0.8
        for _ in range(rng.randrange(3)):
            history.append(rng.choice(names))
            twins.mutate(history[-1])
        for _ in range(rng.randrange(1, 4)):
            try:
                twins.check(grad)
            except Exception as error:
                error.add_note(f"{name}, seed {seed}: {history}, gradients {grad}")
                raise


@pytest.mark.slow_beyond(4)
@pytest.mark.parametrize("name", WORLDS)
def test_changes_combined(name: str) -> None:
    combine(name, seed=0, length=4)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(1, 9))
@pytest.mark.parametrize("name", WORLDS)
def test_many_changes_combined(name: str, seed: int) -> None:
    combine(name, seed, length=8)


# -- modes and arguments ---------------------------------------------------------------------------


def test_an_encoder_evaluated_first_still_trains() -> None:
    encoder = linear(3, 2)
    compiled = tinytorch.compile(encoder)
    x = tinytorch.tensor(X)
    with tinytorch.no_grad():
        assert not compiled(x).requires_grad
    for _ in range(2):
        out = compiled(x)
        assert out.requires_grad
        out.sum().backward()
        np.testing.assert_allclose(encoder.weight.grad.numpy(), np.tile(X.sum(0), (2, 1)), 1e-5)
        encoder.zero_grad()
    with tinytorch.no_grad():
        assert not compiled(x).requires_grad
    assert compiled.compiled.reasons == ["first call", "gradients are on, and were not"]


def test_arguments_are_compared_by_what_they_hold() -> None:
    @dataclass
    class Config:
        scale: float
        flags: list[bool] = field(default_factory=lambda: [True])

    def function(x: Tensor, config: Any, sign: float) -> Tensor:
        y = x * config.scale if config.flags[0] else x
        return y + (1.0 / (tinytorch.ones(1) * sign))

    compiled = tinytorch.compile(function)
    x, config = tinytorch.tensor(X), Config(2.0)

    def check(*args: Any) -> None:
        assert np.array_equal(compiled(x, *args).numpy(), function(x, *args).numpy())

    check(config, 0.0)
    check(Config(2.0), 0.0)
    assert len(compiled.reasons) == 1  # equal, though another object
    check(config, -0.0)
    config.scale = 3.0
    check(config, 0.0)
    config.flags[0] = False
    check(config, 0.0)
    assert compiled.reasons[1:] == [
        "argument 2 is -0.0, and was 0.0",
        "argument 1.scale is 3.0, and was 2.0",
        "argument 1.flags[0] is False, and was True",
    ]


def test_nan_is_no_other_number_than_nan() -> None:
    compiled = tinytorch.compile(lambda x, fill: x * fill)
    for _ in range(3):
        assert math.isnan(compiled(tinytorch.ones(1), float("nan")).item())
    assert compiled.reasons == ["first call"]


def test_a_counter_beside_the_function_costs_no_trace() -> None:
    class Trainer:
        def __init__(self) -> None:
            self.steps, self.weight = 0, tinytorch.ones(3)

        @tinytorch.compile
        def step(self, x: Tensor) -> Tensor:
            return x * self.weight

        def fit(self) -> None:
            for _ in range(4):
                self.step(tinytorch.ones(3))
                self.steps += 1

    trainer = Trainer()
    trainer.fit()
    assert trainer.step.reasons == ["first call"] and trainer.steps == 4


def test_live_rates_cost_no_trace_and_rates_that_code_reads_do() -> None:
    for reads in (False, True):
        w = nn.Parameter([1.0, 2.0])
        optimizer = optim.SGD([w], lr=0.1)

        @tinytorch.compile
        def step(x: Tensor, reads: bool = reads, optimizer: Any = optimizer, w: Any = w) -> Any:
            optimizer.zero_grad()
            (x * w).sum().backward()
            optimizer.step()
            return optimizer.param_groups[0]["lr"] if reads else None

        rates = []
        for rate in (0.1, 0.2, 0.3):
            optimizer.param_groups[0]["lr"] = rate
            rates.append(step(tinytorch.ones(2)))
        np.testing.assert_allclose(w.detach().numpy(), [0.4, 1.4], 1e-5)
        assert rates == ([0.1, 0.2, 0.3] if reads else [None] * 3)


# -- what a trace cannot repeat --------------------------------------------------------------------


def refused(function: Callable[[Tensor], Any], message: str) -> None:
    with pytest.raises(TraceError, match=message):
        tinytorch.compile(function)(tinytorch.ones(2, requires_grad=True))


def test_python_effects_are_refused_and_undone() -> None:
    calls: list[int] = []
    counts, seen, plain = {"n": 0}, {1}, Plain()
    number = 0

    def appends(x: Tensor) -> Tensor:
        calls.append(1)
        return x * 2.0

    def counts_in_a_dict(x: Tensor) -> Tensor:
        counts["n"] += 1
        return x * 2.0

    def adds_to_a_set(x: Tensor) -> Tensor:
        seen.add(2)
        return x * 2.0

    def sets_an_attribute(x: Tensor) -> Tensor:
        plain.counter += 1
        plain.new = 1
        return x * 2.0

    def sets_a_variable(x: Tensor) -> Tensor:
        nonlocal number
        number += 1
        return x * 2.0

    def sets_a_global(x: Tensor) -> Tensor:
        global GLOBAL
        GLOBAL += 1.0
        return x * 2.0

    before = GLOBAL
    refused(appends, r"calls\.0 became 1 in the traced function.*; do it outside")
    refused(counts_in_a_dict, r"counts\.n became 1")
    refused(adds_to_a_set, r"seen\.2 became")
    refused(sets_an_attribute, r"plain\.(counter|new) became 1")
    refused(sets_a_variable, r"number became 1")
    refused(sets_a_global, r"GLOBAL became")
    assert (calls, counts, seen, number, GLOBAL) == ([], {"n": 0}, {1}, 0, before)
    assert vars(plain) == vars(Plain())


def test_a_schedule_inside_is_refused_and_undone() -> None:
    w = nn.Parameter([1.0])
    optimizer = optim.SGD([w], lr=0.1)
    schedule = optim.StepLR(optimizer, step_size=1, gamma=0.5)

    def step(x: Tensor) -> None:
        (x * w).sum().backward()
        optimizer.step()
        schedule.step()

    refused(step, r"call scheduler\.step\(\) after the compiled function")
    assert (schedule.last_epoch, optimizer.param_groups[0]["lr"]) == (0, 0.1)


def test_random_numbers_of_others_are_refused() -> None:
    private, numbers = random.Random(0), np.random.default_rng(0)
    states = random.getstate(), np.random.get_state()[1].copy(), private.getstate()
    refused(lambda x: x * random.random(), "drew numbers from Python's random")
    refused(lambda x: x * np.random.rand(), r"drew numbers from np\.random")
    refused(lambda x: x * private.random(), "drew numbers from private")
    refused(lambda x: x * numbers.random(), "drew numbers from numbers")
    assert states[0] == random.getstate() and states[2] == private.getstate()
    assert np.array_equal(states[1], np.random.get_state()[1])
    assert numbers.random() == np.random.default_rng(0).random()


def test_hooks_inside() -> None:
    gradients: list[Any] = []
    w = nn.Parameter([1.0, 2.0])
    handle = w.register_hook(lambda g: gradients.append(g))

    def step(x: Tensor) -> None:
        (x * w).sum().backward()

    refused(step, "gradients.0 was set to a traced tensor")
    handle()
    refused(lambda x: (w.register_hook(lambda g: g), x * w)[1], "register_hook on a leaf")

    def hooked(x: Tensor) -> Tensor:
        y = x * w
        y.register_hook(lambda g: g * 2.0)
        return y * 3.0

    refused(hooked, "register_hook")


def test_seeding_inside_is_refused() -> None:
    def function(x: Tensor) -> Tensor:
        tinytorch.manual_seed(0)
        return x + tinytorch.rand(2)

    refused(function, "manual_seed")


def test_a_result_that_hides_tensors_is_refused() -> None:
    refused(lambda x: SimpleNamespace(loss=x * 2.0), "a tuple, a list or a dict")


def test_functional_calls_are_no_state() -> None:
    compiled = tinytorch.compile(lambda x: F.relu(x))
    assert compiled(tinytorch.ones(2)).tolist() == [1.0, 1.0]


def test_whether_a_gradient_is_there_is_looked_at():
    p = tinytorch.ones(2, requires_grad=True)

    def doubled_or_tripled(x):
        return x * 2.0 if p.grad is None else x * 3.0

    compiled = tinytorch.compile(doubled_or_tripled, mode="python")
    x = tinytorch.ones(2)
    for gradient in (None, tinytorch.ones(2), None, tinytorch.ones(2)):
        p.grad = gradient
        assert compiled(x).tolist() == doubled_or_tripled(x).tolist()
    assert len(compiled.traces) == 2


@pytest.mark.parametrize(
    "change",
    [
        lambda p, optimizer: optimizer.step(),
        lambda p, optimizer: nn.utils.clip_grad_norm_([p], 0.5),
        lambda p, optimizer: optimizer.zero_grad(),
    ],
    ids=["step", "clip", "zero_grad"],
)
@pytest.mark.parametrize("frozen", [False, True])
def test_a_gradient_that_comes_later_is_seen(change, frozen):
    def final(compile):
        p = tinytorch.ones(2, requires_grad=not frozen)
        optimizer = tinytorch.optim.SGD([p], lr=0.5, momentum=0.9)
        step = compile(lambda: change(p, optimizer))
        for gradient in (None, None, tinytorch.ones(2), None, tinytorch.ones(2)):
            p.grad = gradient
            step()
        return p.tolist(), p.grad is None or p.grad.tolist(), len(optimizer.state.get(p, {}))

    assert final(lambda f: tinytorch.compile(f, mode="python")) == final(lambda f: f)


def test_an_argument_that_the_function_also_holds_has_no_pretended_gradient():
    def final(compile):
        holder = SimpleNamespace(w=tinytorch.ones(3, requires_grad=True), x=tinytorch.ones(3))
        optimizer = tinytorch.optim.SGD([holder.w], lr=0.5)

        def step(x):
            loss = (holder.w * x * holder.x).sum()
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            return loss

        run = compile(step)
        return [run(holder.x).item() for _ in range(3)]

    assert final(tinytorch.compile) == final(lambda function: function) == [3.0, 1.5, 0.0]


def test_an_error_that_only_pretended_gradients_have_is_none():
    """The step would write what backward needs, if there were gradients yet."""

    def final(compile):
        net = nn.LayerNorm(2)
        optimizer = tinytorch.optim.SGD(net.parameters(), lr=0.1)

        def step(x):
            out = net(x).relu()
            optimizer.step()
            out.square().mean().backward()
            return out

        return compile(step)(tinytorch.tensor([[1.0, 3.0]])).tolist(), net.weight.grad.tolist()

    assert final(lambda f: tinytorch.compile(f, mode="python")) == final(lambda f: f)


@pytest.mark.parametrize("change", ["fewer parameters", "another group"])
def test_a_step_follows_the_groups_of_its_optimizer(change: str):
    w, b = (tinytorch.ones(2, requires_grad=True) for _ in range(2))
    optimizer = optim.SGD([w, b], lr=0.25)

    @tinytorch.compile
    def step(x: Tensor) -> None:
        optimizer.zero_grad()
        (w * x + b).sum().backward()
        optimizer.step()

    for _ in range(3):
        step(tinytorch.ones(2))
    group = optimizer.param_groups[0]
    if change == "fewer parameters":
        group["params"].pop(0)
        step(tinytorch.ones(2))
        assert w.tolist() == [0.25, 0.25] and b.tolist() == [0.0, 0.0]
    else:
        optimizer.param_groups[0] = {**group, "weight_decay": 1.0}
        step(tinytorch.ones(2))
        assert w.tolist() == b.tolist() == [-0.0625, -0.0625]
