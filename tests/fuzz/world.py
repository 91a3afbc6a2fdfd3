"""What a random program works on, and running it there, eager or compiled."""

from __future__ import annotations

import linecache
import re
from collections.abc import Callable
from itertools import count
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import numpy as np

import tinytorch
from tinytorch import nn, no_grad, optim
from tinytorch.autograd import grad
from tinytorch.dtypes import Array
from tinytorch.nn import functional as F
from tinytorch.state import grad_mode, using_backend
from tinytorch.tensor import Tensor

if TYPE_CHECKING:
    from tests.fuzz.programs import Program

HELPERS = """
def helper(x):
    return x * 1.25

def doubled(module, arguments, result):
    return result * 2.0

def shifted(module, arguments):
    return tuple(a + 0.5 for a in arguments)
"""
_numbers = count()


class World:
    """Fresh tensors and layers for a program, and its function `step` over them.

    Args:
        perturbation: relative size of a random change of all floats that the program starts from.
        options: of `tinytorch.compile`; None runs the function itself.

    Attributes:
        names: the globals of the program.
        grad: whether calls record gradients.
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
            "no_grad": no_grad, "options": {"scale": 1.5, "shift": -0.5}, "numbers": [0.5, 2.0],
            "config": SimpleNamespace(scale=0.75, flag=True), "handles": [], "net": nn.Module(),
        }  # fmt: skip
        self.grad = True
        exec(HELPERS, self.names)
        for name, array in program.state.items():
            self.names[name] = self._tensor(array, requires_grad=name.startswith("p"))
        tinytorch.manual_seed(0)
        for name, layer in program.layers.items():
            setattr(self.names["net"], name, eval(layer, self.names))
        for p in self.names["net"].parameters():
            p.data = self._tensor(p.detach().numpy())
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

    @property
    def parameters(self) -> list[Tensor]:
        """The program's own, and those of its layers."""
        own = [self.names[name] for name in self.program.state if name.startswith("p")]
        return [*own, *self.names["net"].parameters()]

    def calls(self, program: Program) -> list[dict[str, Any]]:
        """What each call leaves: results, arguments, state, gradients, moments of the optimizer.

        Before each call but the first the world changes as the program's mutations say.
        """
        found = []
        for i in range(len(program.arguments)):
            tinytorch.manual_seed(i)
            for text in program.mutations[i - 1] if 0 < i <= len(program.mutations) else ():
                exec(text, {"world": self} if text.startswith("world.") else self.names)
            with grad_mode(self.grad):
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
            left[f"argument {name}"] = tensor.detach().numpy().copy()
        self._note_state(left)
        wanted = [r for r in results if r.requires_grad]
        leaves = [p for p in self.parameters if p.requires_grad]
        if wanted and leaves:
            total = sum((r * 0.5).sum() for r in wanted)
            assert isinstance(total, Tensor)
            found = grad(total, leaves, allow_unused=True)
            for i, g in enumerate(found):
                left[f"outer gradient {i}"] = None if g is None else g.numpy().copy()
        return left

    def _note_state(self, left: dict[str, Any]) -> None:
        net = self.names["net"]
        held = {name: self.names[name] for name in self.program.state}
        held |= {f"net.{name}": t for name, t in (*net.named_parameters(), *net.named_buffers())}
        for name, tensor in held.items():
            left[name] = tensor.detach().numpy().copy()
            gradient = tensor.grad
            left[f"{name}.grad"] = None if gradient is None else gradient.detach().numpy().copy()
        if "optimizer" in self.names:
            optimizer = self.names["optimizer"]
            params = [p for group in optimizer.param_groups for p in group["params"]]
            for i, p in enumerate(params):
                for key, value in optimizer.state.get(p, {}).items():
                    value = value.numpy().copy() if isinstance(value, Tensor) else value
                    left[f"optimizer.{i}.{key}"] = value


def runs(program: Program) -> bool:
    """Whether eager mode runs all calls of it."""
    try:
        with using_backend("numpy"), np.errstate(all="ignore"):
            World(program).calls(program)
    except Exception:
        return False
    return True
