"""Models that tracers trip over: each does in its forward one thing that a graph may get wrong."""

from __future__ import annotations

import math
import random
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional


class Base(nn.Module):
    """What the models share: a layer, a dropout, state in Python and in a buffer."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(4, 4)
        self.dropout = nn.Dropout(0.5)
        self.calls = 0
        self.seen: list[int] = []
        self.cache: dict[str, Tensor] = {}
        self.register_buffer("count", torch.zeros(()))


@dataclass
class Awkward:
    """A model of the catalogue.

    Attributes:
        make: a fresh model; weights depend on torch's seed.
        inputs: an example.
        traps: other inputs, on which a graph that keeps what it saw in the trace is wrong.
    """

    name: str
    make: Callable[[], nn.Module]
    inputs: tuple[Tensor, ...]
    traps: list[tuple[Tensor, ...]]


CATALOGUE: dict[str, Awkward] = {}


def _positive(rows: int) -> Tensor:
    return torch.linspace(0.1, 2.0, rows * 4).reshape(rows, 4)


def awkward(
    inputs: tuple[Tensor, ...] | None = None,
    traps: list[tuple[Tensor, ...]] | None = None,
    training: bool = False,
    make: Callable[[type], nn.Module] | None = None,
) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Put a forward into the catalogue, as a model of its name."""

    def register(forward: Callable[..., Any]) -> Callable[..., Any]:
        kind = type(forward.__name__, (Base,), {"forward": forward})

        def fresh() -> nn.Module:
            torch.manual_seed(0)
            return (make(kind) if make else kind()).train(training)

        CATALOGUE[forward.__name__] = Awkward(
            forward.__name__,
            fresh,
            inputs or (_positive(3),),
            traps or [(-_positive(3),), (-_positive(5),), (5 * _positive(3),)],
        )
        return forward

    return register


# -- control flow ----------------------------------------------------------------------------------


@awkward()
def if_value(self, x):
    if x.sum() > 0:
        return self.layer(x)
    return -self.layer(x)


@awkward()
def if_shape(self, x):
    if x.shape[0] > 4:
        return self.layer(x)
    return -self.layer(x)


@awkward()
def while_value(self, x):
    while x.abs().max() > 0.1:
        x = x / 2
    return self.layer(x)


@awkward()
def for_range_shape(self, x):
    y = 0
    for i in range(x.shape[0]):
        y = y + x[i]
    return y


@awkward()
def iterate_tensor(self, x):
    return sum(row * 2 for row in x)


@awkward()
def early_return(self, x):
    if bool((x < 0).any()):
        return x
    return self.layer(x)


@awkward()
def ternary_on_mean(self, x):
    return self.layer(x) * (2.0 if x.mean() > 1 else 3.0)


@awkward()
def assert_value(self, x):
    assert not torch.isnan(x).any()
    return self.layer(x)


@awkward()
def try_except(self, x):
    try:
        return self.layer(x) * (1 / int(x.shape[0] > 4))
    except ZeroDivisionError:
        return x


@awkward()
def min_of_shape(self, x):
    return self.layer(x)[: min(x.shape[0], 4)]


@awkward()
def isinstance_tensor(self, x):
    return self.layer(x) if isinstance(x, Tensor) else self.layer(x["a"])


# -- values that become Python numbers -------------------------------------------------------------


@awkward()
def item(self, x):
    return x * x.sum().item()


@awkward()
def int_cast(self, x):
    return x[: int(x.abs().max()) + 1] * 2


@awkward()
def len_tensor(self, x):
    return self.layer(x) / len(x)


@awkward()
def format_value(self, x):
    y = self.layer(x)
    _ = f"{float(y.mean()):.3f}"
    return y


@awkward()
def numpy_roundtrip(self, x):
    return self.layer(torch.from_numpy(np.tanh(x.detach().numpy())))


@awkward()
def tolist(self, x):
    return self.layer(x) + len([v for v in x.sum(1).tolist() if v > 0])


@awkward()
def math_on_value(self, x):
    return self.layer(x) * math.exp(-float(x.mean().abs()))


# -- state -----------------------------------------------------------------------------------------


@awkward()
def attribute_counter(self, x):
    self.calls += 1
    return self.layer(x) * self.calls


@awkward()
def list_state(self, x):
    self.seen.append(1)
    return self.layer(x) + len(self.seen)


@awkward()
def dict_cache(self, x):
    if "mean" not in self.cache:
        self.cache["mean"] = x.detach().mean()
    return self.layer(x) - self.cache["mean"]


@awkward()
def buffer_in_place(self, x):
    self.count.add_(1)
    return self.layer(x) * self.count


@awkward()
def buffer_assigned(self, x):
    self.count = self.count + x.detach().mean()
    return self.layer(x) * self.count


SCALES = [1.0]


@awkward()
def closure_over_list(self, x):
    SCALES.append(SCALES[-1] + 1)
    return self.layer(x) * SCALES[-1]


@awkward()
def clock(self, x):
    return self.layer(x) * (1e3 * time.time() % 7)


@awkward()
def python_random(self, x):
    return self.layer(x) * random.random()


@awkward()
def numpy_random(self, x):
    return self.layer(x) * float(np.random.rand())


@awkward(training=True)
def dropout_in_training(self, x):
    return self.dropout(self.layer(x))


@awkward(training=True)
def training_flag(self, x):
    return functional.dropout(self.layer(x), 0.5, self.training) if self.training else x


class _Normed(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layer, self.norm = nn.Linear(4, 4), nn.BatchNorm1d(4)

    def forward(self, x: Tensor) -> Any:
        return self.norm(self.layer(x))


@awkward(training=True, make=lambda kind: _Normed())
def batch_norm_in_training(self, x):
    raise AssertionError("another class takes the place of this one")


# -- masks and dynamic shapes ----------------------------------------------------------------------


@awkward()
def boolean_index(self, x):
    return x[x > 0.5].sum()


@awkward()
def boolean_assignment(self, x):
    y = x.clone()
    y[y > 0.5] = 0
    return self.layer(y)


MASKED = (_positive(3), torch.tensor([1, 1, 1]))
MASK_TRAPS = [(_positive(3), torch.tensor([1, 0, 1])), (-_positive(3), torch.tensor([0, 1, 0]))]


@awkward(MASKED, MASK_TRAPS)
def mask_shortcut(self, x, mask):
    if mask.all():
        return self.layer(x)
    return self.layer(x) * mask[:, None]


@awkward()
def nonzero_count(self, x):
    return self.layer(x) * (x > 0.5).nonzero().shape[0]


@awkward()
def zeros_of_shape(self, x):
    return self.layer(x) + torch.zeros(x.shape[0], 4)


@awkward()
def arange_of_size(self, x):
    return self.layer(x) + torch.arange(x.size(0)).unsqueeze(1)


@awkward()
def view_with_numbers(self, x):
    return self.layer(x).view(x.shape[0] * 2, 2)


@awkward()
def divide_by_batch(self, x):
    return self.layer(x).sum(0) / x.shape[0]


# -- calling conventions ---------------------------------------------------------------------------


@awkward()
def star_arguments(self, *xs):
    return self.layer(xs[0])


@awkward()
def keyword_arguments(self, x, **options):
    return self.layer(x) * options.get("scale", 1)


@awkward()
def dict_output(self, x):
    return {"a": self.layer(x), "b": x.mean()}


@awkward()
def nested_output(self, x):
    return [self.layer(x), (x.mean(), None)]


@awkward()
def list_of_modules(self, x):
    return torch.stack([self.layer(x) for _ in range(3)]).sum(0)


# -- autograd --------------------------------------------------------------------------------------


@awkward()
def no_grad_region(self, x):
    with torch.no_grad():
        y = self.layer(x)
    return y * x


@awkward()
def detached_branch(self, x):
    return self.layer(x).detach() * x


@awkward()
def data_attribute(self, x):
    return self.layer(x).data * x


class _Exp(torch.autograd.Function):
    """exp, with a gradient that is wrong on purpose."""

    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        return x.exp()

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> Tensor:
        return gradient * 2


@awkward()
def custom_function(self, x):
    return _Exp.apply(self.layer(x))


@awkward()
def gradient_inside(self, x):
    with torch.enable_grad():
        z = x.detach().requires_grad_()
        (slope,) = torch.autograd.grad(z.pow(3).sum(), z)
    return self.layer(x) * slope


@awkward()
def gradient_hook_on_tensor(self, x):
    y = self.layer(x)
    if y.requires_grad:
        y.register_hook(lambda g: g * 3)
    return y * 2


def _hooked(kind: type) -> nn.Module:
    model = kind()
    model.layer.register_forward_hook(lambda module, args, output: output * 2)
    return model


@awkward(make=_hooked)
def forward_hook(self, x):
    return self.layer(x)


def _backward_hooked(kind: type) -> nn.Module:
    model = kind()
    model.layer.register_full_backward_hook(lambda module, to_in, to_out: (to_in[0] * 5,))
    return model


@awkward(make=_backward_hooked)
def backward_hook(self, x):
    return self.layer(x * 2)


def _counting(kind: type) -> nn.Module:
    model = kind()

    def count(module: nn.Module, args: Any, output: Tensor) -> Tensor:
        model.calls += 1
        return output * model.calls

    model.layer.register_forward_hook(count)
    return model


@awkward(make=_counting)
def hook_with_state(self, x):
    return self.layer(x)


# -- writing in place ------------------------------------------------------------------------------


@awkward()
def input_in_place(self, x):
    x.add_(1)
    return self.layer(x)


@awkward()
def set_column(self, x):
    y = torch.zeros_like(x)
    y[:, 0] = x[:, 1]
    return y * 2


@awkward()
def write_through_view(self, x):
    y = x.clone()
    y.t()[0].mul_(3)
    return self.layer(y)


# -- constants -------------------------------------------------------------------------------------


@awkward()
def tensor_from_python(self, x):
    return self.layer(x) * torch.tensor([1.0, 2.0, 3.0, 4.0])


@awkward()
def tensor_from_value(self, x):
    return self.layer(x) * torch.tensor(float(x.max()))
