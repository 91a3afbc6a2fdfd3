"""Heads, and channels that are concatenated: what is left computes the masked model's results."""

from __future__ import annotations

import numpy as np
import pytest

import tinytorch
from tinytorch import nn
from tinytorch.compression import find_channels, keep_channels_, prune_channels_
from tinytorch.compression.channels import Channels
from tinytorch.errors import ShapeError
from tinytorch.nn import functional as F
from tinytorch.nn.gpt import GPT, GPTConfig

Kept = dict[str, list[int]]


class Dense(nn.Module):
    """Layers of random widths, each of which reads all before it, in the manner of a DenseNet."""

    def __init__(self, rng: np.random.Generator) -> None:
        super().__init__()
        widths = [3, *(int(n) for n in rng.integers(1, 9, 3))]
        self.layers = nn.ModuleList(
            nn.Conv2d(sum(widths[:i]), widths[i], 3, padding=1) for i in range(1, 4)
        )
        self.norm = nn.BatchNorm2d(sum(widths))
        self.head = nn.Linear(sum(widths) * 4, 2)

    def forward(self, x: tinytorch.Tensor) -> tinytorch.Tensor:
        for layer in self.layers:
            x = tinytorch.cat([x, F.relu(layer(x))], 1)
        return self.head(self.norm(x).flatten(1))


class Branches(nn.Module):
    """A sum of two concatenations that are divided in different places, one of them gated."""

    def __init__(self, rng: np.random.Generator) -> None:
        super().__init__()
        a, b, c = (int(n) for n in rng.integers(2, 6, 3))
        self.a, self.b = nn.Linear(4, a), nn.Linear(4, b + c)
        self.c, self.d = nn.Linear(4, a + b), nn.Linear(4, 2 * c)
        self.head = nn.Linear(a + b + c, 2)

    def forward(self, x: tinytorch.Tensor) -> tinytorch.Tensor:
        gate, up = self.d(x).chunk(2, -1)
        first = tinytorch.cat([self.a(x), self.b(x)], -1)
        return self.head(F.tanh(first + tinytorch.cat([self.c(x), F.sigmoid(gate) * up], -1)))


class Attention(nn.Module):
    """Attention to oneself or to another, with masks and biases as they fall."""

    def __init__(self, rng: np.random.Generator) -> None:
        super().__init__()
        heads, width = int(rng.integers(2, 5)), int(rng.integers(1, 5))
        e, self.other = heads * width, bool(rng.integers(2))
        self.first = nn.Linear(4, e)
        self.attention = nn.MultiheadAttention(
            e, heads, bias=bool(rng.integers(2)), add_bias_kv=bool(rng.integers(2)),
            kdim=4 if self.other else None, vdim=4 if self.other else None,
            batch_first=bool(rng.integers(2)),
        )  # fmt: skip
        self.weighted = bool(rng.integers(2))

    def forward(self, x: tinytorch.Tensor) -> tinytorch.Tensor:
        q = self.first(x)
        k = x if self.other else q
        return self.attention(q, k, k, need_weights=self.weighted)[0]


def masked(model: nn.Module, groups: list[Channels], kept: Kept) -> None:
    """Let nobody read the channels that are not kept."""
    tensors = dict(model.named_parameters())
    for group in groups:
        gone = np.setdiff1d(np.arange(group.size), kept.get(group.name, range(group.size)))
        for part in group.parts:
            if part.dim == 1 and tensors[part.tensor].ndim in (2, 4):
                tensors[part.tensor].detach().numpy()[:, part.indices(gone)] = 0


def drawn(rng: np.random.Generator, groups: list[Channels]) -> Kept:
    """Some channels of each group, at least one."""
    return {
        g.name: sorted(rng.permutation(g.size)[: rng.integers(1, g.size)].tolist())
        for g in groups
        if g.fixed is None
    }


@pytest.mark.slow_beyond(1)
@pytest.mark.parametrize(
    "seed", [0, 1, *(pytest.param(seed, marks=pytest.mark.slow) for seed in range(2, 6))]
)
@pytest.mark.parametrize("kind", [Dense, Branches, Attention])
def test_nets_of_random_sizes(kind: type[nn.Module], seed: int) -> None:
    rng = np.random.default_rng(seed)
    state = rng.bit_generator.state
    models = []
    for _ in range(2):
        rng.bit_generator.state = state
        tinytorch.manual_seed(seed)
        models.append(kind(rng).eval())
    small, whole = models
    x = tinytorch.randn(2, 3, 2, 2) if kind is Dense else tinytorch.randn(2, 3, 4)
    groups = find_channels(small, x)
    kept = drawn(rng, groups)
    assert kept
    masked(whole, groups, kept)
    before = sum(p.numel() for p in small.parameters())
    keep_channels_(small, x, keep=kept, groups=groups)
    assert sum(p.numel() for p in small.parameters()) < before
    with tinytorch.no_grad():
        np.testing.assert_allclose(small(x).numpy(), whole(x).numpy(), rtol=2e-4, atol=2e-5)


CHOICES = {
    "plain": {},
    "grouped": {"kv_heads": 2},
    "modern": {"kv_heads": 2, "qk_norm": True, "positions": "rotary", "window": 3, "norm": "rms"},
}


@pytest.mark.slow_beyond(1)
@pytest.mark.parametrize("choice", CHOICES)
def test_a_gpt_loses_heads_of_its_own_in_each_block(choice: str) -> None:
    config = GPTConfig(11, 8, layers=2, heads=4, width=16, **CHOICES[choice])
    small, whole = (GPT(config).eval() for _ in "ab")
    whole.load_state_dict(small.state_dict())
    x = tinytorch.randint(0, 11, (2, 8))
    groups = find_channels(small, x)
    sizes = {g.name: g.size for g in groups if g.name.endswith("qkv.weight")}
    heads = config.kv_heads or 4
    assert sizes == {f"blocks.{i}.attention.qkv.weight": heads for i in range(2)}
    kept = {f"blocks.{i}.attention.qkv.weight": [[1], [0]][i] for i in range(2)}
    if heads == 4:
        kept["blocks.0.attention.qkv.weight"] = [1, 2]
    masked(whole, groups, kept)
    keep_channels_(small, x, keep=kept, groups=groups)
    assert small.blocks[1].attention.qkv.weight.shape[0] < 48 // 2
    with tinytorch.no_grad():
        np.testing.assert_allclose(small(x).numpy(), whole(x).numpy(), rtol=2e-4, atol=2e-5)
        cache = small.make_cache(2, 8)
        steps = [small(x[:, i : i + 1], cache).numpy() for i in range(8)]
    np.testing.assert_allclose(
        np.concatenate(steps, 1), whole(x).detach().numpy(), rtol=2e-4, atol=2e-5
    )
    small.train()
    small(x).sum().backward()
    assert all(p.grad is not None and p.grad.shape == p.shape for p in small.parameters())


def test_heads_whose_mean_weights_are_a_result_stay() -> None:
    model = nn.MultiheadAttention(8, 2)
    x = tinytorch.randn(3, 2, 8)
    (reason,) = {g.fixed for g in find_channels(model, x, x, x) if g.name == "in_proj_weight"}
    assert reason is not None and "sum uses all of it at once" in reason


class Written(nn.Module):
    """Slices whose bounds are numbers in the code."""

    def __init__(self, first: slice, second: slice, width: int) -> None:
        super().__init__()
        self.up, self.first, self.second = nn.Linear(4, 6), first, second
        self.down = nn.Linear(width, 2)

    def forward(self, x: tinytorch.Tensor) -> tinytorch.Tensor:
        y = self.up(x)
        return self.down(tinytorch.cat([F.relu(y[:, self.first]), F.tanh(y[:, self.second])], 1))


@pytest.mark.slow
def test_a_slice_that_would_take_other_channels_is_refused() -> None:
    x = tinytorch.randn(5, 4)
    model = Written(slice(0, 2), slice(2, 6), 6)
    before = model(x).detach().numpy()
    names = {g.name: g.size for g in find_channels(model, x) if g.fixed is None}
    assert names == {"up.weight[0:2]": 2, "up.weight[2:6]": 4}
    with pytest.raises(ShapeError, match=r"of up.weight\[0:2\], .*: slice at .*, where .* is left"):
        keep_channels_(model, x, keep={"up.weight[0:2]": [1]})  # it would run, and be wrong
    np.testing.assert_array_equal(model(x).detach().numpy(), before)
    keep_channels_(model, x, keep={"up.weight[2:6]": [0, 2]})  # what is behind may shrink
    assert model.up.weight.shape == (4, 4) and model.down.weight.shape == (2, 4)


@pytest.mark.slow
def test_a_slice_with_a_step_is_not_followed() -> None:
    model = Written(slice(0, 6, 2), slice(1, 6, 2), 6)
    groups = find_channels(model, tinytorch.randn(5, 4))
    reasons = {g.name: g.fixed or "" for g in groups}
    assert "slice takes a part of it at" in reasons["up.weight"]
    with pytest.raises(ValueError, match=r"no channel of up.weight can be removed: slice takes"):
        prune_channels_(model, tinytorch.randn(5, 4), amount={"up.weight": 0.5})
