from __future__ import annotations

import warnings

import pytest
import torch

import tinytorch
from tinytorch import nn
from tinytorch.compat.amp import PrecisionWarning
from tinytorch.compat.devices import DeviceError

QUESTIONS = ["is_available", "device_count", "memory_allocated", "max_memory_allocated",
             "is_initialized", "memory_reserved"]  # fmt: skip


@pytest.mark.parametrize("name", QUESTIONS)
def test_questions_are_answered_as_by_pytorch_without_a_gpu(name):
    if torch.cuda.is_available():
        pytest.skip("PyTorch has a GPU here and answers otherwise")
    assert getattr(tinytorch.cuda, name)() == getattr(torch.cuda, name)()


def test_setting_up_does_nothing():
    tinytorch.cuda.manual_seed(1)
    tinytorch.cuda.manual_seed_all(1)
    tinytorch.cuda.empty_cache()
    tinytorch.cuda.synchronize()
    tinytorch.backends.cudnn.benchmark = True
    tinytorch.backends.cudnn.deterministic = True
    tinytorch.backends.cuda.matmul.allow_tf32 = True
    tinytorch.set_float32_matmul_precision("high")
    assert not tinytorch.backends.mps.is_available() and tinytorch.cuda.amp is not None
    assert tinytorch.accelerator.current_accelerator() is None
    assert not tinytorch.accelerator.is_available()


def test_what_needs_a_gpu_can_be_named_and_is_refused_when_called():
    event = tinytorch.cuda.Event
    with pytest.raises(DeviceError, match=r"torch\.cuda\.Event needs a GPU"):
        event(enable_timing=True)
    with pytest.raises(DeviceError, match="there is no current GPU"):
        tinytorch.cuda.current_device()


def test_mixed_precision_changes_nothing_and_says_so():
    model = nn.Linear(2, 1)
    optimizer = tinytorch.optim.SGD(model.parameters(), lr=0.1)
    x = tinytorch.ones(3, 2)
    with pytest.warns(PrecisionWarning, match="GradScaler changes nothing"):
        scaler = tinytorch.cuda.amp.GradScaler()
    with (
        pytest.warns(PrecisionWarning, match="autocast changes nothing"),
        tinytorch.autocast("cpu", dtype=tinytorch.float16),
    ):
        loss = model(x).sum()
    assert loss.dtype is tinytorch.float32
    before = model.bias.item()
    scaler.scale(loss).backward()
    scaler.unscale_(optimizer)
    scaler.step(optimizer)
    scaler.update()
    assert model.bias.item() == pytest.approx(before - 0.3)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        with tinytorch.cuda.amp.autocast(enabled=False):
            tinytorch.amp.GradScaler("cuda", enabled=False)
