"""A model of ours as PyTorch's own sharding runs it."""

from __future__ import annotations

import numpy as np
import torch
from torch import nn as torch_nn

import tinytorch
from tests.distributed.programs import common
from tinytorch import nn, optim
from tinytorch.distributed import get_rank, get_world_size
from tinytorch.fx import to_torch
from tinytorch.graph import trace
from tinytorch.nn import functional as F


def _model() -> nn.Module:
    tinytorch.manual_seed(3)
    return nn.Sequential(nn.Linear(5, 16), nn.ReLU(), nn.Linear(16, 3))


def losses(kind: str) -> list[tuple[float, float]]:
    """For each of 5 steps the loss of the converted model on all ranks, and that of ours alone."""
    ours = _model()
    data = common.batches(5, get_world_size())
    model: torch_nn.Module = to_torch(trace(_model(), common.own(data[0][0])))
    if kind == "ddp":
        model = torch_nn.parallel.DistributedDataParallel(model)
    else:
        from torch.distributed.device_mesh import init_device_mesh
        from torch.distributed.fsdp import fully_shard

        fully_shard(model, mesh=init_device_mesh("cpu", (get_world_size(),)))
    theirs = torch.optim.SGD(model.parameters(), lr=0.1)
    optimizer = optim.SGD(ours.parameters(), lr=0.1)
    found = []
    for x, y in data:
        part = slice(get_rank() * common.BATCH, (get_rank() + 1) * common.BATCH)
        xs, ys = torch.tensor(x.numpy()[part]), torch.tensor(y.numpy()[part])
        theirs.zero_grad()
        loss = torch_nn.functional.cross_entropy(model(xs)[0], ys)
        loss.backward()
        theirs.step()
        mean = loss.detach().clone()
        torch.distributed.all_reduce(mean)
        optimizer.zero_grad()
        whole = F.cross_entropy(ours(x), y)
        whole.backward()
        optimizer.step()
        found.append((float(mean) / get_world_size(), float(np.asarray(whole.detach()))))
    return found
