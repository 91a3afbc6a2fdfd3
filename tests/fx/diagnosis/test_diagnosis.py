"""diagnose says of each tracer whether it works, fails or is silently wrong, and why."""

from __future__ import annotations

import copy
import functools
import json
import random
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn
from torch.utils._pytree import tree_leaves

from tests.fx.catalogue import CATALOGUE, Awkward
from tinytorch.fx import compare_tracers, diagnose, load_model
from tinytorch.fx.capture.slots import CaptureError
from tinytorch.fx.diagnosis.diagnosis import DIAGNOSED, Diagnosis
from tinytorch.fx.diagnosis.reasons import explain
from tinytorch.fx.diagnosis.tracers import TRACERS, quiet, trace_with
from tinytorch.fx.models import call

S, E, D, M, C = DIAGNOSED
#: Tracers that are wrong without a word, as found by hand. A capture compares itself with eager.
SILENTLY_WRONG = {
    "if_shape": {M}, "for_range_shape": {M}, "iterate_tensor": {M}, "try_except": {M},
    "min_of_shape": {M}, "len_tensor": {M}, "divide_by_batch": {M},
    "attribute_counter": {S, E, M}, "list_state": {S, E, M}, "dict_cache": {S, E, M},
    "buffer_in_place": {S}, "buffer_assigned": {S}, "closure_over_list": {S, E, D, M},
    "zeros_of_shape": {M}, "arange_of_size": {M}, "clock": {S, E, D, M},
    "python_random": {S, E, M}, "numpy_random": {S, E, M},
    "no_grad_region": {S, M}, "custom_function": {S, E, M}, "gradient_hook_on_tensor": {E, M},
    "backward_hook": {E, M}, "hook_with_state": {S, E, D, M}, "gradient_inside": {M},
}  # fmt: skip


def behaviour(
    subject: Any, inputs: tuple[Tensor, ...], parameters: Mapping[str, Tensor], i: int
) -> tuple[list[Tensor], dict[str, Tensor]]:
    """Results and gradients of one call. Not by what diagnose compares with, which is checked."""
    torch.manual_seed(i)
    random.seed(i)
    np.random.seed(i)
    leaves = [t.clone().requires_grad_(t.is_floating_point()) for t in inputs]
    results = [t for t in tree_leaves(subject(tuple(t * 1 for t in leaves))) if t is not None]
    sources = [t.square().sum() for t in results if t.requires_grad]
    wanted = {str(n): t for n, t in enumerate(leaves) if t.requires_grad} | dict(parameters)
    found = (
        torch.autograd.grad(sources, list(wanted.values()), allow_unused=True) if sources else ()
    )
    named = zip(wanted, found, strict=False)
    return [t.detach() for t in results], {n: g for n, g in named if g is not None and g.any()}


def silently_wrong(tracer: str, awkward: Awkward) -> list[int]:
    """The calls, of the example, the traps and the example again, that give something else."""
    model, wrong = awkward.make(), []
    reference = copy.deepcopy(model)
    with quiet():
        traced = trace_with(tracer, model, awkward.inputs)
        for i, inputs in enumerate([awkward.inputs, *awkward.traps, awkward.inputs]):
            own = dict(reference.named_parameters())
            expected, slopes = behaviour(lambda x: call(reference, x), inputs, own, i)
            try:
                found, gradients = behaviour(traced, inputs, traced.parameters(), i)
            except Exception:  # it says so itself
                continue
            same = [a.shape == b.shape and torch.allclose(a, b, 1e-4, 1e-5)
                    for a, b in zip(found, expected, strict=True)]  # fmt: skip
            same += [gradients.keys() == slopes.keys()]
            same += [torch.allclose(gradients[n], slopes[n], 1e-4, 1e-5)
                     for n in gradients.keys() & slopes.keys()]  # fmt: skip
            if not all(same):
                wrong.append(i)
    return wrong


def check(name: str) -> Diagnosis:
    awkward = CATALOGUE[name]
    found = diagnose(awkward.make(), awkward.inputs)
    wrong = {tracer for tracer, v in found.verdicts.items() if v.status == "wrong"}
    assert wrong == SILENTLY_WRONG.get(name, set()), str(found)
    for verdict in found.verdicts.values():
        assert (verdict.reason is None) == (verdict.status == "works")
        assert verdict.what or verdict.status != "wrong"
    return found


def test_there_are_enough_models():
    assert len(CATALOGUE) >= 36
    assert SILENTLY_WRONG.keys() <= CATALOGUE.keys()


@pytest.mark.slow_beyond(1)
@pytest.mark.parametrize("name", ["list_state", "no_grad_region", "if_shape"])
def test_the_catalogue_in_short(name: str):
    check(name)


@pytest.mark.slow
@pytest.mark.parametrize("name", CATALOGUE)
def test_never_is_a_silently_wrong_trace_called_right(name: str):
    found = check(name)
    for tracer in found.working():
        assert not silently_wrong(tracer, CATALOGUE[name]), tracer


@pytest.mark.slow
@pytest.mark.parametrize("name", ["if_value", "mask_shortcut", "item", "buffer_assigned"])
def test_torchscript_too(name: str):
    awkward = CATALOGUE[name]
    found = diagnose(awkward.make(), awkward.inputs, ["jit.trace", "jit.script"])
    assert found.verdicts["jit.trace"].status == "wrong"
    assert found.verdicts["jit.script"].status == "works"


def verdict(name: str, tracer: str) -> Any:
    awkward = CATALOGUE[name]
    return diagnose(awkward.make(), awkward.inputs, [tracer]).verdicts[tracer]


def test_a_buffer_that_is_assigned_is_to_be_changed_in_place():
    found = verdict("buffer_assigned", "make_fx")
    assert found.status == "fails" and "change it in place" in found.reason.fix


@pytest.mark.parametrize(
    ("name", "tracer", "what", "text", "line"),
    [
        ("attribute_counter", E, "output 0 has other values", "attribute or a container is changed",
         "self.calls += 1"),
        ("closure_over_list", M, "output 0 has other values", "outside of the model is read",
         "SCALES"),
        ("python_random", S, "output 0 has other values", "random numbers come from Python",
         "random.random()"),
        ("no_grad_region", M, "gradient of", "gradients are switched off", "torch.no_grad()"),
        ("custom_function", M, "gradient of input 0", "a gradient of its own", "_Exp.apply"),
        ("if_shape", M, "for a batch of 9 instead of 3", "a size becomes a Python number",
         "x.shape[0] > 4"),
        ("buffer_in_place", S, "for the example", "written in place", "self.count.add_(1)"),
        ("backward_hook", M, "gradient of", "hooks run with the model", "a hook of module 'layer'"),
        ("clock", M, "in the model itself", "the clock is read", "time.time()"),
    ],
)  # fmt: skip
def test_reasons_for_what_is_wrong(name: str, tracer: str, what: str, text: str, line: str):
    found = verdict(name, tracer)
    assert found.status == "wrong" and what in found.what
    assert text in found.reason.text and found.reason.fix
    assert found.reason.line.file.endswith("catalogue.py") and line in found.reason.line.text


def decorated(function: Callable[..., Tensor]) -> Callable[..., Tensor]:
    @functools.wraps(function)
    def wrapper(*args: Any, **kwargs: Any) -> Tensor:
        return function(*args, **kwargs)

    return wrapper


class Decorated(nn.Module):
    """As models of transformers are."""

    @decorated
    def forward(self, x: Tensor, mask: Tensor | None = None, **kwargs: Any) -> Tensor:
        return x * 2


def test_a_forward_that_is_decorated_is_told_from_one_that_iterates():
    with pytest.raises(ValueError, match="co_varnames") as caught:
        torch.fx.symbolic_trace(Decorated())
    assert "that a decorator wraps" in explain(caught.value).text


@pytest.mark.parametrize(
    ("name", "tracer", "text", "line"),
    [
        ("if_value", S, "symbolic_trace knows nothing", "if x.sum() > 0:"),
        ("if_value", C, "asks for the value of a tensor", "if x.sum() > 0:"),
        ("for_range_shape", S, "a size is used as a Python number", "for i in range(x.shape[0]):"),
        ("iterate_tensor", S, "cannot iterate", "sum(row * 2 for row in x)"),
        ("math_on_value", M, "asks for the value of a tensor", "math.exp"),
        ("boolean_index", C, "shape of a result depends on values", "x[x > 0.5]"),
        ("input_in_place", C, "written in place", ""),
        ("dict_cache", C, "keeps tensors from one call to the next", ""),
        ("attribute_counter", C, "attribute or a container is changed", "self.calls += 1"),
        ("clock", C, "the clock is read", "time.time()"),
    ],
)
def test_reasons_for_what_fails(name: str, tracer: str, text: str, line: str):
    found = verdict(name, tracer)
    assert found.status == "fails" and text in found.reason.text and found.reason.fix
    assert line in (found.reason.line.text if found.reason.line else "")


def test_what_a_traced_model_refuses():
    awkward = CATALOGUE["view_with_numbers"]
    found = diagnose(awkward.make(), awkward.inputs, [M])
    limits = found.verdicts[M].limits
    assert found.working() == [M] and len(limits) == 2
    assert limits[0].startswith("a batch of 1 instead of 3: RuntimeError: shape")


def test_the_model_is_left_alone():
    awkward = CATALOGUE["batch_norm_in_training"]
    model = awkward.make()
    before = copy.deepcopy(model.state_dict())
    torch.manual_seed(5)
    state = torch.get_rng_state()
    found = diagnose(model, awkward.inputs, [S, E, M, C])
    assert found.working() == [S, E, M, C]
    assert all(t.equal(before[name]) for name, t in model.state_dict().items())
    assert model.training and torch.equal(torch.get_rng_state(), state)


def test_the_result():
    awkward = CATALOGUE["list_state"]
    found = diagnose(awkward.make(), awkward.inputs, [S, M])
    text = str(found)
    assert text.startswith("list_state: no tracer can be used (compared on the example, other")
    assert "make_fx         wrong" in text and "fix: keep state in a buffer" in text
    data = json.loads(json.dumps(found.to_dict()))
    assert [v["tracer"] for v in data["verdicts"]] == [S, M]
    assert data["verdicts"][0]["reason"]["line"].endswith("self.seen.append(1)")


def test_errors():
    with pytest.raises(KeyError, match="there is no tracer 'onnx'; there are symbolic_trace"):
        trace_with("onnx", nn.ReLU(), (torch.ones(1),))
    with pytest.raises(RuntimeError, match="mat1 and mat2"):
        diagnose(nn.Linear(2, 2), (torch.ones(1, 3),))


@pytest.mark.slow
@pytest.mark.exhaustive_beyond(1)
@pytest.mark.parametrize("name", ["hf:gpt2", "hf:bert-base", "hf:resnet152"])
def test_real_models(name: str):
    e = load_model(name, small=True, sequence=8, image=32)
    found = diagnose(e.model.eval(), e.inputs, [S, C])
    assert found.verdicts[S].status == "fails" and found.working() == [C]


@pytest.mark.slow
def test_comparison():
    awkward = CATALOGUE["dropout_in_training"]
    table = compare_tracers(awkward.make(), awkward.inputs)
    rows = table.rows
    assert rows.keys() == TRACERS.keys()
    assert {name for name, row in rows.items() if row.mode_switch} == {S, D, "jit.script"}
    assert all(row.gradients and row.other_sizes for row in rows.values())
    assert len(str(table).splitlines()) == len(TRACERS) + 2
    assert json.loads(json.dumps(table.to_dict()))["rows"][0]["keeps"]
    awkward = CATALOGUE["if_shape"]
    rows = compare_tracers(awkward.make(), awkward.inputs).rows
    assert rows[E].other_sizes and not rows[M].other_sizes and rows[D].mode_switch is None
    assert rows["jit.trace"].verdict.status == "wrong" and not rows["jit.trace"].gradients


def test_a_recurrent_layer_is_not_run_with_a_hidden_state_of_other_sizes():
    """oneDNN's LSTM writes beyond the memory of one that is too small, and the process ends."""
    found = diagnose(nn.LSTM(6, 7, 2), (torch.randn(5, 3, 6),), [M, C]).verdicts
    assert any("has the sizes of the trace" in limit for limit in found[M].limits)
    assert found[C].status == "works"
    model = nn.LSTM(6, 7, batch_first=True)
    traced = trace_with(C, model, (torch.randn(3, 5, 6),))
    with pytest.raises(CaptureError, match="capture again"):
        traced((torch.randn(9, 4, 6),))
