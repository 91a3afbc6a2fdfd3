"""How much arithmetic each op of a traced run is, and whose code its kernels run."""

from __future__ import annotations

from typing import Any

from tinytorch.bench.counters import Cost, cost_of
from tinytorch.dispatch import Input, Mode
from tinytorch.op import Op, Params, Plan
from tinytorch.state import current_backend
from tito.workspace.trace import Trace


class Work(Mode):
    """Tells a trace of each op: its FLOPs by the op table, and what its kernel called."""

    def __init__(self, trace: Trace) -> None:
        self.trace = trace
        self.costs: dict[Plan, Cost] = {}

    def run(self, op: Op, inputs: tuple[Input, ...], params: Params, plan: Plan) -> Any:
        cost = self.costs.get(plan)
        if cost is None:
            cost = self.costs[plan] = cost_of(op, inputs, params, plan)
        backend = current_backend()
        if plan not in backend.kernels:
            backend.add_kernel(plan)  # that a kernel is looked for is no work of the kernel
        outside, self.trace.calls = self.trace.calls, {}
        try:
            return self.below(op, inputs, params, plan)
        finally:
            inside, self.trace.calls = self.trace.calls, outside
            self.trace.op_ran(op.name, cost.flops, inside)
