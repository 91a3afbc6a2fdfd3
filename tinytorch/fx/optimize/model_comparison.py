"""`ModelComparison`: does an optimized module do what its model does?"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn
from torch.utils._pytree import tree_leaves

from tinytorch.fx.optimize.optimized import OptimizedModule, OptimizedModuleError, check_sizes
from tinytorch.fx.optimize.report import OptimizationReport
from tinytorch.fx.optimize.verify import (
    Behaviour,
    accuracy,
    compare,
    observe,
    other_sizes,
    other_values,
)
from tinytorch.graph.ir import GraphError


@dataclass
class ModelComparison:
    """Compares optimized modules with their model: on its example, and on other inputs.

    Attributes:
        model: in its present mode.
        inputs: the example.
        frozen: the modules are compared without gradients, and in evaluation mode only.
        has_float64: the device has float64, and the model draws no numbers, which would be others.
        dynamic_dims: dimensions of the inputs whose sizes are open.
        trials: inputs of the sizes of the example.
        report: gets the accuracy, and notes about what cannot be compared.
    """

    model: nn.Module
    inputs: Any
    frozen: bool
    has_float64: bool
    dynamic_dims: tuple[int, ...]
    trials: int
    report: OptimizationReport

    def difference(self, module: OptimizedModule) -> str | None:
        """What the optimized module does otherwise than the model; None if nothing."""
        was_training = module.training
        pairs: list[tuple[Behaviour, Behaviour]] = []
        try:
            for mode in module.graphs:
                module.training = mode == "train"  # its model is set below, each part as it was
                with in_mode(self.model, mode):
                    for seed, (batch, is_of_other_size) in enumerate(self._batches(module)):
                        try:
                            expected = observe(self.model, self.model, batch, seed, not self.frozen)
                        except Exception as error:  # a model need not take other sizes
                            if not is_of_other_size:
                                raise
                            self._note_uncompared("on other sizes", error)
                            continue
                        found = observe(module, self.model, batch, seed, not self.frozen)
                        compare(expected, found)
                        pairs.append((expected, found))
        except GraphError as error:
            return f"{mode}, input {seed}: {error}"
        finally:
            module.training = was_training
        return self._inaccuracy(*pairs[0])

    def _batches(self, module: OptimizedModule) -> Iterator[tuple[Any, bool]]:
        """The example, others with other values, and of other sizes where these are open; of each
        whether it is one of those."""
        for seed in range(max(1, self.trials)):
            yield other_values(self.inputs, seed), False
        for batch in other_sizes(self.inputs, self.dynamic_dims) if self.dynamic_dims else ():
            try:
                check_sizes(module.graph_module, tree_leaves(batch))
            except OptimizedModuleError:  # as whoever calls the module with it is told
                continue
            yield batch, True

    def _note_uncompared(self, what: str, error: Exception) -> None:
        headline = str(error).splitlines()[0] if str(error) else ""
        self.report.notes.append(
            f"not compared {what}: the model does not run so "
            f"({type(error).__name__}: {headline:.120})"
        )

    def _inaccuracy(self, expected: Behaviour, found: Behaviour) -> str | None:
        """What is wrong with the error against float64; None if nothing, or if it is not asked.

        Args:
            expected, found: of the model and of the optimized module, on the example.
        """
        kinds = {p.dtype for p in self.model.parameters()}
        if not (self.frozen and self.has_float64 and kinds == {torch.float32}):
            return None
        with in_mode(self.model, "eval"):
            try:
                errors = accuracy(self.model, self.inputs, expected.leaves, found.leaves)
            except Exception as error:  # constants of the code stay float32, and ops want one dtype
                self._note_uncompared("with float64", error)
                return None
        self.report.accuracy = errors
        if errors.is_good:
            return None
        return f"error against float64 {errors.optimized:.2g}, of the model {errors.original:.2g}"


@contextmanager
def in_mode(model: nn.Module, mode: str) -> Iterator[None]:
    """The model in training or evaluation mode; each of its modules as before in its present one.

    A part that the user keeps in evaluation mode, such as a frozen batch norm, stays so.
    """
    if model.training == (mode == "train"):
        yield
        return
    before = {module: module.training for module in model.modules()}
    model.train(mode == "train")
    try:
        yield
    finally:
        for module, training in before.items():
            module.training = training
