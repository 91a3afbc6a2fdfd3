from __future__ import annotations

import json
from collections.abc import Iterator

import pytest
import torch
from torch import nn

from tinytorch.fx.optimize.precision import BFLOAT16, FLOAT32, TF32, precision, precisions_of
from tinytorch.fx.optimize.speed_comparison import compare_speed

CPU, CUDA = torch.device("cpu"), torch.device("cuda")


def flags() -> tuple[bool, bool]:
    return torch.backends.cuda.matmul.allow_tf32, torch.backends.cudnn.allow_tf32


@pytest.fixture
def outer_flags() -> Iterator[None]:
    before = flags()
    yield
    torch.backends.cuda.matmul.allow_tf32, torch.backends.cudnn.allow_tf32 = before


@pytest.mark.filterwarnings("ignore:.*CUDA is not available")
@pytest.mark.usefixtures("outer_flags")
@pytest.mark.parametrize("outside", [True, False])
def test_tf32_is_set_and_put_back(outside: bool) -> None:
    torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = outside
    assert precisions_of(CUDA) == (FLOAT32, TF32, BFLOAT16)
    for kind, allowed in ((FLOAT32, False), (TF32, True), (BFLOAT16, False)):
        with precision(kind, CUDA):
            assert flags() == (allowed, allowed)
        assert flags() == (outside, outside)
    with pytest.raises(RuntimeError, match="inside"), precision(TF32, CUDA):
        raise RuntimeError("inside")
    assert flags() == (outside, outside)


def test_the_cpu_has_no_tf32() -> None:
    assert precisions_of(CPU) == precisions_of(torch.device("mps")) == (FLOAT32, BFLOAT16)
    wrong = pytest.raises(ValueError, match="cpu does not compute in 'TF32'; it has float32, bf")
    with wrong, precision(TF32, CPU):
        pass
    with precision(BFLOAT16, CPU):
        assert (torch.ones(2, 2) @ torch.ones(2, 2)).dtype == torch.bfloat16
        with precision(FLOAT32, CPU):  # whatever is set outside
            assert (torch.ones(2, 2) @ torch.ones(2, 2)).dtype == torch.float32


@pytest.mark.parametrize("backward", [False, True])
def test_a_row_for_each_precision(backward: bool) -> None:
    model = nn.Linear(64, 64)
    found = compare_speed(
        model, model, (torch.ones(8, 64),), CPU, backward=backward, calls=(1, 1), rounds=2
    )
    assert list(found.others) == [BFLOAT16]
    original, optimized = found.others[BFLOAT16]
    assert original.median > 0 and optimized is None
    assert "time of a call, float32" in str(found) and "in bfloat16 autocast" in str(found)
    assert json.loads(json.dumps(found.to_dict()))["precisions"][BFLOAT16]["optimized"] is None
