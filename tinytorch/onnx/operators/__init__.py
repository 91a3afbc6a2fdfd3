"""The ONNX operators that TinyTorch knows, by name. A file holds a family; its import enters it."""

from tinytorch.onnx.operators import (
    elementwise as elementwise,
    indexing as indexing,
    layers as layers,
    losses as losses,
    movement as movement,
    normalization as normalization,
    pooling as pooling,
    reductions as reductions,
    resize as resize,
)
from tinytorch.onnx.operators.registry import OPERATORS as OPERATORS, Operator as Operator
