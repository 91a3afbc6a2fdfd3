"""A model that is looked at: evaluated, without gradients, and then as it was."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from tinytorch.autograd import no_grad
from tinytorch.nn.module import Module


@contextmanager
def evaluating(model: Module) -> Iterator[None]:
    """Evaluation mode and no gradients in the block; then each module has the mode it had."""
    modes = [(module, module.training) for module in model.modules()]
    model.eval()
    try:
        with no_grad():
            yield
    finally:
        for module, training in modes:
            module.training = training
