"""A small graph compiler: trace Tensor code, look at the graph, improve it, run it.

    from tinytorch.graph import trace

    step = trace(train_step, x, y)      # forward, backward and the optimizer's step
    print(step)                         # one line a node
    loss = step(x, y)                   # as train_step(x, y)

The graph speaks torch.fx's language, so a pass written for it runs on torch.fx graphs too.
"""

from tinytorch.graph.interpret import (
    BackendChecker as BackendChecker,
    Interpreter as Interpreter,
    NanFinder as NanFinder,
    Profiler as Profiler,
    ShapeProp as ShapeProp,
)
from tinytorch.graph.ir import Graph as Graph, GraphError as GraphError, Node as Node
from tinytorch.graph.parse import parse_graph as parse_graph
from tinytorch.graph.passes import (
    OptimizationPass as OptimizationPass,
    PassManager as PassManager,
    get_pass_by_name as get_pass_by_name,
    list_passes as list_passes,
    register_pass as register_pass,
)
from tinytorch.graph.retrace import Specializing as Specializing
from tinytorch.graph.semantics import TINYTORCH as TINYTORCH, Semantics as Semantics
from tinytorch.graph.symbols import TraceError as TraceError
from tinytorch.graph.trace import trace as trace
from tinytorch.graph.traced import TracedFunction as TracedFunction
