"""Batch normalization with the statistics of the whole batch, over all ranks."""

from __future__ import annotations

import math

from tinytorch.autograd import no_grad
from tinytorch.creation import full
from tinytorch.distributed.group import get_world_size
from tinytorch.distributed.sums import SumOverRanks
from tinytorch.functions.movement import cat
from tinytorch.nn import Module
from tinytorch.nn.batch_norm import BatchNorm1d, BatchNorm2d, BatchNorm3d, _BatchNorm
from tinytorch.tensor import Tensor


class SyncBatchNorm(_BatchNorm):
    """BatchNorm that normalizes, in training, by mean and variance over the batches of all ranks.

    So N ranks compute what one process computes on the N-fold batch, running statistics included.
    All ranks must run it the same number of times; their batches may differ in size.

    Source: C. Peng et al., "MegDet: A Large Mini-Batch Object Detector", 2018, section 3.3.
    """

    allowed_dims = (2, 3, 4, 5)

    def forward(self, x: Tensor) -> Tensor:
        """x (n, num_features, ...), normalized.

        Raises:
            ShapeError: x does not have the number of dimensions or channels.
            ValueError: in training all ranks together have one value for each channel, or none.
        """
        self._check_shape(x)
        if get_world_size() == 1 or not (self.training or self.running_mean is None):
            return super().forward(x)
        dims = [d for d in range(x.ndim) if d != 1]
        shape = [1, self.num_features, *[1] * (x.ndim - 2)]
        count = full((1,), float(math.prod(x.shape[d] for d in dims)), dtype=x.dtype)
        totals: Tensor = SumOverRanks.apply(cat([x.sum(dims), count]))
        n = totals[self.num_features :].detach()
        if self.training and n.item() < 2:
            raise ValueError(
                f"SyncBatchNorm: training needs more than one value for each channel, and all "
                f"{get_world_size()} ranks together have {n.item():.0f}; here is shape {x.shape}"
            )
        centred = x - (totals[: self.num_features] / n).reshape(shape)
        variance: Tensor = SumOverRanks.apply((centred * centred).sum(dims)) / n
        self._track(totals[: self.num_features] / n, variance, n)
        y = centred / (variance + self.eps).sqrt().reshape(shape)
        if self.weight is not None:
            y = y * self.weight.reshape(shape)
        return y if self.bias is None else y + self.bias.reshape(shape)

    def _track(self, mean: Tensor, variance: Tensor, n: Tensor) -> None:
        """Move the running statistics; their variance is the unbiased one."""
        if self.running_mean is None or self.running_var is None or not self.training:
            return
        with no_grad():
            momentum = self._momentum()
            unbiased = variance * (n / (n - 1))
            self.running_mean.mul_(1 - momentum).add_(mean * momentum)
            self.running_var.mul_(1 - momentum).add_(unbiased * momentum)


def convert_sync_batch_norm(model: Module) -> Module:
    """The model with every BatchNorm made a `SyncBatchNorm`, on the same parameters and buffers.

    Changes the model in place; only a model that is a BatchNorm itself is exchanged as a whole.
    """
    return _converted(model, {})


def _converted(module: Module, done: dict[Module, Module]) -> Module:
    """What takes the module's place; the same one wherever the module is."""
    if module in done:
        return done[module]
    done[module] = module
    if isinstance(module, (BatchNorm1d, BatchNorm2d, BatchNorm3d)):
        done[module] = _synchronized(module)
    else:
        for name, child in list(module.own_modules()):
            setattr(module, name, _converted(child, done))
    return done[module]


def _synchronized(module: BatchNorm1d | BatchNorm2d | BatchNorm3d) -> SyncBatchNorm:
    """On the same parameters and buffers."""
    new = SyncBatchNorm(module.num_features, module.eps, module.momentum)
    new.weight, new.bias = module.weight, module.bias
    for name, buffer in module.named_buffers(recurse=False):
        new.register_buffer(name, buffer)
    if module.running_mean is None:
        new.running_mean = new.running_var = new.num_batches_tracked = None
    return new.train(module.training)
