"""Random well-formed programs over the op table, as functions of tensors."""

from __future__ import annotations

from collections.abc import Callable
from random import Random
from typing import Any

import numpy as np

import tinytorch
from tinytorch import autograd
from tinytorch.errors import DTypeError, ShapeError
from tinytorch.op import OPS
from tinytorch.tensor import Tensor

Step = tuple[str, tuple[Any, ...], dict[str, Any]]
ELEMENTWISE = [op for op in OPS.values() if op.kind == "elementwise"]
# Integer arithmetic is undefined by zero, and differs at infinity.
SKIPPED = {"floor_divide", "remainder"}
SHAPES = ((), (3,), (1, 3), (2, 3), (3, 2), (2, 1, 3))


class Program:
    """Ops applied to inputs and to earlier results, the last few of which are returned.

    Attributes:
        inputs: arrays to run it on.
        steps: name of an op, operands (positions of values, or numbers), parameters.
    """

    def __init__(self, seed: int, length: int = 12) -> None:
        self.random = Random(seed)
        self.rng = np.random.default_rng(seed)
        shapes = [self.random.choice(SHAPES) for _ in range(3)]
        self.inputs = [self.rng.standard_normal(s).astype(np.float32) for s in shapes]
        self.steps: list[Step] = []
        values = [Tensor(x) for x in self.inputs]
        while len(self.steps) < length:
            step = self._draw(values)
            try:
                values.append(self._apply(step, values))
            except (ShapeError, DTypeError):
                continue
            self.steps.append(step)
        self.results = [*self.random.sample(range(len(values)), 2), len(values) - 1]

    # -- drawing -----------------------------------------------------------------------------------

    def _draw(self, values: list[Tensor]) -> Step:
        kind = self.random.choice(["elementwise"] * 5 + ["reduction", "movement", "other"])
        return getattr(self, f"_{kind}")(values)

    def _pick(self, values: list[Tensor]) -> int:
        return self.random.choice([self.random.randrange(len(values)), len(values) - 1])

    def _operand(self, values: list[Tensor]) -> Any:
        if self.random.random() < 0.25:
            return self.random.choice([0.0, 1.0, 2.0, -1.0, 0.5, 3.0, 1, 2])
        return (self._pick(values),)

    def _elementwise(self, values: list[Tensor]) -> Step:
        op = self.random.choice([op for op in ELEMENTWISE if op.name not in SKIPPED])
        operands = [self._operand(values) for _ in op.inputs]
        for i in range(len(operands) - 1 or 1):  # a number alone does not say its dtype
            operands[i] = (self._pick(values),)
        return op.name, tuple(operands), {}

    def _reduction(self, values: list[Tensor]) -> Step:
        i = self._pick(values)
        dims = tuple(d for d in range(values[i].ndim) if self.random.random() < 0.5)
        params = {"dims": dims, "keepdim": self.random.random() < 0.5}
        return self.random.choice(["sum", "sum", "amax", "amin"]), ((i,),), params

    def _movement(self, values: list[Tensor]) -> Step:
        i = self._pick(values)
        shape = values[i].shape
        name = self.random.choice(["reshape", "permute", "expand", "slice", "copy", "detach"])
        if name == "reshape":
            return name, ((i,),), {"shape": (1, *shape) if len(shape) < 4 else shape}
        if name == "permute":
            return name, ((i,),), {"dims": tuple(self.random.sample(range(len(shape)), len(shape)))}
        if name == "expand":
            wide = tuple(self.random.choice([2, 3]) if n == 1 else n for n in shape)
            return name, ((i,),), {"shape": wide}
        if name == "slice":
            bounds = tuple((self.random.choice([0, n // 2]), n, 1) for n in shape)
            return name, ((i,),), {"bounds": bounds}
        return name, ((i,),), {}

    def _other(self, values: list[Tensor]) -> Step:
        i, j = self._pick(values), self._pick(values)
        dim = max(values[i].ndim - 1, 0)
        return self.random.choice(
            [
                ("matmul", ((i,), (j,)), {}),
                ("softmax", ((i,),), {"dim": dim}),
                ("log_softmax", ((i,),), {"dim": dim}),
                ("gelu", ((i,),), {"approximate": "tanh"}),
                ("cat", ((i,), (i,)), {"dim": 0}) if values[i].ndim else ("exp", ((i,),), {}),
                ("full", (), {"shape": (3,), "value": 0.5, "dtype": tinytorch.float32}),
                ("cast", ((i,),), {"dtype": tinytorch.float32}),
            ]
        )

    # -- running -----------------------------------------------------------------------------------

    def _apply(self, step: Step, values: list[Tensor]) -> Tensor:
        name, operands, params = step
        args = [values[o[0]] if isinstance(o, tuple) else o for o in operands]
        return tinytorch.apply(OPS[name], *args, **params)

    def __call__(self, *inputs: Tensor) -> list[Tensor]:
        values = list(inputs)
        for step in self.steps:
            values.append(self._apply(step, values))
        return [values[i] for i in self.results]

    def with_backward(self) -> Callable[..., Any]:
        """The program, and the gradients of the sum of its results."""

        def function(*inputs: Tensor) -> Any:
            results = self(*inputs)
            floats = [r.sum() for r in results if r.requires_grad]
            grads = autograd.grad(floats, inputs, allow_unused=True) if floats else ()
            return [r.detach() for r in results], list(grads)

        return function
