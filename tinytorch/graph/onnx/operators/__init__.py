"""The ONNX operators that TinyTorch knows, by name. A file holds a family; its import enters it."""

from tinytorch.graph.onnx.operators import (
    elementwise as elementwise,
    indexing as indexing,
    layers as layers,
    losses as losses,
    movement as movement,
    normalization as normalization,
    pooling as pooling,
    reductions as reductions,
)
from tinytorch.graph.onnx.operators.registry import OPERATORS as OPERATORS, Operator as Operator
