"""Generated Python: a schedule as a readable function, one statement a step.

    def make(arena):
        ...                                    where values are in the arena, said once
        def call(x, weight, bias):
            # forward
            weight_t = weight.transpose((1, 0))         # float32[64, 32]  mlp.py:9 in forward
            _matmul(x, weight_t, product)               # float32[32, 32]  mlp.py:9 in forward
            ...
        return call

It runs on every backend: a kernel that can write into memory it is given writes into the arena, one
that cannot brings its result. The source is known to `linecache`, so tracebacks show it and
debuggers step through it.
"""

from __future__ import annotations

import keyword
import linecache
import math
import weakref
from collections import deque
from collections.abc import Callable
from itertools import count
from typing import Any

import numpy as np

from tinytorch.backends.base import ComputeBackend, Kernel
from tinytorch.dtypes import Array, DType
from tinytorch.graph.compiler.lower import plan_of
from tinytorch.graph.compiler.schedule import Schedule, Step
from tinytorch.graph.fused import GraphDecomposition
from tinytorch.graph.index_bounds import bound_of, check_index
from tinytorch.graph.ir import Node
from tinytorch.graph.layout import Memory, StridedView
from tinytorch.graph.memory import ALIGNMENT
from tinytorch.op import Op
from tinytorch.shapes import contiguous_strides

WIDTH = 100
COMMENT_COLUMN = 60
_numbers = count(1)


class PythonProgram:
    """A schedule as a Python function.

    It may be called from several threads at once: every call that is under way has an arena of its
    own, and arenas are kept for the calls after it.

    Attributes:
        source: the generated code.
        filename: under which tracebacks and debuggers know it.
        kernels: for each step of the schedule what it calls.
        writes_out: for each whether it is given the memory of its result.
    """

    def __init__(self, schedule: Schedule, backend: ComputeBackend) -> None:
        writer = _Writer(schedule, backend)
        self.schedule = schedule
        self.source = writer.source
        self.kernels = writer.kernels
        self.writes_out = writer.writes_out
        self.filename = f"<tinytorch.compile {next(_numbers)}>"
        lines = self.source.splitlines(keepends=True)
        linecache.cache[self.filename] = (len(self.source), None, lines, self.filename)
        weakref.finalize(self, linecache.cache.pop, self.filename, None)
        exec(compile(self.source, self.filename, "exec"), writer.namespace)
        self._make: Callable[[Array], Callable[..., list[Array]]] = writer.namespace["make"]
        self._idle: deque[Callable[..., list[Array]]] = deque()

    def __call__(self, values: list[Any]) -> list[Array]:
        """One call.

        Args:
            values: for each input an array, or the number if its role is one.

        Returns:
            An array for each of `schedule.returns`.
        """
        try:
            call = self._idle.pop()
        except IndexError:
            call = None  # and no error that is in the way of another
        call = call or self._make(aligned_arena(self.schedule.arena_bytes))
        try:
            with np.errstate(all="ignore"):
                return call(*values)
        finally:
            self._idle.append(call)


def aligned_arena(size: int) -> Array:
    """`size` bytes that begin on a cache line."""
    memory = np.empty(size + ALIGNMENT, np.uint8)
    start = -memory.ctypes.data % ALIGNMENT
    return memory[start : start + size]


def is_kept(backend: ComputeBackend) -> Callable[[Node], bool]:
    """For `schedule_graph`: fused ops of the table run whole where the backend has a kernel."""
    return lambda node: (
        not isinstance(node.target.decomposition, GraphDecomposition)
        and backend.has_kernel(node.target)
    )


def writes_out(backend: ComputeBackend) -> Callable[[Node], bool]:
    """For `schedule_graph`: nodes whose kernels fill memory that they are given."""
    return lambda node: backend.specialize_out(plan_of(node)) is not None


# -- writing the source ----------------------------------------------------------------------------


class _Names:
    """Identifiers, each given once."""

    def __init__(self) -> None:
        self._taken: set[str] = set()

    def new(self, candidate: str) -> str:
        name, number = candidate, 1
        while name in self._taken or keyword.iskeyword(name):
            number += 1
            name = f"{candidate}_{number}"
        self._taken.add(name)
        return name


class _Writer:
    """Writes the source of a schedule, and collects what the source refers to."""

    def __init__(self, schedule: Schedule, backend: ComputeBackend) -> None:
        self.schedule = schedule
        self.backend = backend
        self.names = _Names()
        self.namespace: dict[str, Any] = {}
        self.kernels: list[Kernel] = []
        self.writes_out: list[bool] = []
        self._bound: dict[int, str] = {}  # names of kernels and other objects, by identity
        self.variables: dict[Node, str] = {}
        self._used: set[Node] = set()
        for name, value in _HELPERS.items():
            self.namespace[self.names.new(name)] = value
        self.constants = [self.bind(f"constant_{i}", c) for i, c in enumerate(schedule.constants)]
        for node in schedule.views:
            if node.op != "get_attr":
                self.variables[node] = self.names.new(node.name)
        self.numbers = {
            each.node: self.names.new(f"{self.variables[each.node]}_now")
            for each in schedule.inputs
            if each.role.is_number
        }
        self.source = "\n".join(self._source()) + "\n"

    def bind(self, candidate: str, value: Any) -> str:
        """A name for an object that the source refers to."""
        if id(value) not in self._bound:
            name = self._bound[id(value)] = self.names.new(candidate)
            self.namespace[name] = value
        return self._bound[id(value)]

    def _source(self) -> list[str]:
        s = self.schedule
        body = self._body()  # first: it says which views are used
        parameters = [self.numbers.get(i.node, self.variables[i.node]) for i in s.inputs]
        return [
            f"# {len(s.steps)} steps on {self.backend!r}, arena {s.arena_bytes} bytes",
            "def make(arena):",
            *indented(self._views()),
            *indented(wrapped("def call(", parameters, "):")),
            *indented(body, 2),
            "    return call",
        ]

    # -- what is the same in every call ------------------------------------------------------------

    def _views(self) -> list[str]:
        """Numbers of the call as 0-d arrays, and everything that is in arena and constants."""
        lines = [
            f"{self.variables[node]} = empty((), {self._literal(node.meta['tensor_meta'].dtype)})"
            for node in self.numbers
        ]
        for node in self.schedule.graph.find_nodes(op="call_function"):
            view = self.schedule.views[node]
            if node in self._used and view.buffer.memory in (Memory.ARENA, Memory.CONSTANT):
                lines.append(f"{self.variables[node]} = {self._ndarray(view)}")
        return lines

    def _ndarray(self, view: StridedView) -> str:
        buffer = "arena"
        if view.buffer.memory is Memory.CONSTANT:
            buffer = self.constants[view.buffer.index]
        layout = [str(view.shape), self._literal(view.dtype), buffer, str(view.offset)]
        if view.strides != contiguous_strides(view.shape, view.dtype.itemsize):
            layout.append(str(view.strides))
        return f"ndarray({', '.join(layout)})"

    # -- the steps ---------------------------------------------------------------------------------

    def _body(self) -> list[str]:
        s = self.schedule
        lines = [f"{self.variables[node]}.fill({now})" for node, now in self.numbers.items()]
        steps = {step.node: step for step in s.steps}
        deaths = self._deaths()
        phase = ""
        for node in s.graph.find_nodes(op="call_function"):
            code = self._step(steps[node]) if node in steps else self._view(node)
            now = node.meta.get("phase", "forward")
            if code and now != phase:
                lines.append(f"# {now}")
                phase = now
            lines += code
            if node in deaths:
                lines += wrapped("del ", deaths[node], "")
        return [*lines, *wrapped("return [", [self._operand(node) for node in s.returns], "]")]

    def _step(self, step: Step) -> list[str]:
        """The statement of a step; the memory that it allocates is before it."""
        name, memory = self.variables[step.node], step.output.buffer.memory
        writes = self.backend.specialize_out(step.plan)
        kernel = writes or self.backend.kernels.get(step.plan)
        kernel = kernel or self.backend.add_kernel(step.plan)
        self.kernels.append(kernel)
        self.writes_out.append(writes is not None)
        operands = [self._operand(a) for a in step.node.args]
        checks = self._checks(step, operands)
        params = [f"{key}={self._literal(value)}" for key, value in step.params.items()]
        function = self.bind(f"_{step.op.name}", kernel)
        if writes is not None:
            before = []
            target = self._target(step)
            if memory is Memory.OWN:
                dtype = self._literal(step.output.dtype)
                before = [f"{name} = empty({step.output.shape}, {dtype})"]
            code = f"{function}({', '.join([*operands, target, *params])})"
            return [*checks, *before, self._commented(code, step.node)]
        result = f"{function}({', '.join([*operands, *params])})"
        if memory is Memory.OWN:
            return [*checks, self._commented(f"{name} = {result}", step.node)]
        return [*checks, self._commented(f"copyto({self._target(step)}, {result})", step.node)]

    def _checks(self, step: Step, operands: list[str]) -> list[str]:
        """The statement that looks at an index; none for a step without one."""
        bound = bound_of(step.op.name, step.plan.operands, step.params)
        if bound is None:
            return []
        return [self._commented(f"check_index({operands[bound[0]]}, {bound[1]})", step.node)]

    def _target(self, step: Step) -> str:
        """The name of the view that a step writes."""
        buffer = step.output.buffer
        self._used.add(step.node)
        if buffer.memory is Memory.INPUT:
            return self.variables[self.schedule.inputs[buffer.index].node]
        return self.variables[step.node]

    def _operand(self, argument: Any) -> str:
        if not isinstance(argument, Node):
            return self._literal(argument)
        view = self.schedule.views[argument]
        if argument.op == "get_attr":
            return self.constants[view.buffer.index]
        if view.buffer.memory is Memory.INPUT and argument.op == "call_function":
            root = self.schedule.inputs[view.buffer.index].node
            if view == self.schedule.views[root]:  # an update in place, or a view of nothing less
                return self.variables[root]
        self._used.add(argument)
        return self.variables[argument]

    def _view(self, node: Node) -> list[str]:
        """The statement for a view of memory that is known only in the call; else none."""
        view = self.schedule.views[node]
        if view.buffer.memory not in (Memory.INPUT, Memory.OWN):
            return []
        if view.buffer.memory is Memory.INPUT:
            root = self.schedule.inputs[view.buffer.index].node
            if view == self.schedule.views[root]:
                return []  # `_operand` takes the input itself
        return [self._commented(f"{self.variables[node]} = {self._view_of(node)}", node)]

    def _view_of(self, node: Node) -> str:
        op: Op = node.target
        source = self._operand(node.args[0])
        if op.name in ("reshape", "permute"):
            (argument,) = node.kwargs.values()
            return f"{source}.{'reshape' if op.name == 'reshape' else 'transpose'}({argument})"
        params = [f"{key}={self._literal(value)}" for key, value in node.kwargs.items()]
        function = self.bind(f"_{op.name}", self.backend.find_kernel(op))
        return f"{function}({', '.join([source, *params])})"

    def _literal(self, value: Any) -> str:
        """A Python number or parameter as source; an object that has no literal gets a name."""
        if isinstance(value, (tuple, list)):
            inside = ", ".join(map(self._literal, value))
            if isinstance(value, list):
                return f"[{inside}]"
            return f"({inside},)" if len(value) == 1 else f"({inside})"
        if isinstance(value, float) and not math.isfinite(value):
            return f"float({str(value)!r})"
        if value is None or isinstance(value, (bool, int, float, str)):
            return repr(value)
        if isinstance(value, DType):
            return self.bind(value.name, value)
        return self.bind("parameter", value)

    def _deaths(self) -> dict[Node, list[str]]:
        """For each node the variables that nothing reads after it, of memory made in the call."""
        s = self.schedule
        last: dict[int, Node] = {}
        viewers: dict[int, list[Node]] = {}
        for node in s.graph.find_nodes(op="call_function"):
            for value in (node, *node.all_input_nodes):
                buffer = s.views[value].buffer
                if buffer.memory is Memory.OWN:
                    last[buffer.index] = node
            if s.views[node].buffer.memory is Memory.OWN:
                viewers.setdefault(s.views[node].buffer.index, []).append(node)
        returned = [s.views[n].buffer for n in s.returns]
        held = {buffer.index for buffer in returned if buffer.memory is Memory.OWN}
        deaths: dict[Node, list[str]] = {}
        for index, node in last.items():
            if index not in held:
                deaths.setdefault(node, []).extend(self.variables[n] for n in viewers[index])
        return deaths

    @staticmethod
    def _commented(code: str, node: Node) -> str:
        """A statement, with the shape of its result and the user's line."""
        comment = f"# {node.meta['tensor_meta']}  {node.stack_trace or ''}"
        return f"{code:{COMMENT_COLUMN}}  {comment}".rstrip()


def indented(lines: list[str], depth: int = 1) -> list[str]:
    """Lines of code, moved in."""
    return [f"{'    ' * depth}{line}" for line in lines]


def wrapped(begin: str, items: list[str], end: str) -> list[str]:
    """`begin item, item, ... end` on one line, or if that is long with an item on each.

    A statement without brackets is made several.
    """
    line = f"{begin}{', '.join(items)}{end}"
    if len(line) <= WIDTH:
        return [line]
    if not end:
        return [f"{begin}{item}" for item in items]
    return [begin, *(f"    {item}," for item in items), end]


_HELPERS: dict[str, Any] = {
    "ndarray": np.ndarray,
    "empty": np.empty,
    "copyto": np.copyto,
    "check_index": check_index,
}
