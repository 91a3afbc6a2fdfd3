"""`Program`: a function of numbers as a list of elementwise ops, one after the other.

    x0, x1 -> t0 = abs(x0); t1 = lt(t0, x1); t2 = where(t1, 0.0, t0)

It is what a backend needs to compile a composed function as one loop: the ops' scalar definitions
in their order. `functions/fusing.py` records one while a function runs.
"""

from __future__ import annotations

from typing import Any, NamedTuple

from tinytorch.op import Op

Operand = Any  # a name, x0 for an input and t0 for what step 0 made; or a number
#: They stay in machine code; any other number is an input, so that another value needs no other
COMMON = ("0.0", "0.5", "1.0", "-1.0", "2.0", "inf", "-inf", "nan")
ALIASES = ("detach", "copy", "reshape")  # ops that give the number itself


class Step(NamedTuple):
    """One op; step i of a program makes t<i>."""

    op: Op
    operands: tuple[Operand, ...]
    params: tuple[tuple[str, Any], ...] = ()


class Program:
    """The steps of a function, in an order in which they can run. Equal ones have equal steps.

    Attributes:
        inputs: how many there are, x0, x1, ...
        steps: elementwise ops, casts of truth values to numbers, and `ALIASES`.
        result: the name of what the function returns.
        others: the names of what it returns besides; if there are some, a tuple.
        is_bool: that is a truth value, not of the type of the inputs.
        ops: the names of its ops, `ALIASES` and casts left out.
    """

    __slots__ = ("_hash", "_key", "inputs", "is_bool", "ops", "others", "result", "steps")

    def __init__(
        self,
        inputs: int,
        steps: tuple[Step, ...],
        result: str,
        is_bool: bool,
        others: tuple[str, ...] = (),
    ) -> None:
        self.inputs, self.steps, self.result, self.is_bool = inputs, steps, result, is_bool
        self.others = others
        self.ops = frozenset(step.op.name for step in steps if step.op.scalar is not None)
        self._key = (inputs, steps, result, is_bool, others)
        self._hash = hash(self._key)  # once: it is part of the key of every look-up

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Program) and self._key == other._key

    def __hash__(self) -> int:
        return self._hash

    @property
    def results(self) -> tuple[str, ...]:
        """The names of all that the function returns."""
        return self.result, *self.others

    def _needed(self) -> set[str]:
        """The names that count for the results."""
        needed = {*self.results}
        for i in reversed(range(len(self.steps))):
            if f"t{i}" in needed:
                needed.update(o for o in self.steps[i].operands if isinstance(o, str))
        return needed

    def reads(self) -> tuple[int, ...]:
        """Which inputs count for the result, in order."""
        needed = self._needed()
        return tuple(i for i in range(self.inputs) if f"x{i}" in needed)

    def renumbered(self, inputs: tuple[int, ...]) -> Program:
        """The program of these inputs only; the others are not read. Idle steps are left out."""
        names: dict[Any, str] = {f"x{old}": f"x{new}" for new, old in enumerate(inputs)}
        needed = self._needed()
        steps: list[Step] = []
        for i, step in enumerate(self.steps):
            if f"t{i}" in needed:
                names[f"t{i}"] = f"t{len(steps)}"
                operands = tuple(names[o] if isinstance(o, str) else o for o in step.operands)
                steps.append(Step(step.op, operands, step.params))
        result, *others = (names[name] for name in self.results)
        return Program(len(inputs), tuple(steps), result, self.is_bool, tuple(others))

    def source(self, name: str) -> tuple[str, dict[str, float]]:
        """The text of a function of that name, in which ops are `op_<name>`, and its numbers.

        Returns:
            The text, and the value of each name n0, n1, ... in it.
        """
        numbers: dict[str, float] = {}

        def word(operand: Operand) -> str:
            if isinstance(operand, str):
                return operand
            for known, value in numbers.items():
                if repr(value) == repr(operand):  # so that -0.0 is not 0.0, and NaN is NaN
                    return known
            numbers[f"n{len(numbers)}"] = operand
            return f"n{len(numbers) - 1}"

        lines = [f"def {name}({', '.join(f'x{i}' for i in range(self.inputs))}):"]
        for i, step in enumerate(self.steps):
            words = ", ".join(map(word, step.operands))
            value = words if step.op.name in ALIASES else f"op_{step.op.name}({words})"
            lines.append(f"    t{i} = {value}")
        result = f"{self.result} != 0" if self.is_bool else ", ".join(self.results)
        return "\n".join([*lines, f"    return {result}", ""]), numbers
