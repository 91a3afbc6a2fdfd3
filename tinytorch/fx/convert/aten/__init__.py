"""PyTorch's ATen operators as Tensor code, by name. A file holds a family; its import enters it."""

from tinytorch.fx.convert.aten import (
    attention as attention,
    creation as creation,
    elementwise as elementwise,
    experts as experts,
    indexing as indexing,
    layers as layers,
    movement as movement,
    reductions as reductions,
    resizing as resizing,
    volumes as volumes,
)
from tinytorch.fx.convert.aten.registry import ATEN as ATEN, aten as aten
