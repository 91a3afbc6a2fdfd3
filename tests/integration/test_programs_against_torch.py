"""Random programs give what PyTorch gives, on every backend, and compiled.

A program is text that means the same to both libraries: movement, elementwise ops, comparisons,
reductions and products of tensors of float32, int64 and bool, of random shapes. (That compiled code
does what eager code does is held for more ops, with gradients, in `graph` and `fuzz`.)
"""

from __future__ import annotations

from math import prod
from random import Random
from typing import Any

import numpy as np
import pytest
import torch

import tinytorch
from tinytorch.state import using_backend

UNARY = ("-{x}", "{x}.abs()", "{x}.square()", "{x}.sign()", "{x}.clone()")
OF_FLOATS = (
    *("{x}.tanh()", "{x}.sigmoid()", "{x}.relu()", "{x}.exp().clamp(max=9)"),
    *("{x}.softmax(0)", "{x}.log_softmax(-1)"),
)
BINARY = (
    *("{x} + {y}", "{x} - {y}", "{x} * {y}", "L.maximum({x}, {y})", "L.minimum({x}, {y})"),
    *("{x} < {y}", "{x} == {y}", "{x} >= {y}", "L.where({x} > {y}, {x}, {y})"),
)
OF_NUMBERS = ("{x}.clamp(-1, 2)", "{x}.floor()", "L.sqrt({x}.abs())")  # clamp refuses bool
OF_BOOLS = ("~{x}", "{x} & {y}", "{x} | {y}", "{x} ^ {y}")
NUMBERS = ("{x} + 1", "2 * {x}", "{x} * 0.5", "3 - {x}", "{x} / 4", "{x} < 1", "{x} != 0")
REDUCTIONS = ("sum", "amax", "amin", "mean", "any", "argmax", "prod")
SHAPES = ((3, 4), (4,), (2, 3, 4), (1, 4), (3, 1), (), (2, 0), (1,), (4, 3), (5, 1, 2))


class Program:
    """Statements that each make a value of earlier ones, and the values that are compared.

    Attributes:
        inputs: arrays a0, a1, ... that it starts from.
        text: a function of them, `step(L, a0, a1, ...)`, where L is a library.
    """

    def __init__(self, seed: int, length: int = 10) -> None:
        self.random, rng = Random(seed), np.random.default_rng(seed)
        shapes = [self.random.choice(SHAPES) for _ in range(4)]
        self.inputs = [
            rng.standard_normal(shapes[0]).astype(np.float32),
            rng.integers(-3, 4, shapes[1]),
            rng.standard_normal(shapes[2]) > 0,
            rng.standard_normal(shapes[3]).astype(np.float32),
        ]
        names = [f"a{i}" for i in range(4)]
        self.values = {n: torch.tensor(x) for n, x in zip(names, self.inputs, strict=True)}
        lines: list[str] = []
        while len(lines) < length:
            name, expression = f"v{len(lines)}", self._draw()
            try:
                value = eval(expression, {"L": torch}, self.values)
            except (RuntimeError, IndexError, TypeError):  # no program for PyTorch either
                continue
            if value.numel() > 200 or (value.dtype.is_floating_point and not _is_tame(value)):
                continue
            self.values[name] = value
            lines.append(f"    {name} = {expression}")
        made = [f"v{i}" for i in range(length)]
        body = "\n".join([*lines, f"    return [{', '.join(made)}]"])
        self.text = f"def step(L, {', '.join(names)}):\n{body}\n"
        self.expected = [self.values[name] for name in made]

    def function(self) -> Any:
        scope: dict[str, Any] = {}
        exec(self.text, scope)
        return scope["step"]

    # -- drawing -----------------------------------------------------------------------------------

    def _pick(self) -> str:
        names = list(self.values)
        return self.random.choice([*names, *names[-3:]])  # what is new more often

    def _draw(self) -> str:
        x, y, draw = self._pick(), self._pick(), self.random.choice
        dtype = self.values[x].dtype
        kind = draw((*("binary", "movement") * 2, "unary", "number", "reduce", "other"))
        if kind == "movement":
            return self._movement(x)
        if kind == "reduce":
            return self._reduction(x)
        if kind == "other":
            # of bool it is refused; of two dtypes PyTorch refuses it, unless both are empty
            multiplies = dtype == self.values[y].dtype != torch.bool
            product = f"{x} @ {y}" if multiplies else f"{x}.float()"
            return draw((product, f"L.cat([{x}, {y}])", f"L.stack([{x}, {x}])", f"{x}.float()"))
        table = {"unary": UNARY, "binary": BINARY, "number": NUMBERS}[kind]
        if kind == "unary" and dtype != torch.bool:
            table += OF_NUMBERS
        if kind == "unary" and dtype == torch.float32:
            table += OF_FLOATS
        if kind == "binary" and dtype == self.values[y].dtype == torch.bool:
            table += OF_BOOLS
        return draw(table).format(x=x, y=y)

    def _movement(self, x: str) -> str:
        shape, draw = tuple(self.values[x].shape), self.random.choice
        dims = self.random.sample(range(len(shape)), len(shape))
        wide = tuple(n if n != 1 else draw((1, 2, 3)) for n in shape)
        cuts = ", ".join(draw((":", "1:", ":-1", "::2", "None, :", "0", "-1")) for _ in shape)
        return draw(
            (
                f"{x}.permute({dims})",
                f"{x}.reshape({(1, *shape)})",
                f"{x}.reshape({prod(shape)})",
                f"{x}.expand({wide})",
                f"{x}[{cuts or 'None'}]",
                f"{x}.flip({dims[:1]})",
                f"{x}.unsqueeze({draw((0, -1))})",
                f"{x}.squeeze()",
            )
        )

    def _reduction(self, x: str) -> str:
        shape, draw = self.values[x].shape, self.random.choice
        name, dim = draw(REDUCTIONS), draw((*range(len(shape)), -1))
        if not len(shape) or draw((True, False, False)):
            return f"{x}.{name}()"
        return f"{x}.{name}({dim}, keepdim={draw((True, False))})"


def _is_tame(value: torch.Tensor) -> bool:
    """Finite and small, so that one tolerance serves for all values."""
    return bool(value.isfinite().all()) and not bool((value.abs() > 1e3).any())


def check(program: Program, found: Any, what: str) -> None:
    for i, (value, expected) in enumerate(zip(found, program.expected, strict=True)):
        message = f"v{i} {what}:\n{program.text}{[x.tolist() for x in program.inputs]}"
        got, wanted = value.detach().numpy(), expected.numpy()
        assert (got.shape, got.dtype) == (wanted.shape, wanted.dtype), message
        np.testing.assert_allclose(got, wanted, 2e-5, 2e-5, err_msg=message)


@pytest.mark.slow_beyond(1)
@pytest.mark.parametrize("backend", ["numpy", "optimized", "naive"])
@pytest.mark.parametrize("chunk", range(4))
def test_programs_give_what_torch_gives(backend: str, chunk: int) -> None:
    for seed in range(40 * chunk, 40 * (chunk + 1)):
        program = Program(seed)
        with using_backend(backend):
            inputs = [tinytorch.tensor(x) for x in program.inputs]
            check(program, program.function()(tinytorch, *inputs), backend)


@pytest.mark.slow_beyond(1)
@pytest.mark.parametrize("backend", ["numpy", "optimized"])
def test_compiled_programs_give_what_torch_gives(backend: str) -> None:
    for seed in range(12):
        program = Program(seed)
        step = program.function()
        with using_backend(backend):
            inputs = [tinytorch.tensor(x) for x in program.inputs]
            compiled = tinytorch.compile(lambda *a, step=step: step(tinytorch, *a))
            check(program, compiled(*inputs), f"compiled on {backend}")


def test_most_operations_are_drawn() -> None:
    texts = "".join(Program(seed).text for seed in range(160))
    others = ("permute", "expand", "@", "cat", "stack", "where", "flip", "::2", "~", "log_softmax")
    assert not [part for part in (*REDUCTIONS, *others) if part not in texts]
