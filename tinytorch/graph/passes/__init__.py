"""Passes over graphs, a file each, and the manager that applies and checks them."""

from tinytorch.graph.passes.algebra import AlgebraicSimplification as AlgebraicSimplification
from tinytorch.graph.passes.attention import FusedAttention as FusedAttention
from tinytorch.graph.passes.base import (
    OptimizationPass as OptimizationPass,
    get_pass_by_name as get_pass_by_name,
    list_passes as list_passes,
    register_pass as register_pass,
)
from tinytorch.graph.passes.cse import (
    CommonSubexpressionElimination as CommonSubexpressionElimination,
)
from tinytorch.graph.passes.dce import DeadCodeElimination as DeadCodeElimination
from tinytorch.graph.passes.fold import ConstantFolding as ConstantFolding
from tinytorch.graph.passes.fusion import Fusion as Fusion
from tinytorch.graph.passes.layout import BroadcastCleanup as BroadcastCleanup
from tinytorch.graph.passes.manager import (
    PassManager as PassManager,
    PassResult as PassResult,
    Report as Report,
)
from tinytorch.graph.passes.recompute import Recompute as Recompute
