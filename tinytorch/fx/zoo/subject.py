"""A model of the zoo with its inputs, and what eager PyTorch makes of it."""

from __future__ import annotations

import copy
import random
import re
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from functools import cached_property, partial
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.utils._pytree import tree_leaves, tree_map

from tinytorch.fx.models import call, squares_loss, tensors_of
from tinytorch.fx.optimize.verify import other_values
from tinytorch.fx.zoo.float64 import doubled, in_float64

SEED = 1
NEARBY = 6  # runs of eager's on inputs that differ in the last bit
ELSEWHERE = 6  # batches with other values, on which what seems wrong is tried again
SIZES = re.compile(r"(^|_)(grid|sizes)(_|$)")  # in the name of an input


def seed(number: int = SEED) -> None:
    """Seed every generator that a model may use."""
    torch.manual_seed(number)
    np.random.seed(number)
    random.seed(number)


@dataclass
class Subject:
    """A model under examination.

    Attributes:
        name: in the catalogue.
        model: whose parameters and buffers are put back after each stage.
        inputs: keyword arguments.
    """

    name: str
    model: nn.Module
    inputs: dict[str, Any]

    def __post_init__(self) -> None:
        self._state = {k: v.detach().clone() for k, v in _tensors(self.model).items()}

    def reset(self, model: nn.Module | None = None) -> None:
        """Put parameters and buffers back, without gradients, in evaluation mode.

        Args:
            model: a copy of the model, by default itself.
        """
        model = self.model if model is None else model
        model.eval()
        model.zero_grad()
        with torch.no_grad():
            for name, tensor in _tensors(model).items():
                if not tensor.equal(self._state[name]):  # a frozen module refuses what was written
                    tensor.copy_(self._state[name])

    @cached_property
    def batches(self) -> list[dict[str, Any]]:
        """The example, and two batches like it with other values."""
        return [self.inputs, *(self.like(self.inputs, i) for i in (1, 2))]

    @cached_property
    def constants(self) -> list[str]:
        """The inputs that say sizes: they are constants of a capture."""
        return [n for n, x in self.inputs.items() if SIZES.search(n) and not x.is_floating_point()]

    def like(self, batch: dict[str, Any], number: int) -> dict[str, Any]:
        """A batch with other values; integers stay where the model takes no others for them."""
        other: dict[str, Any] = other_values(batch, number) | {n: batch[n] for n in self.constants}
        try:
            outputs(self.model, other)
        except Exception:  # they may be sizes
            return {k: other[k] if v.is_floating_point() else v for k, v in batch.items()}
        finally:
            self.reset()
        return other

    @cached_property
    def why_not_training(self) -> str:
        """Why training mode cannot be compared; empty where it can."""
        found = []
        for number in (1, 2):
            self.reset()
            seed(SEED)
            np.random.seed(number)
            random.seed(number)
            try:
                found.append(tensors_of(call(self.model.train(), self.inputs)))
            except Exception as error:  # a model may raise anything
                return f"it does not run in training mode: {type(error).__name__}: {error}"
            finally:
                self.reset()
        if len(found[0]) == len(found[1]) and all(map(torch.equal, *found)):
            return ""
        return "in training mode it asks other generators than torch's"

    @cached_property
    def why_no_gradients(self) -> str:
        """Why eager itself has no gradients in evaluation mode; empty where it has."""
        self.reset()
        try:
            gradients(self.model, self.inputs)
        except Exception as error:  # a model may raise anything
            return f"it has no gradients in evaluation mode: {type(error).__name__}: {error}"
        finally:
            self.reset()
        return ""

    @cached_property
    def exact(self) -> nn.Module | None:
        """The model in float64; None where there is none."""
        self.reset()
        with suppress(Exception):  # a model may insist on float32
            model = copy.deepcopy(self.model).double().eval()
            with torch.no_grad(), in_float64():
                results = tensors_of(call(model, doubled(self.inputs)))
            floats = [x for x in results if x.is_floating_point()]
            if all(x.dtype == torch.float64 for x in floats):
                return model
        return None

    def in_float64(
        self, ask: Callable[[nn.Module, Any], list[Tensor | None]], batch: Any, training: bool
    ) -> list[Tensor | None] | None:
        """What `ask` says of the model in float64; None where there is none."""
        if self.exact is None:
            return None
        self.reset(self.exact)
        with suppress(Exception), in_float64():
            return ask(self.exact.train(training), doubled(batch))
        return None

    def nearby(
        self, ask: Callable[[nn.Module, Any], list[Tensor | None]], batch: Any, training: bool
    ) -> Iterator[list[Tensor | None]]:
        """What `ask` says of the model on inputs that differ from the batch's in the last bit; if
        none of them are floats, of the model with parameters that do."""
        has_floats = any(_is_float(x) for x in tree_leaves(batch))
        for number in range(NEARBY):
            shaken = partial(_shaken, torch.Generator().manual_seed(number))
            self.reset()
            if not has_floats:
                with torch.no_grad():
                    for parameter in self.model.parameters():
                        parameter.copy_(shaken(parameter))
            yield ask(self.model.train(training), tree_map(shaken, batch))
            self.reset()


def _is_float(x: Any) -> bool:
    return isinstance(x, Tensor) and x.is_floating_point()


def _shaken(generator: torch.Generator, x: Any) -> Any:
    """Each value is the next larger or smaller one of its dtype; what is no float stays."""
    if not _is_float(x):
        return x
    up = torch.rand(x.shape, generator=generator) < 0.5
    towards = torch.where(up, torch.inf, -torch.inf).to(x.dtype)
    return torch.nextafter(x, towards) if x.dtype in (torch.float32, torch.float64) else x


def _tensors(model: nn.Module) -> dict[str, Tensor]:
    return {**dict(model.named_parameters()), **dict(model.named_buffers())}


def outputs(model: nn.Module, batch: Any) -> list[Tensor | None]:
    """Copies of a model's results: a later call may write into the same memory."""
    seed()
    with torch.no_grad():
        return [x.clone() for x in tensors_of(call(model, batch))]


def gradients(model: nn.Module, batch: Any) -> list[Tensor | None]:
    """The loss and the gradients of all parameters, by autograd."""
    model.zero_grad()
    seed()
    loss = squares_loss(model, batch)
    if loss.requires_grad:
        loss.backward()  # type: ignore[no-untyped-call]
    found = [None if p.grad is None else p.grad.clone() for p in model.parameters()]
    model.zero_grad()
    return [loss.detach(), *found]
