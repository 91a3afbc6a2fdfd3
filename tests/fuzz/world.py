"""The tensors of a random program, and running it in them, eager or compiled."""

from __future__ import annotations

import linecache
import re
from collections.abc import Callable, Sequence
from itertools import count
from typing import TYPE_CHECKING, Any

import numpy as np

import tinytorch
from tinytorch import nn, no_grad, optim
from tinytorch.autograd import grad
from tinytorch.dtypes import Array
from tinytorch.nn import functional as F
from tinytorch.tensor import Tensor

if TYPE_CHECKING:
    from tests.fuzz.programs import Program

Mutation = Callable[["World"], None]
_numbers = count()


class World:
    """Fresh tensors for a program, and its function `step` over them.

    Args:
        perturbation: relative size of a random change of all floats that the program starts from.
        options: of `tinytorch.compile`; None runs the function itself.

    Attributes:
        names: the globals of the program.
        step: the function to call.
    """

    def __init__(
        self,
        program: Program,
        options: dict[str, Any] | None = None,
        perturbation: float = 0.0,
        seed: int = 0,
    ) -> None:
        self._rng = np.random.default_rng(seed)
        self._perturbation = perturbation
        self.program = program
        self.names: dict[str, Any] = {
            "__name__": "fuzz", "tinytorch": tinytorch, "nn": nn, "F": F, "optim": optim,
            "no_grad": no_grad,
        }  # fmt: skip
        for name, array in program.state.items():
            self.names[name] = self._tensor(array, requires_grad=name.startswith("p"))
        self.parameters = [self.names[n] for n in program.state if n.startswith("p")]
        self.names["parameters"] = self.parameters
        if program.optimizer:
            self.names["optimizer"] = eval(program.optimizer, self.names)
        filename = f"<fuzz {next(_numbers)}>"
        exec(compile(program.source, filename, "exec"), self.names)
        linecache.cache[filename] = (0, None, program.source.splitlines(True), filename)
        self._filename = filename
        self.step: Callable[..., Any] = self.names["step"]
        if options is not None:
            self.step = tinytorch.compile(self.step, **options)

    def __del__(self) -> None:
        linecache.cache.pop(getattr(self, "_filename", ""), None)

    def _tensor(self, array: Array, requires_grad: bool = False) -> Tensor:
        array = array.copy()
        if self._perturbation and array.dtype.kind == "f":
            noise = self._rng.standard_normal(array.shape)
            array = np.asarray(array * (1 + self._perturbation * noise)).astype(array.dtype)
        return tinytorch.tensor(array, requires_grad=requires_grad)

    def arguments(self, call: int) -> list[Tensor]:
        """The arguments of one call; several may be one tensor, or views of it."""
        made = {name: self._tensor(array) for name, array in self.program.arguments[call].items()}
        return [eval(text, dict(made)) for text in self.program.passed.values()]

    @property
    def returns_history(self) -> bool:
        """Results can be differentiated, as in eager mode: where the function computes gradients
        itself, or overwrites a leaf, compiled ones are documented to be values alone.
        """
        if not re.search(r"backward\(\)|step\(\)|_\(", self.program.source):
            return True
        traces = getattr(self.step, "traces", ())
        return all(trace.signature.differentiable for trace in traces)

    def calls(
        self, program: Program, mutations: Sequence[Mutation | None] = ()
    ) -> list[dict[str, Any]]:
        """What each call leaves: results, arguments, state, gradients, moments of the optimizer.

        Args:
            mutations: what to do before each call but the first; None for nothing.
        """
        found = []
        for i in range(len(program.arguments)):
            if 0 < i <= len(mutations) and (mutation := mutations[i - 1]) is not None:
                mutation(self)
            found.append(self._call(i))
        return found

    def _call(self, number: int) -> dict[str, Any]:
        given = self.arguments(number)
        result = self.step(*given)
        results = result if isinstance(result, tuple) else () if result is None else (result,)
        left: dict[str, Any] = {}
        inputs = {id(t): name for t, name in zip(given, self.program.passed, strict=True)}
        inputs |= {id(self.names[name]): name for name in self.program.state}
        for i, value in enumerate(results):
            left[f"result {i}"] = value.detach().numpy().copy()
            left[f"result {i} is"] = inputs.get(id(value))
            left[f"result {i} requires grad"] = value.requires_grad
        for name, tensor in zip(self.program.passed, given, strict=True):
            left[f"argument {name}"] = tensor.numpy().copy()
        self._note_state(left)
        wanted = [r for r in results if r.requires_grad]
        if wanted and self.parameters:
            total = sum((r * 0.5).sum() for r in wanted)
            assert isinstance(total, Tensor)
            found = grad(total, self.parameters, allow_unused=True)
            for i, g in enumerate(found):
                left[f"outer gradient {i}"] = None if g is None else g.numpy().copy()
        return left

    def _note_state(self, left: dict[str, Any]) -> None:
        for name in self.program.state:
            tensor = self.names[name]
            left[name] = tensor.detach().numpy().copy()
            gradient = tensor.grad
            left[f"{name}.grad"] = None if gradient is None else gradient.numpy().copy()
        if "optimizer" in self.names:
            for i, p in enumerate(self.parameters):
                for key, value in self.names["optimizer"].state.get(p, {}).items():
                    value = value.numpy().copy() if isinstance(value, Tensor) else value
                    left[f"optimizer.{i}.{key}"] = value
