"""Layers and operators of PyTorch that become ours: other norms, convolutions, resizing, order."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import tinytorch
from tinytorch.fx.convert.exchange import tensor_from_torch, tensor_to_torch
from tinytorch.fx.convert.from_torch import from_torch

IMAGES, SIGNALS, ROWS, VOLUMES = (2, 4, 6, 5), (2, 4, 9), (3, 7), (2, 4, 5, 6, 7)


class Function(nn.Module):
    def __init__(self, function: Any) -> None:
        super().__init__()
        self.function = function

    def forward(self, *inputs: Tensor) -> Any:
        return self.function(*inputs)


def reduced(how: str, include_self: bool) -> nn.Module:
    start = torch.full((3, 5), 0.25)
    return Function(
        lambda x: start.scatter_reduce(
            1, (x * 3).long() % 5, x, how, include_self=include_self
        )
    )  # fmt: skip


def put(indices: Any, shape: tuple[int, ...], *, accumulate: bool = False) -> nn.Module:
    """Values at indices of a tensor; places are met once, or values add up."""

    def function(x: Tensor) -> Any:
        values = x.flatten()[: math.prod(shape)].reshape(shape) + 1
        return torch.ops.aten.index_put(x, list(indices), values, accumulate)

    return Function(function)


def sampled(mode: str, border: str, corners: bool) -> nn.Module:
    grid = torch.rand(2, 3, 4, 2) * 3 - 1.5  # some of it is outside
    return Function(lambda x: nn.functional.grid_sample(x, grid, mode, border, corners))


FORMS = torch.randn(5, 7, 4, generator=torch.Generator().manual_seed(0))
AT, BESIDE = torch.tensor([[0, 3], [1, -1]]), torch.tensor([1, 0])

CASES: dict[str, tuple[nn.Module, tuple[int, ...]]] = {
    "group norm": (nn.GroupNorm(2, 4), IMAGES),
    "group norm, no weights": (nn.GroupNorm(4, 4, affine=False), SIGNALS),
    "instance norm": (nn.InstanceNorm2d(4, affine=True), IMAGES),
    "instance norm 1d": (nn.InstanceNorm1d(4), SIGNALS),
    "conv1d": (nn.Conv1d(4, 3, 3, padding=1, stride=2), SIGNALS),
    "conv1d, groups": (nn.Conv1d(4, 6, 3, dilation=2, groups=2, bias=False), SIGNALS),
    "transposed 2d": (nn.ConvTranspose2d(4, 3, 3, 2, padding=1, output_padding=1), IMAGES),
    "transposed 2d, groups": (nn.ConvTranspose2d(4, 6, (3, 2), (2, 3), groups=2, dilation=2),
                              IMAGES),
    "transposed 2d, dilated": (
        nn.ConvTranspose2d(4, 3, 3, dilation=2, padding=1, output_padding=1), IMAGES,
    ),
    "transposed 1d": (nn.ConvTranspose1d(4, 3, 3, stride=2, bias=False), SIGNALS),
    "nearest": (nn.Upsample(scale_factor=2), IMAGES),
    "nearest, to a size": (nn.Upsample(size=(4, 13)), IMAGES),
    "nearest, odd factor": (nn.Upsample(scale_factor=1.7), IMAGES),
    "bilinear": (nn.Upsample(scale_factor=2, mode="bilinear"), IMAGES),
    "bilinear, smaller": (nn.Upsample(size=(3, 4), mode="bilinear"), IMAGES),
    "bilinear, corners": (nn.Upsample(size=(9, 11), mode="bilinear", align_corners=True), IMAGES),
    "linear 1d": (nn.Upsample(scale_factor=2, mode="linear"), SIGNALS),
    "conv3d": (nn.Conv3d(4, 3, 3, padding=1, stride=2), VOLUMES),
    "conv3d, groups": (nn.Conv3d(4, 6, (2, 3, 1), dilation=(2, 1, 1), groups=2, bias=False),
                       VOLUMES),
    "conv3d, patches": (nn.Conv3d(4, 3, (2, 3, 3), (2, 3, 3)), VOLUMES),
    "avg_pool3d": (nn.AvgPool3d((2, 3, 2), (1, 2, 2), padding=(1, 1, 0)), VOLUMES),
    "max_pool3d": (nn.MaxPool3d((2, 3, 2), (1, 2, 2), padding=(1, 1, 0), return_indices=True),
                   VOLUMES),
    "adaptive_avg_pool3d": (nn.AdaptiveAvgPool3d((2, 3, 1)), VOLUMES),
    "reflected": (nn.ReflectionPad2d((1, 2, 0, 3)), IMAGES),
    "reflected volumes": (nn.ReflectionPad3d((1, 2, 0, 1, 1, 0)), VOLUMES),
    "replicated": (nn.ReplicationPad3d((1, 2, 0, 3, 2, 1)), VOLUMES),
    **{f"sampled {mode} {border} {corners}": (sampled(mode, border, corners), IMAGES)
       for mode in ("bilinear", "nearest") for border in ("zeros", "border")
       for corners in (True, False)},
    "put, whole before": (put((None, AT), (3, 2, 2)), ROWS),
    "put, side by side": (put((None, BESIDE, BESIDE), (2, 2, 5)), IMAGES),
    "put, apart": (put((BESIDE, None, BESIDE), (2, 4, 5)), IMAGES),
    "put, added up": (put((None, torch.tensor([1, 1, 0])), (2, 3, 6, 5), accumulate=True), IMAGES),
    "put at a mask": (Function(lambda x: x.index_put((x > 0.5,), torch.tensor(2.0))), ROWS),
    "masked scatter": (Function(lambda x: x.masked_scatter(x > 0.5, x.flip(0))), ROWS),
    "largest of all": (Function(lambda x: (x.max(), x.min())), ROWS),
    "diagonal": (Function(lambda x: x.diagonal(1, -2, -1) * 2), IMAGES),
    "folded": (Function(lambda x: nn.functional.fold(x, (5, 4), 2, padding=1)), (2, 12, 30)),
    "adaptive max pool": (nn.AdaptiveMaxPool2d((3, 2), return_indices=True), IMAGES),
    "adaptive max pool 1d": (nn.AdaptiveMaxPool1d(4), SIGNALS),
    "bilinear form": (
        Function(lambda x: nn.functional.bilinear(x, x.flip(0)[:, :4], FORMS, FORMS[:, 0, 0])),
        ROWS,
    ),
    "scans": (
        Function(lambda x: (x.cumprod(1), x.cummax(0), x.cummin(1), x.logcumsumexp(0))), ROWS,
    ),
    "medians": (Function(lambda x: (x.median(), x.median(1), x.kthvalue(2, 0))), ROWS),
    "signs": (
        Function(lambda x: (x.copysign(-2.0), x.copysign(x - 0.5), (x - 0.5).signbit())), ROWS,
    ),
    "places": (
        Function(lambda x: (torch.searchsorted(x[0].cumsum(0), 0.7),
                            torch.bucketize(x, x[1].cumsum(0), right=True))), ROWS,
    ),
    "triangles": (Function(lambda x: x[:, :3].take(torch.tril_indices(3, 3)[0])), ROWS),
    "erfc, erfinv": (Function(lambda x: (x.erfc(), (x / 4).erfinv(), x.exp2())), ROWS),
    "quotients": (Function(lambda x: torch.div(x - 1, 0.3, rounding_mode="trunc")), ROWS),
    "products": (
        Function(lambda x: (torch.addmv(x[:, 0], x, x[0], alpha=2), x.dist(x.flip(0)),
                            x.hypot(x + 1))), ROWS,
    ),
    "distances": (Function(lambda x: torch.cdist(x, x.flip(0) + 1)), ROWS),
    "variance": (Function(lambda x: x.var(1)), ROWS),
    "variance and mean": (Function(lambda x: torch.var_mean(x, 1, correction=0)), ROWS),
    "one hot": (Function(lambda x: nn.functional.one_hot((x > 0.5).long(), 3)), ROWS),
    "topk": (Function(lambda x: torch.topk(x, 3, dim=1)), ROWS),
    "topk, smallest": (Function(lambda x: torch.topk(x, 2, dim=0, largest=False)), ROWS),
    "sort": (Function(lambda x: torch.sort(x, dim=0, descending=True)), ROWS),
    "sort, stable": (Function(lambda x: torch.sort(x.round(), stable=True)), ROWS),
    "argsort": (Function(lambda x: x.argsort(-1)), ROWS),
    "copy": (Function(lambda x: torch.zeros(3, 7).copy_(x[0])), ROWS),
    **{f"scatter {how}{'' if own else ', without self'}": (reduced(how, own), ROWS)
       for how in ("sum", "mean", "amax", "amin", "prod") for own in (True, False)},
}  # fmt: skip


class All(nn.Module):
    """The cases side by side: PyTorch takes longer to export a graph than to run one."""

    def __init__(self) -> None:
        super().__init__()
        self.cases = nn.ModuleList(model for model, _ in CASES.values())

    def forward(self, *inputs: Tensor) -> dict[str, Any]:
        return {n: case(x) for n, case, x in zip(CASES, self.cases, inputs, strict=True)}


@pytest.mark.slow
def test_it_computes_what_pytorch_does() -> None:
    torch.manual_seed(0)
    model = All().eval()
    for parameter in model.parameters():
        nn.init.normal_(parameter)
    shapes = [shape for _, shape in CASES.values()]
    example, other = [torch.rand(s) for s in shapes], [torch.rand(s) * 3 for s in shapes]
    with tinytorch.using_backend("numpy"), tinytorch.no_grad():
        module = from_torch(model, tuple(example))
        for xs in (example, other):
            with torch.no_grad():
                expected = torch.utils._pytree.tree_flatten_with_path(model(*xs))[0]
            found = [tensor_to_torch(y) for y in module(*map(tensor_from_torch, xs))]
            for a, (path, b) in zip(found, expected, strict=True):
                # the error of a sum is that of its terms, of which the largest result is a measure
                size = max(1.0, b.double().nan_to_num(posinf=0, neginf=0).abs().max().item())
                torch.testing.assert_close(
                    a, b, rtol=2e-5, atol=2e-6 * size, msg=lambda text, p=path: f"{p}: {text}"
                )
