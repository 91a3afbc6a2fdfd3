"""A mode that writes down which ops it sees."""

from __future__ import annotations

from typing import Any

from tinytorch.dispatch import Input, Mode
from tinytorch.op import Op, Params, Plan


class OpNames(Mode):
    """The names of the ops that it sees, in their order."""

    def __init__(self) -> None:
        self.names: list[str] = []

    def run(self, op: Op, inputs: tuple[Input, ...], params: Params, plan: Plan) -> Any:
        self.names.append(op.name)
        return self.below(op, inputs, params, plan)
