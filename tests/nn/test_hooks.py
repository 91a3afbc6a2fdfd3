from __future__ import annotations

import numpy as np
import pytest
import torch

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


def test_prepended_hooks_and_keyword_arguments():
    layer, calls = nn.Identity(), []
    layer.register_forward_pre_hook(lambda *_: calls.append("second"))
    layer.register_forward_pre_hook(lambda *_: calls.append("first"), prepend=True)

    class Scale(nn.Module):
        def forward(self, x, by=1.0):
            return x * by

    layer(tinytorch.ones(1))
    assert calls == ["first", "second"]
    scale = Scale()
    scale.register_forward_pre_hook(lambda m, a, k: (a, {"by": k["by"] + 1}), with_kwargs=True)
    scale.register_forward_hook(lambda m, a, k, out: out + k["by"], with_kwargs=True)
    assert scale(tinytorch.ones(1), by=2.0).tolist() == [6]


class Two:
    """A module of two inputs and two results, in both libraries."""

    @staticmethod
    def of(module):
        class Net(module.Module):
            def forward(self, a, b):
                return a * b, a + 2 * b

        return Net()


@pytest.mark.parametrize("replace", [False, True])
def test_backward_hooks_see_and_replace_as_pytorchs(rng, replace):
    a, b = rng.standard_normal((2, 3)), rng.standard_normal((2, 3))
    results = []
    for module, tensor in ((nn, tinytorch.tensor), (torch.nn, torch.tensor)):
        net, seen = Two.of(module), []

        def hook(m, grad_input, grad_output, seen=seen):
            seen.extend((*grad_input, *grad_output))
            return tuple(3 * g for g in grad_input) if replace else None

        net.register_full_backward_hook(hook)
        net.register_full_backward_pre_hook(lambda m, g: (2 * g[0], g[1]) if replace else None)
        x, y = tensor(a, requires_grad=True), tensor(b, requires_grad=True)
        first, second = net(x * 1, y * 1)
        (first.sum() + (second**2).sum()).backward()
        results.append([g.detach().numpy() for g in (*seen, x.grad, y.grad)])
    for ours, theirs in zip(*results, strict=True):
        np.testing.assert_allclose(ours, theirs, rtol=1e-12)


@pytest.mark.filterwarnings("ignore:Full backward hook")  # PyTorch's
def test_backward_hooks_of_a_layer_whose_input_needs_no_gradient():
    seen = []
    for module, ones in ((nn, tinytorch.ones), (torch.nn, torch.ones)):
        net, calls = module.Linear(2, 1), []
        handle = net.register_full_backward_hook(lambda m, i, o, calls=calls: calls.append((i, o)))
        net(ones(3, 2)).sum().backward()
        handle.remove()
        net(ones(3, 2)).sum().backward()
        ((grad_input, (grad_output,)),) = calls
        seen.append((grad_input, grad_output.tolist()))
    assert seen[0] == seen[1] == ((None,), [[1.0]] * 3)


def test_a_backward_hook_sees_the_gradient_of_what_forward_hooks_return():
    seen = []
    for module, ones in ((nn, tinytorch.ones), (torch.nn, torch.ones)):
        net, calls = module.Identity(), []
        net.register_full_backward_pre_hook(lambda m, g, calls=calls: calls.append(g[0].tolist()))
        net.register_full_backward_hook(lambda m, i, o, calls=calls: calls.append(o[0].tolist()))
        net.register_forward_hook(lambda m, args, out: 3 * out)
        x = ones(2, requires_grad=True)
        net(x).sum().backward()
        seen.append([*calls, x.grad.tolist()])
    assert seen[0] == seen[1] == [[1.0, 1.0], [1.0, 1.0], [3.0, 3.0]]
