from __future__ import annotations

import pickle
import subprocess
import sys

import pytest
import torch

import tinytorch
from tinytorch.compat.devices import DeviceError


def test_import_does_not_load_compat_and_neither_does_a_conversion():
    code = (
        "import sys, tinytorch\n"
        "tinytorch.zeros(2).to('float64').long()\n"
        "sys.exit('tinytorch.compat' in sys.modules)"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


@pytest.mark.parametrize("args", [("cpu",), ("cpu", 0), ("cpu:0",)])
def test_a_device_reads_like_pytorchs(args):
    ours, theirs = tinytorch.device(*args), torch.device(*args)
    assert (ours.type, ours.index) == (theirs.type, theirs.index)
    assert (repr(ours), str(ours)) == (repr(theirs), str(theirs))
    assert pickle.loads(pickle.dumps(ours)) == ours == tinytorch.device(ours)
    assert (ours == tinytorch.device("cpu")) == (theirs == torch.device("cpu"))


def test_the_device_of_a_tensor():
    x = tinytorch.zeros(2)
    assert x.device == tinytorch.device("cpu") and x.device.type == "cpu"
    assert not x.is_cuda and x.get_device() == -1
    assert x.cpu() is x and x.to("cpu") is x and x.to(x.device, non_blocking=True) is x


@pytest.mark.parametrize(
    "use",
    [
        lambda t: t.zeros(2, device="cpu"),
        lambda t: t.ones((2,), device=t.device("cpu")),
        lambda t: t.tensor([1.0, 2.0], device="cpu", dtype=t.float64),
        lambda t: t.arange(3, device="cpu"),
        lambda t: t.full((2,), 1.5, device="cpu"),
        lambda t: t.zeros_like(t.ones(2), device="cpu", memory_format=t.preserve_format),
        lambda t: t.ones(2).contiguous(memory_format=t.contiguous_format),
        lambda t: t.ones(2).clone(memory_format=t.preserve_format),
        lambda t: t.eye(2, device="cpu"),
        lambda t: t.linspace(0, 1, 3, device="cpu", pin_memory=False),
        lambda t: t.ones(2).to("cpu", t.float64),
        lambda t: t.ones(2).to(t.device("cpu"), dtype=t.int64),
        lambda t: t.ones(2).to(device="cpu"),
        lambda t: t.ones(2).to(t.zeros(1, dtype=t.float64)),
        lambda t: t.ones(2).to(t.float64, non_blocking=True, copy=True),
        lambda t: t.ones(2).type("torch.LongTensor"),
        lambda t: t.ones(2).type(t.float64),
        lambda t: t.ones(2).type_as(t.zeros(1, dtype=t.int64)),
        lambda t: t.FloatTensor([1, 2]),
        lambda t: t.LongTensor([1, 2]),
        lambda t: t.DoubleTensor([[1, 2]]).fill_(0),
        lambda t: t.FloatTensor(2, 3).fill_(1),
        lambda t: t.autograd.Variable(t.ones(2)),
    ],
)
def test_gives_what_pytorch_gives(use):
    ours, theirs = use(tinytorch), use(torch)
    assert ours.tolist() == theirs.tolist()
    assert str(ours.dtype).split(".")[1] == str(theirs.dtype).split(".")[1]
    assert ours.type() == theirs.type()


def test_copy_makes_a_copy():
    x = tinytorch.ones(2)
    x.to("cpu", copy=True)[0] = 5.0
    assert x.tolist() == [1, 1]


@pytest.mark.parametrize(
    "use",
    [
        lambda: tinytorch.device("cuda"),
        lambda: tinytorch.device(0),
        lambda: tinytorch.zeros(2, device="cuda"),
        lambda: tinytorch.randn(2, device="cuda:1"),
        lambda: tinytorch.zeros(2).to("cuda"),
        lambda: tinytorch.zeros(2).to(0),
        lambda: tinytorch.zeros(2).to(device="mps"),
        lambda: tinytorch.zeros(2).cuda(),
    ],
)
def test_another_device_is_refused_with_what_to_write(use):
    with pytest.raises(DeviceError, match=r"there is no (device|GPU).*(cuda\.is_available\(\))"):
        use()


def test_a_variable_is_a_tensor_that_shares_memory():
    x = tinytorch.ones(2)
    v = tinytorch.autograd.Variable(x, requires_grad=True)
    assert isinstance(v, tinytorch.autograd.Variable) and v.requires_grad and not x.requires_grad
    x[0] = 7.0
    assert v.tolist() == [7, 1]
    assert not tinytorch.autograd.Variable(v * 2).requires_grad  # as in PyTorch: it is cut
    with pytest.raises(TypeError, match="no_grad"):
        tinytorch.autograd.Variable(x, volatile=True)


def test_types_are_asked_for_by_isinstance():
    x = tinytorch.zeros(2)
    assert isinstance(x, tinytorch.FloatTensor) and not isinstance(x, tinytorch.LongTensor)
    with pytest.raises(TypeError, match=r"write 'torch\.FloatTensor'"):
        x.type("torch.cuda.FloatTensor")
