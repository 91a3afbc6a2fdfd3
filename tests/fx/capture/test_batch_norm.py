from __future__ import annotations

import torch

from tinytorch.fx.capture.batch_norm import WithoutCudnn

aten = torch.ops.aten


def test_the_batch_norm_of_cudnn_becomes_torchs_own() -> None:
    x = torch.randn(4, 3, 5, 5, generator=torch.Generator().manual_seed(0))
    weight, bias = torch.full((3,), 2.0), torch.ones(3)
    mean, own_mean = torch.zeros(3), torch.zeros(3)
    with WithoutCudnn():  # on the CPU, which has no cuDNN
        found = aten.cudnn_batch_norm(x, weight, bias, mean, torch.ones(3), True, 0.1, 1e-5)
    own = aten.native_batch_norm(x, weight, bias, own_mean, torch.ones(3), True, 0.1, 1e-5)
    assert found[0].equal(own[0])
    assert mean.equal(own_mean)
    assert own_mean.any()
