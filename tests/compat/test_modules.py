from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

import tinytorch
from tinytorch.compat.modules import PATHS, find_module
from tinytorch.compat.program import installed

PATHS_OF_PROGRAMS = [
    "utils.data", "utils.data.dataset", "utils.checkpoint", "backends.cudnn", "cuda.amp", "amp",
    "nn.functional", "nn.modules.module", "nn.modules.utils", "optim.lr_scheduler",
    "autograd.variable", "nn.parameter", "nn.init", "nn.parallel", "multiprocessing", "distributed",
    "version",
]  # fmt: skip


def test_the_paths_of_pytorchs_are_imported():
    lines = [f"import torch.{path} as m\nassert m.__name__" for path in PATHS_OF_PROGRAMS]
    code = "\n".join(["import tinytorch.as_torch", *lines])
    subprocess.run([sys.executable, "-c", code], check=True)


def test_paths_below_tinytorch():
    code = (
        "from tinytorch.utils.data import DataLoader, Dataset\n"
        "import tinytorch.backends.cudnn as cudnn, tinytorch.nn.functional as F\n"
        "from tinytorch.autograd import Variable\n"
        "from tinytorch.cuda.amp import autocast, GradScaler\n"
        "from tinytorch.nn.modules.utils import _pair\n"
        "from tinytorch.nn.modules.linear import Linear\n"
        "from tinytorch.utils.data.dataset import Dataset as Again\n"
        "import tinytorch\n"
        "assert Linear is tinytorch.nn.Linear and Again is Dataset\n"
        "assert _pair(3) == (3, 3) and DataLoader.__module__ == 'tinytorch.data.dataloader'\n"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


@pytest.mark.parametrize("path", [p for p in PATHS if "*" not in p])
def test_each_path_of_the_table_leads_somewhere(path):
    assert find_module(path) is not None


def test_a_program_that_imports_torch_gets_tinytorch():
    code = (
        "import tinytorch.as_torch\n"
        "import torch, torch.nn as nn, torch.nn.functional as F\n"
        "from torch.utils.data import DataLoader, TensorDataset\n"
        "from torch import optim, Tensor\n"
        "import tinytorch\n"
        "x = torch.ones(2, 3)\n"
        "assert isinstance(x, torch.Tensor) and torch.Tensor is tinytorch.Tensor is Tensor\n"
        "assert nn.Linear(3, 1)(x).shape == (2, 1) and optim.SGD is tinytorch.optim.SGD\n"
        "assert torch.jit.script(len) is len and torch.backends.cudnn.enabled is False\n"
        "assert tinytorch.jit is not torch.jit and torch.__version__[0] == '2'\n"
        "assert F.relu(x).sum().item() == 6\n"
        "assert not torch.distributed.is_available()\n"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


@pytest.mark.slow
def test_as_torch_after_pytorch_is_refused():
    code = "import torch, tinytorch.as_torch"
    done = subprocess.run([sys.executable, "-c", code], check=False, capture_output=True, text=True)
    assert "import tinytorch.as_torch first" in done.stderr


@pytest.mark.parametrize("package", ["tinytorch", "torch"])
def test_a_distribution_that_there_is_not_is_refused_at_its_import(package):
    with installed(), pytest.raises(ImportError, match="this distribution is not there"):
        exec(f"from {package}.distributions import Normal, Beta", {})


def test_a_module_that_there_is_not_says_so():
    code = "import tinytorch.as_torch, torch.utils.mobile_optimizer"
    done = subprocess.run([sys.executable, "-c", code], check=False, capture_output=True, text=True)
    assert "TinyTorch runs this program in place of PyTorch" in done.stderr


def _run(path: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    root = str(Path(tinytorch.__file__).parent.parent)
    return subprocess.run(
        [sys.executable, "-m", "tinytorch", *arguments],
        cwd=path,
        env=os.environ | {"PYTHONPATH": root},
        capture_output=True,
        text=True,
        check=False,
    )


def test_python_m_tinytorch_runs_a_program(tmp_path):
    (tmp_path / "helper.py").write_text("import torch\nx = torch.ones(2)\n")
    (tmp_path / "program.py").write_text(
        "import sys, torch, helper, tinytorch\n"
        "if __name__ == '__main__':\n"
        "    print(sys.argv[1:], torch.Tensor is tinytorch.Tensor, helper.x.sum().item())\n"
    )
    done = _run(tmp_path, "--backend", "numpy", "program.py", "--lr", "0.1")
    assert done.stdout == "['--lr', '0.1'] True 2.0\n", done.stderr
    assert "no file 'none.py'" in _run(tmp_path, "none.py").stderr
    assert "usage" in _run(tmp_path, "--help").stdout


def test_an_unexpected_keyword_is_explained(tmp_path):
    (tmp_path / "program.py").write_text("import torch\ntorch.ones(2).sum(out=torch.zeros(1))\n")
    done = _run(tmp_path, "--backend=numpy", "program.py")
    assert done.returncode == 1 and "TinyTorch: assign the result" in done.stderr


def test_a_missing_name_says_what_to_write(tmp_path):
    with pytest.raises(AttributeError, match="there are no sparse tensors"):
        tinytorch.ones(2).to_sparse()
    with pytest.raises(ImportError, match="there are no sparse tensors"):
        from tinytorch import sparse_coo_tensor
    with pytest.raises(ImportError, match="there are no sparse tensors"), installed():
        from torch import sparse_coo_tensor  # noqa: F401
    with pytest.raises(AttributeError, match=r"has no attribute 'no_such_name'$"):
        tinytorch.nn.no_such_name  # noqa: B018


def test_base_classes_of_layers_are_found_at_pytorchs_paths():
    import torch

    from tinytorch import nn

    paths = (
        *("loss._Loss", "loss._WeightedLoss", "conv._ConvNd", "conv._ConvTransposeNd"),
        *("batchnorm._NormBase", "batchnorm._BatchNorm", "instancenorm._InstanceNorm"),
        *("dropout._DropoutNd", "rnn.RNNBase", "linear.Linear", "container.Sequential"),
    )
    layers = "Conv2d ConvTranspose2d BatchNorm1d InstanceNorm1d Dropout LSTM Linear MSELoss NLLLoss"
    for path in paths:
        file, name = path.split(".")
        theirs = getattr(getattr(torch.nn.modules, file), name)
        ours = getattr(getattr(nn.modules, file), name)
        for layer in layers.split():
            expected = issubclass(getattr(torch.nn, layer), theirs)
            if name != "_WeightedLoss":
                assert issubclass(getattr(nn, layer), ours) is expected, (path, layer)
    with pytest.raises(AttributeError, match="_Foo"):
        nn.modules.loss._Foo  # noqa: B018


def test_a_loss_of_the_users_derives_from_pytorchs_base_class():
    from tinytorch.nn.modules.loss import _Loss, _WeightedLoss

    class Squares(_Loss):
        def forward(self, x, y):
            return ((x - y) ** 2).sum() if self.reduction == "sum" else ((x - y) ** 2).mean()

    assert Squares(reduction="sum")(tinytorch.ones(3), tinytorch.zeros(3)).item() == 3.0
    assert [*_WeightedLoss(tinytorch.ones(2)).state_dict()] == ["weight"]


def test_distributed_is_available():
    pytest.importorskip("torch")
    assert tinytorch.distributed.is_available() and not tinytorch.distributed.is_initialized()


def test_checkpoint_passes_other_keywords_on():
    from tinytorch.utils.checkpoint import checkpoint

    w = tinytorch.ones(2, requires_grad=True)
    y = checkpoint(lambda x, k: x * k, tinytorch.ones(2), k=w, use_reentrant=False)
    y.sum().backward()
    assert w.grad.tolist() == [1.0, 1.0]


def test_a_module_that_there_is_not_says_what_to_use():
    from tinytorch.compat.program import installed

    with installed():
        with pytest.raises(ModuleNotFoundError, match=r"swa_utils.*use copy\.deepcopy\(model\)"):
            from torch.optim.swa_utils import AveragedModel  # noqa: F401
        with pytest.raises(ModuleNotFoundError, match="use tensorboardX"):
            from torch.utils.tensorboard import SummaryWriter  # noqa: F401
        from torch.nn.utils.clip_grad import clip_grad_norm_

        assert clip_grad_norm_ is tinytorch.nn.utils.clip_grad_norm_
        with pytest.raises(ModuleNotFoundError, match=r"see docs/pytorch\.md"):
            import torch.no_such_module
        with pytest.raises(ModuleNotFoundError, match=r"torch\.fx.*use tinytorch\.graph"):
            from torch.fx import symbolic_trace  # noqa: F401
        with pytest.raises(ModuleNotFoundError, match=r"no module named 'torch\.fx'"):
            import torch.fx.node  # noqa: F401


def test_detect_anomaly_says_that_it_finds_nothing():
    with (
        pytest.warns(UserWarning, match="no gradient is searched for NaN"),
        tinytorch.autograd.detect_anomaly(),
    ):
        pass
    tinytorch.autograd.set_detect_anomaly(False)


def test_a_repr_of_the_users_asks_for_the_name_of_the_class():
    class Block(tinytorch.nn.Module):
        def __repr__(self):
            return self._get_name() + "()"

    assert repr(Block()) == "Block()"


def test_layers_of_the_users_ask_for_the_fans_of_a_weight():
    from tinytorch.nn.init import _calculate_correct_fan, _calculate_fan_in_and_fan_out

    weight = tinytorch.zeros(6, 3, 2, 2)
    assert _calculate_fan_in_and_fan_out(weight) == (12, 24)
    assert _calculate_correct_fan(weight, "fan_out") == 24
    with pytest.raises(ValueError, match="not 'fan'"):
        tinytorch.nn.init._calculate_correct_fan(weight, "fan")


def test_a_module_is_looked_for_once(monkeypatch):
    monkeypatch.delitem(vars(tinytorch), "linalg", raising=False)
    found = tinytorch.linalg
    monkeypatch.setattr(tinytorch.absent, "name_of", lambda *names: pytest.fail(f"{names}"))
    assert tinytorch.linalg is found
