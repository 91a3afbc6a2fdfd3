"""Captured forward and joint graphs give to the last bit what the model gives."""

from __future__ import annotations

import copy
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from tests.fx.catalogue import CATALOGUE
from tinytorch.fx.capture.forward import capture_forward
from tinytorch.fx.capture.joint import capture_joint
from tinytorch.fx.capture.slots import GRADIENT, CaptureError
from tinytorch.fx.convert.exchange import tensor_from_torch
from tinytorch.fx.convert.from_torch import from_torch
from tinytorch.fx.models import call, load_model

NAMES = ["hf:resnet152", "hf:bert-base", "hf:gpt2"]


def logits(result: Any) -> Tensor:
    return result["logits"]


def example(name: str, batch: int = 2, seed: int = 0) -> Any:
    return load_model(name, small=True, batch=batch, sequence=8, image=32, seed=seed)


@pytest.mark.slow_beyond(1)
@pytest.mark.parametrize(
    ("name", "decompose"),
    [
        *((name, False) for name in NAMES),
        ("hf:gpt2", True),
        *(pytest.param(name, True, marks=pytest.mark.slow) for name in NAMES[:2]),
    ],
)
def test_forward(name: str, decompose: bool):
    e = example(name)
    e.model.eval()
    graph = capture_forward(e.model, e.inputs, decompose=decompose)
    other = example(name, seed=1)
    with torch.no_grad():
        found, expected = logits(graph(**other.inputs)), logits(e.model(**other.inputs))
    # decomposed, sums come in another order
    assert torch.allclose(found, expected, 1e-5, 1e-6) if decompose else found.equal(expected)
    roles = {n.meta["role"] for n in graph.graph.nodes if n.op in ("placeholder", "get_attr")}
    assert {"batch", "parameter"} <= roles


@pytest.mark.slow_beyond(1)
@pytest.mark.parametrize("name", NAMES[1:])
def test_forward_with_an_open_batch_size(name: str):
    e = example(name)
    e.model.eval()
    graph = capture_forward(e.model, e.inputs, dynamic_dims=(0,))
    other = example(name, batch=5)
    with torch.no_grad():
        assert logits(graph(**other.inputs)).equal(logits(e.model(**other.inputs)))


def gradients(result: Tensor, model: nn.Module, tangent: Tensor | None) -> dict[str, Tensor]:
    names, parameters = zip(*model.named_parameters(), strict=True)
    found = torch.autograd.grad(result, parameters, tangent, allow_unused=True)
    return {n: g for n, g in zip(names, found, strict=True) if g is not None}


@pytest.mark.slow
@pytest.mark.exhaustive_beyond(3)
@pytest.mark.parametrize(
    ("name", "dynamic", "with_loss"),
    [
        ("hf:resnet152", (), True),
        ("hf:bert-base", (), False),
        ("hf:gpt2", (0,), True),
        ("hf:resnet152", (0,), False),
        ("hf:bert-base", (0,), True),
        ("hf:gpt2", (), False),
    ],
)
def test_joint(name: str, dynamic: tuple[int, ...], with_loss: bool):
    e = example(name)
    joint = capture_joint(
        e.model, e.batch if with_loss else e.inputs, e.loss if with_loss else None,
        dynamic_dims=dynamic,
    )  # fmt: skip
    other = example(name, batch=5 if dynamic else 2, seed=1)
    batch, model = other.batch if with_loss else other.inputs, copy.deepcopy(e.model)
    torch.manual_seed(0)
    expected = e.loss(model, batch) if with_loss else logits(model(**batch))
    tangents = [] if with_loss else [torch.randn(expected.shape)]
    wanted = gradients(expected, model, *(tangents or [None]))
    torch.manual_seed(0)
    flat = joint.flat_inputs(e.model, batch, tangents)
    before = [t.clone() for t in flat]
    results = dict(zip(joint.outputs, joint.module(*flat), strict=True))
    assert all(map(torch.equal, flat, before))
    assert results.pop(joint.outputs[0]).equal(expected)
    found = {slot.name: t for slot, t in results.items() if slot.role == "gradient"}
    assert found.keys() == wanted.keys() and all(found[n].equal(wanted[n]) for n in wanted)
    buffers = dict(model.named_buffers())
    written = [slot for slot in results if slot.role == "buffer"]
    assert all(results[slot].equal(buffers[slot.name]) for slot in written)
    assert len(written) == (3 * 17 if name == "hf:resnet152" else 0)


@pytest.mark.parametrize(
    "name", ["no_grad_region", "custom_function", "backward_hook", "buffer_assigned", "dict_output",
             "nested_output", "gradient_inside"],
)  # fmt: skip
def test_joint_of_awkward_models(name: str):
    """What a graph of the forward alone loses."""
    awkward = CATALOGUE[name]
    model = awkward.make()
    inputs = (awkward.inputs[0].clone().requires_grad_(),)
    joint = capture_joint(model, inputs)
    other = (awkward.traps[0][0].clone().requires_grad_(),)
    reference = awkward.make()
    result = call(reference, other)
    leaves = [x for x in torch.utils._pytree.tree_leaves(result) if isinstance(x, Tensor)]
    tangents = [torch.randn(x.shape) for x in leaves]
    result_leaves = [*reference.parameters(), *other]
    wanted = torch.autograd.grad(leaves, result_leaves, tangents, allow_unused=True)
    results = joint.module(*joint.flat_inputs(model, other, tangents))
    found = dict(zip(joint.outputs, results, strict=True))
    outputs = [t for s, t in found.items() if s.role == "output"]
    assert torch.utils._pytree.tree_structure(joint.result(outputs)) == (
        torch.utils._pytree.tree_structure(result)
    )
    assert all(map(torch.equal, outputs, leaves))
    gradients = [t for s, t in found.items() if "gradient" in s.role]
    assert all(map(torch.equal, gradients, [g for g in wanted if g is not None]))
    for name, buffer in reference.named_buffers():
        after = [t for s, t in found.items() if (s.role, s.name) == ("buffer", name)]
        assert all(t.equal(buffer) for t in after)
        assert after or buffer.equal(torch.zeros(()))


def test_phases_and_roles():
    e = example("hf:bert-base")
    joint = capture_joint(e.model, e.batch, e.loss)
    nodes = [n for n in joint.module.graph.nodes if n.op == "call_function"]
    phases = [n.meta["phase"] for n in nodes]
    assert phases == sorted(phases, reverse=True)  # forward, then backward
    assert any("modeling_bert.py" in n.meta.get("stack_trace", "") for n in nodes)
    assert all("val" in n.meta for n in nodes)
    placeholders = joint.module.graph.find_nodes(op="placeholder")
    assert [(n.meta["role"], n.meta["name"]) for n in placeholders] == [
        (slot.role, slot.name) for slot in joint.inputs
    ]
    assert placeholders[-1].name == "batch_labels"


class Branch(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(4, 4)

    def forward(self, x: Tensor) -> Tensor:
        if x.shape[0] > 4:
            return self.layer(x) * 2
        return self.layer(x)


def test_open_sizes_are_held_to_what_the_model_asked():
    model = Branch()
    joint = capture_joint(model, torch.ones(3, 4), dynamic_dims=(0,))
    joint.flat_inputs(model, torch.ones(4, 4), [torch.ones(4, 4)])
    with pytest.raises(CaptureError, match=r"batch_0.size\(\)\[0\] <= 4; capture again"):
        joint.flat_inputs(model, torch.ones(5, 4), [torch.ones(5, 4)])


def test_an_open_size_that_the_model_fixes_is_named():
    model = nn.Linear(4, 4)
    joint = capture_joint(
        model, (torch.ones(3, 4),), lambda m, b: m(*b).sum() / len(b[0]), dynamic_dims=(0,)
    )
    joint.flat_inputs(model, (torch.ones(3, 4),))
    with pytest.raises(CaptureError, match=r"captured as torch.float32\[3, 4\].* not len\(x\)"):
        joint.flat_inputs(model, (torch.ones(5, 4),))


def test_inputs_are_checked():
    model = Branch()
    joint = capture_joint(model, (torch.ones(3, 4),))
    with pytest.raises(CaptureError, match=r"batch '0' is torch.float32\[2, 4\], but was captured"):
        joint.flat_inputs(model, (torch.ones(2, 4),), [torch.ones(3, 4)])
    with pytest.raises(CaptureError, match=r"is torch.float64\[3, 4\], but was captured as"):
        joint.flat_inputs(model, (torch.ones(3, 4).double(),), [torch.ones(3, 4)])
    with pytest.raises(CaptureError, match="the graph takes 1 tangents, not 0"):
        joint.flat_inputs(model, (torch.ones(3, 4),))
    with pytest.raises(CaptureError, match="there is no batch '0' among the inputs"):
        joint.flat_inputs(model, {"x": torch.ones(3, 4)}, [torch.ones(3, 4)])
    with pytest.raises(CaptureError, match=r"scale of the batch is 2\.0, not a tensor"):
        capture_joint(model, {"x": torch.ones(3, 4), "scale": 2.0})


def test_what_cannot_be_captured_says_where_and_what_to_do():
    awkward = CATALOGUE["if_value"]
    for capture in (capture_joint, capture_forward):
        with pytest.raises(CaptureError) as raised:
            capture(awkward.make(), awkward.inputs)
        text = str(raised.value)
        assert "value of a tensor, which is not known" in text
        assert "catalogue.py" in text and "if x.sum() > 0:" in text
        assert "fix: compute the choice with torch.where" in text
    with pytest.raises(CaptureError, match="writes to its batch '0' in place"):
        capture_joint(CATALOGUE["input_in_place"].make(), awkward.inputs)
    frozen = Branch().requires_grad_(False)
    with pytest.raises(CaptureError, match="no parameter and no tensor of the batch requires"):
        capture_joint(frozen, (torch.ones(3, 4),))


class _OddNames(nn.Module):
    """Names of layers that are no identifiers, and two that differ by a dot alone."""

    def __init__(self) -> None:
        super().__init__()
        self.block = nn.Sequential()
        self.block.add_module("1-0", nn.Linear(3, 3))
        self.block.add_module("1", nn.Linear(3, 3))
        self.block_1 = nn.Linear(3, 3)

    def forward(self, x: Tensor) -> Tensor:
        result: Tensor = self.block_1(self.block(x).relu())
        return result


def test_names_of_layers_need_not_be_identifiers():
    torch.manual_seed(0)
    model, x, tangent = _OddNames(), torch.randn(4, 3), torch.randn(4, 3)
    joint = capture_joint(model, (x,))
    results = joint.module(*joint.flat_inputs(model, (x,), [tangent]))
    model(x).backward(tangent)
    found = {s.name: r for s, r in zip(joint.outputs, results, strict=True) if s.role == GRADIENT}
    assert found.keys() == dict(model.named_parameters()).keys()
    assert all(found[name].equal(p.grad) for name, p in model.named_parameters())


def test_parameters_whose_names_differ_by_a_dot_stay_two():
    torch.manual_seed(0)
    model, x = _OddNames().eval(), torch.randn(4, 3)
    (found,) = from_torch(model, (x,))(tensor_from_torch(x))
    assert torch.allclose(torch.from_dlpack(found.detach()), model(x).detach(), 1e-5, 1e-6)
