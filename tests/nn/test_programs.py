"""Idioms of PyTorch programs around modules: how they are changed, read and written."""

from __future__ import annotations

import pytest
import torch

import tinytorch
from tinytorch import nn


def in_both(program):
    """What a program gives with our library and with PyTorch; both are equal."""
    ours, theirs = program(tinytorch, nn), program(torch, torch.nn)
    assert ours == theirs
    return ours


def test_a_head_is_replaced_and_layers_are_frozen():
    def program(torch, nn):
        net = nn.Sequential(nn.Linear(4, 8), nn.BatchNorm1d(8), nn.ReLU(inplace=True))
        net.add_module("fc", nn.Linear(8, 2))
        for parameter in net.parameters():
            parameter.requires_grad = False
        net.fc = nn.Linear(net.fc.in_features, 3, bias=False, dtype=torch.float64)
        named = [(n, tuple(p.shape), p.requires_grad) for n, p in net.named_parameters()]
        modules = [(n, type(m).__name__) for n, m in net.named_modules()]
        return named, modules, list(net._modules), [n for n, _ in net.named_children()]

    in_both(program)


def test_blocks_are_made_in_a_loop():
    def program(torch, nn):
        layers = nn.ModuleList()
        for i in range(3):
            block = nn.Sequential()
            block.add_module("conv", nn.Conv2d(1 + i, 2 + i, 3, padding=1, bias=False))
            block.add_module("norm", nn.BatchNorm2d(2 + i))
            block.add_module("act", nn.LeakyReLU(0.2, inplace=True))
            layers.append(block)
        net = nn.Sequential(*layers)
        x = torch.ones(2, 1, 4, 4)
        return list(net.state_dict()), tuple(net(x).shape), len(net), len(net[1])

    in_both(program)


def test_modules_are_found_and_replaced_by_walking():
    def program(torch, nn):
        net = nn.Sequential(nn.Linear(2, 2), nn.ReLU(), nn.Sequential(nn.ReLU(), nn.Linear(2, 2)))

        def swap(module):
            for name, child in module.named_children():
                if isinstance(child, nn.ReLU):
                    setattr(module, name, nn.Tanh())
                else:
                    swap(child)

        swap(net)
        kinds = [type(m).__name__ for m in net.modules()]
        parent = net.get_submodule("2")
        parent._modules["0"] = nn.Sigmoid()
        return kinds, [type(m).__name__ for m in net[2]], tuple(net(torch.ones(1, 2)).shape)

    in_both(program)


def test_features_of_a_named_layer():
    def program(torch, nn):
        class Net(nn.Module):
            def __init__(self):
                super().__init__()
                self.layers = nn.ModuleDict({"a": nn.Linear(2, 3), "b": nn.Linear(3, 1)})
                self.scale = nn.Parameter(torch.ones(1))
                self.register_parameter("shift", None)
                self.register_buffer("steps", torch.zeros(1), persistent=False)

            def forward(self, x):
                return self.layers.b(self.layers["a"](x)) * self.scale

        net, seen = Net(), {}
        for name, module in net._modules["layers"].items():
            module.register_forward_hook(
                lambda m, i, o, name=name: seen.__setitem__(name, tuple(o.shape))
            )
        net(torch.ones(5, 2))
        net.steps += 1
        state = net.state_dict()
        other = Net()
        missing = other.load_state_dict(
            {k: v for k, v in state.items() if "b." not in k}, strict=False
        )
        return seen, list(state), missing.missing_keys, net.shift is None, net.steps.tolist()

    in_both(program)


def test_weights_are_initialized_by_apply():
    def program(torch, nn):
        def init(module):
            if isinstance(module, (nn.Linear, nn.Conv2d)):
                nn.init.constant_(module.weight, 0.5)
                if module.bias is not None:
                    nn.init.zeros_(module.bias)
            elif isinstance(module, nn.BatchNorm2d):
                module.weight.data.fill_(2.0)
                module.bias.data.zero_()

        net = nn.Sequential(nn.Conv2d(1, 2, 2), nn.BatchNorm2d(2), nn.Flatten(), nn.Linear(2, 1))
        net.apply(init)
        return [p.tolist() for p in net.parameters()]

    in_both(program)


def test_weights_are_tied_and_shared():
    def program(torch, nn):
        net = nn.ModuleDict({"wte": nn.Embedding(5, 3), "head": nn.Linear(3, 5, bias=False)})
        net.wte.weight = net.head.weight
        same = net.wte.weight is net.head.weight
        return same, len(list(net.parameters())), list(net.state_dict())

    in_both(program)


def test_an_encoder_with_padding_trains():
    tinytorch.manual_seed(0)
    layer = nn.TransformerEncoderLayer(8, 2, 16, batch_first=True)
    net = nn.TransformerEncoder(layer, 2)
    table = nn.Embedding(6, 8, padding_idx=0)
    tokens = tinytorch.tensor([[1, 2, 3, 0], [4, 5, 0, 0]])
    out = net(table(tokens), src_key_padding_mask=tokens == 0)
    out.sum().backward()
    assert table.weight.grad[0].abs().sum().item() == 0
    assert all(p.grad is not None for p in net.parameters())


COMPILED = [pytest.param(name, marks=pytest.mark.slow) for name in ("blocked", "optimized")]


@pytest.mark.parametrize("backend", ["naive", "numpy", *COMPILED])
def test_new_layers_run_on_every_backend(backend, rng):
    """The same results and gradients as on the numpy backend."""
    tinytorch.manual_seed(0)
    up = nn.Sequential(
        nn.ConvTranspose2d(2, 4, 4, 2, 1, bias=False), nn.InstanceNorm2d(4), nn.LeakyReLU(0.2),
        nn.ReflectionPad2d(1), nn.Upsample(scale_factor=2, mode="bilinear"), nn.PixelShuffle(2),
        nn.AvgPool2d(3, 2, ceil_mode=True), nn.MaxPool2d(3, 2, 1, ceil_mode=True),
    )  # fmt: skip
    sequence = nn.LSTM(3, 4, 2, bidirectional=True)
    attention = nn.MultiheadAttention(4, 2)
    image = rng.standard_normal((1, 2, 3, 3)).astype("float32")
    words = rng.standard_normal((3, 2, 3)).astype("float32")

    def run():
        x = tinytorch.tensor(image, requires_grad=True)
        y = tinytorch.tensor(words, requires_grad=True)
        out, _ = sequence(y)
        mixed, _ = attention(out[..., :4], out[..., 4:], out[..., :4])
        loss = (up(x) ** 2).sum() + (mixed**2).sum()
        loss.backward()
        return loss.item(), x.grad.numpy(), y.grad.numpy()

    expected = run()
    with tinytorch.using_backend(backend):
        found = run()
    for a, b in zip(found, expected, strict=True):
        assert a == pytest.approx(b, rel=1e-3, abs=1e-4)


@pytest.mark.parametrize("compiled", [False, True])
def test_layers_in_place_train_as_others_do(compiled):
    results = []
    for inplace in (False, True):
        tinytorch.manual_seed(0)
        net = nn.Sequential(
            nn.Conv2d(1, 2, 3), nn.BatchNorm2d(2), nn.ReLU(inplace=inplace), nn.Flatten(),
            nn.Linear(8, 4), nn.LeakyReLU(0.1, inplace=inplace), nn.Dropout(0.0, inplace=inplace),
        )  # fmt: skip
        x = tinytorch.ones(3, 1, 4, 4) * tinytorch.arange(3).float().reshape(3, 1, 1, 1)
        run = tinytorch.compile(net) if compiled else net
        (run(x) ** 2).sum().backward()
        results.append([p.grad.tolist() for p in net.parameters()])
    assert results[0] == results[1]
