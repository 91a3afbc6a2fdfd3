"""Functions with something that they read, ways to change that, and each one twice."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

import tinytorch
from tinytorch import nn, optim
from tinytorch.errors import TinyTorchError
from tinytorch.tensor import Tensor

X = np.array([[1.0, -2.0, 3.0], [0.5, 0.25, -1.0]], np.float32)


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

        handles: list[Any] = []

        def shrink(*_: Any) -> None:
            with tinytorch.no_grad():
                net[2].bias.mul_(0.5)

        def without_hook() -> None:
            if handles:
                handles.pop().remove()

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
                "a hook before the step": lambda: handles.append(
                    optimizer.register_step_pre_hook(shrink)
                ),
                "a hook after the step": lambda: handles.append(
                    optimizer.register_step_post_hook(shrink)
                ),
                "no hook": without_hook,
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
