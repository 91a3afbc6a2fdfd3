"""Architectures of many kinds through all that takes a model, a row each, beside eager PyTorch.

`test_zoo.py` has the joint graphs and training steps; here is the rest: the forward, passes
one by one, both modes of `GraphOptimizer`, `from_torch`, `torch.compile` and `checkpoint`.
"""

from __future__ import annotations

import copy
from collections.abc import Iterator
from functools import partial
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import tinytorch
from tests.fx.zoo import ZOO, Kind, loss
from tinytorch.fx.capture.comparison import difference
from tinytorch.fx.capture.forward import capture_forward
from tinytorch.fx.capture.joint import capture_joint
from tinytorch.fx.convert.exchange import tensor_from_torch, tensor_to_torch
from tinytorch.fx.convert.from_torch import from_torch
from tinytorch.fx.models import squares_of, tensors_of
from tinytorch.fx.optimize.optimizer import GraphOptimizer
from tinytorch.fx.recompute.checkpointing import checkpoint
from tinytorch.fx.semantics.semantics import TorchSemantics
from tinytorch.graph.passes import PassManager

pytestmark = pytest.mark.filterwarnings("ignore::FutureWarning", "ignore::DeprecationWarning")
PASSES = ("no-ops", "algebra", "cse", "fold", "dce")
#: Of the zoo: text and vision encoders, decoders, an encoder-decoder, sound, a mixture of experts,
#: convolutions, recurrence, scatter, writes, strange layouts. swin, glpn and mamba have what those
#: have, and take a minute each: `tests/fx/test_zoo.py` trains them.
TABLE = tuple(name for name in ZOO if name not in ("swin", "glpn", "mamba"))
FAST = ("graph_network",)
#: Of what takes a second to half a minute each, these: a decoder, convolutions, recurrence, writes.
IN_PART = ("gpt2", "resnet", "lstm", "writer", *FAST)
#: What Dynamo says of transformers' code, and would raise where warnings are errors.
DYNAMO_SAYS = ("ignore:The .grad attribute of a Tensor:UserWarning",
               "ignore:Dynamo detected a call to a `functools.lru_cache`:UserWarning")  # fmt: skip


@pytest.fixture(autouse=True)
def _fresh_dynamo() -> Iterator[None]:
    torch._dynamo.reset()
    yield
    torch._dynamo.reset()


def rows() -> list[Any]:
    """The architectures of the table; those that take a second each are in the fast suite."""
    return [pytest.param(ZOO[name], id=name, marks=[pytest.mark.slow] * (name not in FAST))
            for name in TABLE]  # fmt: skip


def part_of_the_rows() -> list[Any]:
    """The architectures of the table; most are in the exhaustive suite alone."""
    exhaustive = [pytest.mark.exhaustive]
    return [
        pytest.param(
            *row.values, id=row.id, marks=[*row.marks, *exhaustive * (row.id not in IN_PART)]
        )
        for row in rows()
    ]


def outputs(module: Any, batch: dict[str, Tensor]) -> list[Tensor]:
    """The floating-point results, with the random numbers of a seed."""
    torch.manual_seed(1)
    found = tensors_of(module(**batch))
    return [x.detach().clone() for x in found if x.is_floating_point()]


def gradients(model: nn.Module, module: Any, batch: dict[str, Tensor]) -> list[Tensor | None]:
    """Of the model's parameters, for the mean square of what a module returns."""
    model.zero_grad()
    torch.manual_seed(1)
    result = module(**batch)
    (result if isinstance(result, Tensor) and result.ndim == 0 else squares_of(result)).backward()
    found = [None if p.grad is None else p.grad.clone() for p in model.parameters()]
    model.zero_grad()
    return found


def check_close(found: Any, expected: Any) -> None:
    assert len(found) == len(expected)
    scale = max((float(x.abs().max()) for x in expected if x is not None and x.numel()), default=1)
    for i, (a, b) in enumerate(zip(found, expected, strict=True)):
        if a is None or b is None:  # no gradient is a gradient of zeros
            assert all(x is None or not x.any() for x in (a, b)), i
        else:
            assert difference(a, b, max(scale, 1e-3)) is None, (i, difference(a, b, scale))


@pytest.mark.parametrize("kind", rows())
def test_forward(kind: Kind) -> None:
    model = kind.model().eval()
    captured = capture_forward(model, kind.batch())
    for seed in range(2):
        check_close(outputs(captured, kind.batch(seed)), outputs(model, kind.batch(seed)))


@pytest.mark.parametrize("kind", part_of_the_rows())
def test_each_of_five_passes(kind: Kind) -> None:
    """On the joint graph; the manager compares after each, and takes nothing back."""
    joint = capture_joint(kind.model(), kind.batch(), loss)
    _, report = PassManager(PASSES, TorchSemantics(), trials=2).run(joint.module.graph)
    assert len(report.results) == len(PASSES)
    assert not [str(r) for r in report.results if r.error or r.left_out]


@pytest.mark.parametrize("frozen", [True, False])
@pytest.mark.parametrize("kind", part_of_the_rows())
def test_both_modes_of_the_optimizer(kind: Kind, frozen: bool) -> None:
    model = kind.model().train(not frozen)
    optimizer = GraphOptimizer(
        model, kind.batch(), device="cpu", frozen=frozen, trials=1, keep_slower=True
    )
    module = optimizer.optimize()
    buffers = {name: b.clone() for name, b in model.named_buffers()}
    expected = outputs(model, kind.batch(1))
    if not frozen:  # eager has written its statistics; a frozen module refuses written ones
        model.load_state_dict(buffers, strict=False)
    check_close(outputs(module, kind.batch(1)), expected)
    if not frozen:
        model.load_state_dict(buffers, strict=False)
        expected_gradients = gradients(model, model, kind.batch(1))
        model.load_state_dict(buffers, strict=False)
        check_close(gradients(model, module, kind.batch(1)), expected_gradients)
    report = optimizer.report()
    wrong = [str(r.error) for r in report.failures if "not faster" not in str(r.error)]
    assert not report.undone and not wrong


@pytest.mark.slow
@pytest.mark.parametrize("kind", part_of_the_rows())
def test_from_torch(kind: Kind) -> None:
    model = kind.model().eval()
    with tinytorch.using_backend("numpy"), tinytorch.no_grad():
        module = from_torch(model, kind.batch())
        results = module(*(tensor_from_torch(x) for x in tensors_of(kind.batch(1))))
        leaves = results if isinstance(results, (tuple, list)) else [results]
        found = [tensor_to_torch(x).clone() for x in leaves if isinstance(x, tinytorch.Tensor)]
    eager = kind.model().eval()
    check_close([x for x in found if x.is_floating_point()], outputs(eager, kind.batch(1)))
    check_close(list(model.buffers()), list(eager.buffers()))  # it writes those of the model


@pytest.mark.slow
@pytest.mark.filterwarnings(*DYNAMO_SAYS)
@pytest.mark.parametrize("kind", part_of_the_rows())
def test_torch_compile(kind: Kind) -> None:
    model = kind.model().eval()
    options = {"backend": "numpy", "mode": "python"}  # needs no kernels to be compiled
    with torch._dynamo.config.patch(allow_rnn=True):
        module = torch.compile(copy.deepcopy(model), backend="tinytorch", options=options)
        with torch.no_grad():
            check_close(outputs(module, kind.batch(1)), outputs(model, kind.batch(1)))
        found = gradients(module._orig_mod, module, kind.batch(1))
    check_close(found, gradients(model, model, kind.batch(1)))


@pytest.mark.slow
@pytest.mark.parametrize("kind", part_of_the_rows())
def test_checkpoint(kind: Kind) -> None:
    """Half-way between the lowest peak and that of saving everything."""
    model = kind.model()
    make = partial(checkpoint, model, kind.batch(), select=squares_of)
    # Of an op that gives one tensor twice, as an LSTM's backward does for its biases, PyTorch's
    # cache of traced ops gives two from the second trace on: the plans of later ones are compared.
    make(1.0).compiled(kind.batch())
    frontier = make(1.0).compiled(kind.batch()).frontier
    peaks = frontier.everything.peak, frontier.plans[0].peak
    made = make(sum(peaks) // 2)
    buffers = {name: b.clone() for name, b in model.named_buffers()}
    expected = gradients(model, model, kind.batch(1))
    model.load_state_dict(buffers, strict=False)
    check_close(gradients(model, made, kind.batch(1)), expected)
    assert made.compiled(kind.batch(1)).plan.peak <= sum(peaks) // 2
