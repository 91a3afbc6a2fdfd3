"""`Interpreter`: runs a graph node by node; what looks at a running graph derives from it.

A graph is replayed through the same function as eager code, `dispatch.apply`. So a graph run can be
differentiated, listened to by modes, and traced again.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from time import perf_counter
from typing import Any

import numpy as np

from tinytorch.backends.base import ComputeBackend
from tinytorch.dispatch import apply, wrap
from tinytorch.dtypes import TensorMeta, meta_of_array
from tinytorch.errors import BackendError
from tinytorch.functions.indexing import check_range
from tinytorch.graph.index_bounds import bound_of
from tinytorch.graph.ir import Argument, Graph, GraphError, Node, map_arg
from tinytorch.op import Op
from tinytorch.state import current_phase, phase, using_backend
from tinytorch.tensor import Tensor


class Interpreter:
    """Runs a graph. Override a method to change what one opcode does.

        run(*args)
            run_node(node)                                   each node in order
                fetch_args_kwargs_from_env(node)
                placeholder(target, args, kwargs)            or the method of the node's opcode:
                get_attr(target, args, kwargs)
                call_function(target, args, kwargs)
                output(target, args, kwargs)

    A value is let go of after its last use.

    Attributes:
        graph: what is run.
        env: the values that are alive, by node.
    """

    def __init__(self, graph: Graph) -> None:
        self.graph = graph
        self.env: dict[Node, Any] = {}
        self._last_uses = last_uses(graph)

    def run(self, *args: Any) -> Any:
        """The graph's result on these inputs: tensors, one for each placeholder.

        Raises:
            GraphError: there are more or fewer.
        """
        names = [n.name for n in self.graph.find_nodes(op="placeholder")]
        if len(args) != len(names):
            raise GraphError(f"the graph takes {len(names)} inputs ({', '.join(names)}), "
                             f"not {len(args)}")  # fmt: skip
        self._args = iter(args)
        self.env = {}
        result = None
        for node in self.graph.nodes:
            result = self.env[node] = self._run_in_phase(node)
            for dead in self._last_uses.get(node, ()):
                del self.env[dead]
        self.env = {}
        return result

    def _run_in_phase(self, node: Node) -> Any:
        name = node.meta.get("phase", "forward")
        if name == current_phase():
            return self.run_node(node)
        with phase(name):
            return self.run_node(node)

    def run_node(self, n: Node) -> Any:
        """The value of one node, whose inputs are in `env`."""
        args, kwargs = self.fetch_args_kwargs_from_env(n)
        return getattr(self, n.op)(n.target, args, kwargs)

    def fetch_args_kwargs_from_env(self, n: Node) -> tuple[tuple[Any, ...], dict[str, Any]]:
        """A node's arguments, with values in place of nodes."""
        return map_arg(n.args, self.env.__getitem__), map_arg(n.kwargs, self.env.__getitem__)

    def placeholder(self, target: str, args: tuple[Argument, ...], kwargs: dict[str, Any]) -> Any:
        """The next of the arguments of `run`."""
        return next(self._args)

    def get_attr(self, target: str, args: tuple[Argument, ...], kwargs: dict[str, Any]) -> Any:
        """A constant."""
        array = self.graph.constants[target]
        return wrap(array, meta_of_array(array))

    def call_function(self, target: Op, args: tuple[Argument, ...], kwargs: dict[str, Any]) -> Any:
        """An op, through `dispatch.apply`.

        Raises:
            IndexError: an index is out of range; the message gives it.
        """
        bound = bound_of(target.name, args, kwargs)
        if bound is not None:
            check_range(args[bound[0]], bound[1])
        return apply(target, *args, **kwargs)

    def output(self, target: str, args: tuple[Argument, ...], kwargs: dict[str, Any]) -> Any:
        """The result."""
        return args[0]


def last_uses(graph: Any) -> dict[Any, list[Any]]:
    """The values that nothing after a node needs, for each node of our graphs or torch.fx's."""
    last: dict[Any, Any] = {}
    for node in graph.nodes:
        last[node] = node
        for used in node.all_input_nodes:
            last[used] = node
    uses: dict[Any, list[Any]] = {}
    for value, node in last.items():
        uses.setdefault(node, []).append(value)
    return uses


class ShapeProp(Interpreter):
    """Writes shape and dtype into every node's meta, computing no values.

    `run` takes a tensor or a TensorMeta for each placeholder; `ShapeProp(graph).propagate()` takes
    them from the placeholders themselves.

    Raises:
        ShapeError, DTypeError: by an op's rules, where the graph cannot run.
    """

    def propagate(self) -> None:
        """Follow from what the placeholders' own metas say."""
        self.run(*[n.meta["tensor_meta"] for n in self.graph.find_nodes(op="placeholder")])

    def run_node(self, n: Node) -> Any:
        value = super().run_node(n)
        if n.op != "output":
            n.meta["tensor_meta"] = value
        return value

    def placeholder(self, target: str, args: tuple[Argument, ...], kwargs: dict[str, Any]) -> Any:
        given = super().placeholder(target, args, kwargs)
        return given.meta if isinstance(given, Tensor) else given

    def get_attr(self, target: str, args: tuple[Argument, ...], kwargs: dict[str, Any]) -> Any:
        return meta_of_array(self.graph.constants[target])

    def call_function(self, target: Op, args: tuple[Argument, ...], kwargs: dict[str, Any]) -> Any:
        operands = [a if isinstance(a, TensorMeta) else type(a) for a in args]
        return target.plan(operands, kwargs).meta


@dataclass(slots=True)
class NodeProfile:
    """The time and memory of one node in one run.

    Attributes:
        seconds: time.
        flops, bytes: by the op table, not measured.
        live: bytes of values alive while the node ran, its own included.
    """

    node: Node
    seconds: float
    flops: int
    bytes: int
    live: int


class Profiler(Interpreter):
    """Times every node, and adds up the memory that is alive.

    Attributes:
        profiles: a `NodeProfile` for each op, in order, after `run`.
    """

    def __init__(self, graph: Graph) -> None:
        super().__init__(graph)
        self.profiles: list[NodeProfile] = []

    def run(self, *args: Any) -> Any:
        self.profiles = []
        return super().run(*args)

    def run_node(self, n: Node) -> Any:
        start = perf_counter()
        value = super().run_node(n)
        seconds = perf_counter() - start
        if n.op == "call_function":
            inputs = [self.env[a] if isinstance(a, Node) else a for a in n.args]
            tensors = [t.meta for t in inputs if isinstance(t, Tensor)]
            shapes = [t.shape if isinstance(t, Tensor) else () for t in inputs]
            flops = n.target.flops(shapes, value.shape, n.kwargs)
            live = self._live([*self.env.values(), value])
            moved = n.target.bytes_moved(tensors, value.meta)
            self.profiles.append(NodeProfile(n, seconds, flops, moved, live))
        return value

    @staticmethod
    def _live(values: Sequence[Any]) -> int:
        """Bytes of the memory that the values are in, views counted once."""
        owners = {}
        for value in values:
            array = value._data
            while isinstance(array.base, np.ndarray):
                array = array.base
            owners[id(array)] = array.nbytes
        return sum(owners.values())

    def table(self, limit: int = 20) -> str:
        """The slowest nodes, one line each."""
        total = sum(p.seconds for p in self.profiles) or 1.0
        slowest = sorted(self.profiles, key=lambda p: -p.seconds)[:limit]
        lines = [f"{'node':24} {'us':>9} {'share':>6} {'MFLOP':>9} {'KiB':>9} {'live KiB':>9}"]
        for p in slowest:
            lines.append(
                f"{p.node.name:24} {p.seconds * 1e6:9.1f} {100 * p.seconds / total:5.1f}% "
                f"{p.flops / 1e6:9.3f} {p.bytes / 1024:9.1f} {p.live / 1024:9.1f}"
            )
        return "\n".join(lines)


class BackendChecker(Interpreter):
    """Runs every node on two backends, on the same inputs, and stops at the first that differs.

    Args:
        backend: whose values go on.
        reference: what it is compared with.
        rtol, atol: for floats, |a - b| <= atol + rtol |b|; everything else must be equal.
    """

    def __init__(
        self,
        graph: Graph,
        backend: str | ComputeBackend,
        reference: str | ComputeBackend = "numpy",
        rtol: float = 1e-4,
        atol: float = 1e-5,
    ) -> None:
        super().__init__(graph)
        self.backend, self.reference = backend, reference
        self.rtol, self.atol = rtol, atol

    def run_node(self, n: Node) -> Any:
        if n.op != "call_function":
            return super().run_node(n)
        with using_backend(self.reference):
            expected = super().run_node(n)
        with using_backend(self.backend):
            value = super().run_node(n)
        a, b = value._data, expected._data
        if a.dtype.kind == "f":
            agree = np.allclose(a, b, self.rtol, self.atol, equal_nan=True)
        else:
            agree = np.array_equal(a, b)
        if not agree:
            with np.errstate(invalid="ignore"):
                distance = np.abs(a.astype(float) - b.astype(float))
            worst = np.max(distance, initial=0.0, where=~np.isnan(distance))
            how = f"by up to {worst:.3g}" if worst else "in where it is NaN or infinite"
            raise BackendError(
                f"backend {self.backend!r} differs from {self.reference!r} {how} at "
                f"`{n.format_node()}`, made at {n.stack_trace or 'an unknown line'}"
            )
        return value


class NanFinder(Interpreter):
    """Stops at the first node that makes NaN or infinity out of finite values.

    Raises:
        FloatingPointError: the message gives the node, its inputs' ranges and the user's line.
    """

    def run_node(self, n: Node) -> Any:
        value = super().run_node(n)
        if n.op != "call_function" or np.all(np.isfinite(value._data)):
            return value
        inputs = {a.name: self.env[a]._data for a in n.all_input_nodes}
        if all(np.all(np.isfinite(array)) for array in inputs.values()):
            ranges = [f"{k} in [{v.min():.4g}, {v.max():.4g}]" for k, v in inputs.items() if v.size]
            raise FloatingPointError(
                f"`{n.format_node()}` is not finite, with {', '.join(ranges) or 'no input'}; made "
                f"at {n.stack_trace or 'an unknown line'}"
            )
        return value
