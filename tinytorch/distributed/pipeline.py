"""A model cut into stages, one on each rank; the batch flows through in pieces.

Source: Y. Huang et al., "GPipe: Efficient Training of Giant Neural Networks using Pipeline
Parallelism", 2019, section 2.3.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from tinytorch.distributed.group import get_rank, get_world_size, recv, send
from tinytorch.dtypes import DType, float32
from tinytorch.errors import ProcessGroupError
from tinytorch.nn import Module
from tinytorch.tensor import Tensor

Shape = Sequence[int]


class Pipeline:
    """Runs the stage of this rank, and exchanges activations and gradients with its neighbours.

    The micro-batches go forward one after another, then backward. While rank 1 works on the first,
    rank 0 has begun with the second. With m of them and N stages a rank waits for a share of
    (N - 1) / (m + N - 1) of the time (`bubble`).

        pipeline = Pipeline(stages[get_rank()], input_shape=(8, 64))
        loss = pipeline.backward(inputs, lambda y, i: cross_entropy(y, targets[i]))

    Args:
        stage: the part of the model of this rank.
        input_shape: of what the rank before sends; rank 0 does not read it.
        dtype: of it. A gradient has the dtype of what it is the gradient of.
    """

    def __init__(self, stage: Module, input_shape: Shape, dtype: DType = float32) -> None:
        self.stage, self.input_shape, self.dtype = stage, tuple(input_shape), dtype
        self.first, self.last = get_rank() == 0, get_rank() == get_world_size() - 1

    def backward(
        self, inputs: Sequence[Tensor], loss: Callable[[Tensor, int], Tensor]
    ) -> float | None:
        """Add to `.grad` of the stage the gradient of the mean loss over the micro-batches.

        Args:
            inputs: the micro-batches, of one shape; the ranks after the first read only how many
                there are.
            loss: of an output and the number of its micro-batch, 0-d; called on the last rank.

        Returns:
            The mean loss, on the last rank; None on the others.

        Raises:
            ProcessGroupError: there is no micro-batch, or they have several shapes.
        """
        if not inputs:
            raise ProcessGroupError("a pipeline needs at least one micro-batch")
        shapes = sorted({x.shape for x in inputs})
        if self.first and len(shapes) > 1:  # the next rank would wait for one of `input_shape`
            raise ProcessGroupError(f"micro-batches of a pipeline have one shape, not {shapes}")
        pairs = [self._forward(x) for x in inputs]
        losses = []
        for i, (x, y) in enumerate(pairs):
            if self.last:
                value = loss(y, i) / len(inputs)
                losses.append(float(value.item()))
                value.backward()
            else:
                y.backward(self._receive(tuple(y.shape), y.dtype, get_rank() + 1))
            if not self.first:
                assert x.grad is not None
                send(x.grad.contiguous(), get_rank() - 1)
        return sum(losses) if self.last else None

    def _forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """Input and output of the stage for a micro-batch; the output goes to the next rank."""
        if not self.first:
            x = self._receive(self.input_shape, self.dtype, get_rank() - 1)
            x.requires_grad = True
        y = self.stage(x)
        if not self.last:
            send(y.detach().contiguous(), get_rank() + 1)
        return x, y

    def _receive(self, shape: Shape, dtype: DType, rank: int) -> Tensor:
        buffer = Tensor.from_numpy(np.empty(shape, dtype.dtype))
        recv(buffer, rank)
        return buffer


def bubble(stages: int, micro_batches: int) -> float:
    """The share of the time in which a rank waits, if all stages take the same time.

    >>> bubble(stages=4, micro_batches=12)
    0.2
    """
    return (stages - 1) / (micro_batches + stages - 1)
