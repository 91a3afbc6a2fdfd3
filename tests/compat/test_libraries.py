"""Other libraries take tensors: einops, array_api_compat, safetensors, matplotlib, pandas."""

from __future__ import annotations

import subprocess
import sys

import numpy as np
import pytest
import torch

import tinytorch
from tinytorch import nn


def pair(rng, *shape):
    array = rng.standard_normal(shape).astype(np.float32)
    return tinytorch.tensor(array, requires_grad=True), torch.tensor(array, requires_grad=True)


def assert_same(ours, theirs):
    assert isinstance(ours, tinytorch.Tensor) and ours.shape == tuple(theirs.shape)
    np.testing.assert_allclose(ours.detach().numpy(), theirs.detach().numpy(), rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize(
    "use",
    [
        lambda e, x: e.rearrange(x, "b c (h p) w -> b h (c p w)", p=2),
        lambda e, x: e.rearrange(x, "b ... -> (...) b"),
        lambda e, x: e.reduce(x, "b c h w -> b c", "mean"),
        lambda e, x: e.reduce(x, "b c (h 2) (w 2) -> b c h w", "max"),
        lambda e, x: e.reduce(x, "b c h w -> c 1 1", "sum"),
        lambda e, x: e.reduce(x, "b c h w -> b", "prod"),
        lambda e, x: e.repeat(x, "b c h w -> b (c 2) h w three", three=3),
        lambda e, x: e.einsum(x, x, "b c h w, b d h w -> b c d"),
        lambda e, x: e.rearrange([x, 2 * x], "n b c h w -> b n c h w"),
        lambda e, x: e.pack([x, x[:, 0]], "b * w")[0],
    ],
)
def test_einops_gives_values_and_gradients_as_with_pytorch(use, rng):
    einops = pytest.importorskip("einops")
    x, y = pair(rng, 2, 3, 4, 6)
    ours, theirs = use(einops, x), use(einops, y)
    assert_same(ours, theirs)
    (ours**2).sum().backward()
    (theirs**2).sum().backward()
    assert_same(x.grad, y.grad)


def test_einops_is_traced():
    pytest.importorskip("einops")
    code = (
        "import einops, tinytorch\n"
        "swap = lambda t: einops.rearrange(t, 'a (b c) -> b a c', b=3)\n"
        "assert 'permute' in str(tinytorch.graph.trace(swap, tinytorch.zeros(2, 6)))\n"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


def test_the_layers_of_einops(rng):
    pytest.importorskip("einops")
    from einops.layers.torch import EinMix as TorchEinMix, Rearrange as TorchRearrange

    from tinytorch.compat.einops_layers import EinMix, Rearrange, Reduce

    x, y = pair(rng, 2, 3, 4, 6)
    patches = "b c (h p) (w q) -> b h w (p q c)"
    model = nn.Sequential(
        Rearrange(patches, p=2, q=2), nn.Linear(12, 5), Reduce("b h w c -> b c", "mean")
    )
    assert model(x).shape == (2, 5) and "Rearrange" in repr(model)
    assert_same(model[0](x), TorchRearrange(patches, p=2, q=2)(y))
    arguments = ("b c h w -> b (d h) w", "c d h")
    options = {"bias_shape": "d h", "c": 3, "d": 2, "h": 4}
    ours, theirs = EinMix(*arguments, **options), TorchEinMix(*arguments, **options)
    for name, parameter in theirs.named_parameters():
        getattr(ours, name).detach().copy_(tinytorch.tensor(parameter.detach().numpy()))
    assert_same(ours(x), theirs(y))
    assert [n for n, _ in ours.named_parameters()] == [n for n, _ in theirs.named_parameters()]


@pytest.mark.parametrize("order", ["import einops, tinytorch", "import tinytorch, einops"])
def test_einops_knows_tensors_whichever_is_imported_first(order):
    pytest.importorskip("einops")
    code = (
        f"{order}\nimport sys\n"
        "assert einops.rearrange(tinytorch.zeros(2, 3), 'a b -> b a').shape == (3, 2)\n"
        "assert 'torch' not in sys.modules\n"
        "import tinytorch.as_torch, torch\n"
        "from einops.layers.torch import Rearrange\n"
        "assert Rearrange('a b -> (a b)')(torch.zeros(2, 3)).shape == (6,)\n"
        "assert isinstance(Rearrange('a b -> (a b)'), torch.nn.Module)\n"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


def test_array_api_compat_finds_a_namespace(rng):
    compat = pytest.importorskip("array_api_compat")
    x, _ = pair(rng, 3, 4)
    xp = compat.array_namespace(x)

    def standardized(xp, a):
        centered = a - xp.mean(a, axis=0, keepdims=True)
        scaled = centered / xp.std(centered, axis=0, keepdims=True)
        both = xp.concat([scaled, xp.astype(xp.greater(a, 0), xp.float32)], axis=1)
        return xp.matmul(xp.permute_dims(both, (1, 0)), both) + xp.max(a)

    ours = standardized(xp, x)
    np.testing.assert_allclose(
        ours.detach().numpy(), standardized(np, x.detach().numpy()), rtol=1e-4, atol=1e-5
    )
    assert xp.isdtype(x.dtype, "real floating") and not xp.isdtype(x.dtype, "integral")
    assert xp.asarray([1, 2]).shape == (2,) and xp.expand_dims(x, axis=1).shape == (3, 1, 4)
    ours.sum().backward()
    assert x.grad is not None


def test_safetensors_take_the_arrays_of_a_model(tmp_path):
    numpy = pytest.importorskip("safetensors.numpy")
    model = nn.Linear(3, 2)
    numpy.save_file(
        {k: np.asarray(v.detach()) for k, v in model.state_dict().items()}, tmp_path / "m"
    )
    other = nn.Linear(3, 2)
    other.load_state_dict(numpy.load_file(tmp_path / "m"))
    assert other.weight.tolist() == model.weight.tolist()


def test_matplotlib_draws_tensors():
    matplotlib = pytest.importorskip("matplotlib")
    matplotlib.use("Agg")
    from matplotlib import pyplot

    figure, axes = pyplot.subplots()
    (line,) = axes.plot(tinytorch.arange(3), tinytorch.tensor([1.0, 4.0, 9.0]))
    assert line.get_ydata().tolist() == [1, 4, 9]
    image = axes.imshow(tinytorch.zeros(4, 5))
    assert image.get_array().shape == (4, 5)
    axes.hist(tinytorch.tensor([1.0, 2.0, 2.0]))
    axes.scatter(tinytorch.zeros(3), tinytorch.ones(3))
    pyplot.close(figure)


@pytest.mark.slow
def test_pandas_takes_tensors():
    pandas = pytest.importorskip("pandas")
    x = tinytorch.tensor([[1.0, 2.0], [3.0, 4.0]])
    frame = pandas.DataFrame(x, columns=["a", "b"])
    assert frame["b"].tolist() == [2, 4]
    assert pandas.Series(tinytorch.arange(3)).sum() == 3
    assert pandas.DataFrame({"a": x[:, 0], "b": x[:, 1]})["a"].tolist() == [1, 3]
    assert tinytorch.tensor(frame.values).tolist() == x.tolist()
