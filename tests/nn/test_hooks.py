from __future__ import annotations

import tinytorch
from tinytorch import nn


def test_hooks_see_and_replace():
    layer, seen = nn.Identity(), []
    layer.register_forward_pre_hook(lambda module, args: seen.append(("before", module, args)))
    layer.register_forward_pre_hook(lambda module, args: args[0] + 1)
    layer.register_forward_pre_hook(lambda module, args: (args[0] * 2,))
    layer.register_forward_hook(lambda module, args, out: seen.append(("after", args, out)))
    layer.register_forward_hook(lambda module, args, out: out - 1)
    x = tinytorch.tensor([1.0])
    assert layer(x).tolist() == [3]
    assert seen[0] == ("before", layer, (x,))
    assert seen[1][1][0].tolist() == seen[1][2].tolist() == [4]


def test_hooks_are_removed():
    layer, calls = nn.ReLU(), []
    x = tinytorch.ones(1)
    first = layer.register_forward_hook(lambda *_: calls.append("first"))
    with layer.register_forward_pre_hook(lambda *_: calls.append("second")):
        layer(x)
    layer(x)
    first.remove()
    first.remove()
    layer(x)
    assert calls == ["second", "first", "first"]


def test_a_hook_may_remove_itself():
    layer, calls = nn.ReLU(), []

    def once(module, args, out):
        calls.append(out)
        handle.remove()

    handle = layer.register_forward_hook(once)
    layer.register_forward_hook(lambda *_: calls.append("other"))
    layer(tinytorch.ones(1))
    layer(tinytorch.ones(1))
    assert len(calls) == 3


def test_keyword_arguments_pass_by():
    class Scale(nn.Module):
        def forward(self, x, by=1.0):
            return x * by

    layer = Scale()
    layer.register_forward_hook(lambda module, args, out: None)
    assert layer(tinytorch.ones(1), by=2.0).tolist() == [2]


def test_the_same_hook_twice_is_removed_one_by_one():
    layer, calls = nn.ReLU(), []

    def hook(*_):
        calls.append(1)

    first = layer.register_forward_hook(hook)
    layer.register_forward_hook(hook)
    layer(tinytorch.ones(1))
    first.remove()
    layer(tinytorch.ones(1))
    assert len(calls) == 3
