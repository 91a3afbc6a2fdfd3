"""Small architectures and three of all in the slow tests, 22 more in the exhaustive ones."""

from __future__ import annotations

import random
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from tinytorch.fx.zoo import child, stages, subject as zoo_subject
from tinytorch.fx.zoo.catalogue import SMALL, build, catalogue
from tinytorch.fx.zoo.child import Limits, StageTimeoutError, run_stage, time_limit
from tinytorch.fx.zoo.page import bad, markdown, rows
from tinytorch.fx.zoo.runner import Record, run
from tinytorch.fx.zoo.subject import Subject
from tinytorch.fx.zoo.verdict import Verdict

MOST_TELLING = ["forward", "joint", "sgd", "compile"]


@pytest.mark.slow
@pytest.mark.exhaustive_beyond(6)
@pytest.mark.parametrize("name", SMALL)
def test_a_small_architecture_is_captured_as_eager_computes_it(name: str):
    subject = Subject(name, *build(name))
    found = run_stage(subject, "forward", 60.0)
    assert found.verdict in ("bit-equal", "within"), found.detail
    found = run_stage(subject, "joint", 60.0)
    assert found.verdict in ("bit-equal", "within", "refused"), found.detail


@pytest.mark.slow(seconds=40)
@pytest.mark.parametrize(
    "part", [7, *(pytest.param(n, marks=pytest.mark.exhaustive) for n in range(7))]
)
def test_a_sample_of_all_architectures_has_nothing_wrong_and_no_crash(part: int, tmp_path: Path):
    """24 that run: all through forward, training and our compiler, eight through all stages."""
    names = iter(random.Random(21).sample(catalogue(), 80)[part::8])
    ours = [s for s in stages.STAGES if s not in stages.PEERS]
    records: dict[str, Record] = {}
    ran = 0
    while ran < 3:  # of the catalogue's a few do not run in PyTorch either
        asked = MOST_TELLING if ran else ours
        records |= run([next(names)], asked, tmp_path / "zoo.jsonl", Limits(), jobs=1)
        assert bad(records.values()) == []
        ran = sum(not record.skipped for record in records.values())


class Small(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(4, 3)
        self.norm = nn.BatchNorm1d(3)
        self.drop = nn.Dropout(0.5)

    def forward(self, x: Tensor) -> Tensor:
        return self.drop(self.norm(self.layer(x)))


@pytest.fixture
def subject() -> Subject:
    torch.manual_seed(0)
    return Subject("own/small", Small(), {"x": torch.randn(6, 4)})


class OnlyTrains(Small):
    """Training asks another generator than torch's, and evaluation has no gradients (Reformer)."""

    def forward(self, x: Tensor) -> Tensor:
        out: Tensor = self.layer(x)
        if self.training:
            return out * random.random()
        if torch.is_grad_enabled():
            out.register_hook(self.refuse)
        return out

    def refuse(self, gradient: Tensor) -> None:
        raise AssertionError("put it into training mode")


@pytest.mark.parametrize("stage", ["joint", "sgd"])
def test_what_eager_cannot_differentiate_is_no_crash_of_ours(stage: str):
    found = run_stage(Subject("own/small", OnlyTrains(), {"x": torch.randn(6, 4)}), stage, 60.0)
    assert found.verdict == "not applicable", found.detail
    assert "other generators than torch's" in found.detail and "training mode" in found.detail


def test_a_compiled_forward_needs_no_gradients_that_eager_has_not():
    subject = Subject("own/small", OnlyTrains(), {"x": torch.randn(6, 4)})
    assert run_stage(subject, "aot_eager", 60.0).verdict == "bit-equal"


class Asks(Small):
    """Computes something else where it is compiled, by whatever compiler (PaliGemma)."""

    def forward(self, x: Tensor) -> Tensor:
        out: Tensor = self.layer(x)
        return out if torch.compiler.is_compiling() else out * 2.0


def test_what_a_model_computes_only_where_it_is_compiled_is_no_fault_of_the_compiler():
    subject = Subject("own/asks", Asks(), {"x": torch.randn(6, 4)})
    found = run_stage(subject, "compile", 60.0)
    assert (found.verdict, found.detail[:24]) == ("not applicable", "the model computes somet")
    assert not stages._is_as_captured(subject, lambda x: Small.forward(subject.model, x) * 3.0)


@pytest.mark.parametrize("stage", ["forward", "joint", "sgd", "adamw", "train", "export"])
def test_a_stage_passes_and_leaves_the_model_as_it_was(subject: Subject, stage: str):
    before = {k: v.clone() for k, v in subject.model.state_dict().items()}
    found = run_stage(subject, stage, 60.0)
    assert found.verdict == "bit-equal", found.detail
    assert all(torch.equal(v, before[k]) for k, v in subject.model.state_dict().items())
    assert not subject.model.training and subject.model.layer.weight.grad is None


@pytest.mark.parametrize("stage", ["eval", "from_torch", "to_torch"])
def test_a_stage_that_computes_in_another_order_stays_within(subject: Subject, stage: str):
    assert run_stage(subject, stage, 60.0).verdict in ("bit-equal", "within")


def test_a_checkpointed_model_takes_what_was_predicted(subject: Subject):
    found = run_stage(subject, "checkpoint", 60.0)
    assert found.verdict == "bit-equal", found.detail
    assert found.facts["measured"] <= 1.01 * found.facts["predicted"] + stages.PEAK_MARGIN


def test_a_wrong_graph_is_found(subject: Subject, monkeypatch: pytest.MonkeyPatch):
    honest = stages.capture_forward

    def wrong(model: nn.Module, inputs: object, **options: Any) -> torch.fx.GraphModule:
        module = honest(model, inputs, **options)
        for node in module.graph.nodes:
            if node.target is torch.ops.aten.linear.default:
                node.args = (node.args[0], node.args[1], None)  # it forgets the bias
        module.recompile()
        return module

    monkeypatch.setattr(stages, "capture_forward", wrong)
    found = run_stage(subject, "forward", 60.0)
    assert found.verdict == "WRONG" and "eager's is" in found.detail


class Rounded(nn.Module):
    """Sums rows in an order, times a factor; only for positive sums there is a gradient."""

    def __init__(self, order: tuple[int, ...] = (0, 1, 2), factor: float = 1.0) -> None:
        super().__init__()
        self.scale = nn.Parameter(torch.ones(()))
        self.order, self.factor = order, factor

    def forward(self, x: Tensor) -> Tensor:
        first, second, third = (x[:, i] for i in self.order)
        return ((first + second + third) * self.scale).relu() * self.factor


class RoundedInFloat32(Rounded):
    """Right in float64."""

    def forward(self, x: Tensor) -> Tensor:
        out: Tensor = super().forward(x)
        return out * (1.001 if x.dtype == torch.float32 else 1.0)


@pytest.mark.parametrize(
    ("made", "verdict", "why"),
    [
        (Rounded((2, 1, 0)), "within", "in float64 it is right, and so on 6 of 6 other inputs"),
        (Rounded(factor=1.001), "WRONG", "in float64, too"),
        (RoundedInFloat32(), "WRONG", "in float64 it is right, in float32 on 0 of 6 other inputs"),
    ],
)
def test_a_corner_is_told_from_a_wrong_rewrite_and_one_of_float32_alone(
    made: nn.Module, verdict: str, why: str, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(zoo_subject, "NEARBY", 0)  # eager's would show the corner, too
    x = torch.tensor([[1.0, -1.0, 1e-8]]).repeat(4, 1) * torch.tensor([[1.0], [2.0], [1.0], [4.0]])
    subject = Subject("own/rounded", Rounded(), {"x": x})

    def jump(model: nn.Module, batch: dict[str, Tensor]) -> list[Tensor | None]:
        x = batch["x"].clone().requires_grad_()
        return list(torch.autograd.grad(model(x).sum(), [x]))

    def make(model: nn.Module) -> nn.Module:
        return made.double()

    found = stages.like_eager(subject, made.float(), jump, [subject.inputs], make)
    assert found.verdict == verdict and why in found.detail + str(found.facts)
    page = markdown([Record("own/rounded", stages={"compile": found.to_dict()})], {}, "")
    assert ("*A corner*" in page) == (verdict == "within") and (why in page)
    right = Verdict("within", "of another batch")
    assert stages.worst([right, found]).facts == found.facts  # the page counts corners


def test_what_a_stage_raises_is_its_verdict(subject: Subject, monkeypatch: pytest.MonkeyPatch):
    def endless(subject: Subject) -> Verdict:
        while True:
            pass

    def broken(subject: Subject) -> Verdict:
        raise KeyError("oops")

    monkeypatch.setitem(stages.STAGES, "joint", endless)
    assert run_stage(subject, "joint", 0.1).verdict == "timeout"
    monkeypatch.setitem(stages.STAGES, "joint", broken)
    assert run_stage(subject, "joint", 10.0).verdict == "crash"
    monkeypatch.setitem(child.STAGES, "export", broken)
    assert run_stage(subject, "export", 10.0).verdict == "refused"
    assert run_stage(subject, "joint", 0.0).verdict == "timeout"


def test_a_limit_counts_the_time_of_this_process_and_no_other():
    with time_limit(0.1):
        time.sleep(0.3)
    with pytest.raises(StageTimeoutError), time_limit(0.1):
        while True:
            pass


def test_a_model_without_gradients_has_no_training_stages():
    class Constant(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            return x + 1

    subject = Subject("own/constant", Constant(), {"x": torch.ones(2)})
    assert run_stage(subject, "joint", 60.0).verdict == "not applicable"
    assert run_stage(subject, "forward", 60.0).verdict == "bit-equal"


class Dropping(nn.Module):
    """In training it leaves its layer out at random, as layer drop does."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(4, 4)

    def forward(self, x: Tensor, grid: Tensor) -> Tensor:
        if self.training and torch.rand([]) < 0.5:
            return x
        return self.layer(x)[: grid.tolist()[0]] * self.layer.bias.sum()


def test_a_layer_that_is_left_out_at_random_is_guarded_and_it_is_said_why():
    subject = Subject(
        "own/dropping", Dropping(), {"x": torch.randn(6, 4), "grid": torch.ones(1).int()}
    )
    assert subject.constants == ["grid"]  # of which Python asks for the value
    forward = run_stage(subject, "forward", 60.0)
    assert forward.verdict == "bit-equal" and stages.GUARDED not in forward.facts
    found = run_stage(subject, "joint", 60.0)
    assert found.verdict == "bit-equal" and found.facts[stages.GUARDED] >= 1
    assert "if self.training and torch.rand" in found.facts[stages.WHY_GUARDED]


class Leaving(nn.Module):
    """In training a mean is NumPy's, which no graph has."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(4, 4)

    def forward(self, x: Tensor) -> Tensor:
        return self.layer(x) * (float(x.detach().numpy().mean()) if self.training else 1.0)


def test_of_a_refusal_in_training_it_is_said_whether_evaluation_is_right():
    subject = Subject("own/leaving", Leaving(), {"x": torch.randn(6, 4)})
    assert run_stage(subject, "forward", 60.0).verdict == "bit-equal"
    found = run_stage(subject, "joint", 60.0)
    assert found.verdict == "refused" and "x.detach().numpy()" in found.detail
    assert found.facts == {stages.RIGHT_IN_EVALUATION: True}


class Picky(nn.Module):
    """Runs in evaluation mode; in training mode it asks NumPy, or does not take short inputs."""

    def __init__(self, least: int) -> None:
        super().__init__()
        self.layer, self.least = nn.Linear(4, 4), least

    def forward(self, x: Tensor) -> Tensor:
        if self.training and len(x) < self.least:
            raise ValueError(f"`mask_length` has to be smaller than {self.least}")
        return self.layer(x) * (float(np.random.rand()) if self.training else 1.0)


@pytest.mark.parametrize(("least", "why"), [(99, "mask_length"), (2, "other generators")])
def test_a_model_that_cannot_be_compared_in_training_mode_is_in_evaluation_mode(
    least: int, why: str
):
    subject = Subject("own/picky", Picky(least), {"x": torch.randn(6, 4)})
    for stage in ("joint", "sgd"):
        found = run_stage(subject, stage, 60.0)
        assert found.verdict == "bit-equal" and why in found.facts["in evaluation mode"]
    found = run_stage(subject, "train", 60.0)
    assert found.verdict == "not applicable" and why in found.detail


class Strict(nn.Module):
    """Takes only grids that are wider than high."""

    def forward(self, x: Tensor, extent: Tensor, ids: Tensor) -> Tensor:
        if extent[0] > extent[1]:
            raise ValueError(f"a grid of {extent.tolist()}")
        return x.reshape(*extent.tolist(), 4) + ids.sum()


def test_integers_that_say_sizes_stay_where_the_model_takes_no_others():
    inputs = {"x": torch.randn(6, 4), "extent": torch.tensor([2, 3]), "ids": torch.arange(3)}
    first, second, third = Subject("own/strict", Strict(), inputs).batches
    assert first is inputs
    assert torch.equal(second["extent"], inputs["extent"]) and torch.equal(
        second["ids"], inputs["ids"]
    )
    assert not torch.equal(third["ids"], inputs["ids"])  # rolled twice the grid is itself again
    assert all(not torch.equal(b["x"], inputs["x"]) for b in (second, third))


def test_nearby_inputs_differ_in_the_last_bit_and_the_model_stays():
    inputs = {"x": torch.randn(6, 4), "extent": torch.tensor([3, 2]), "ids": torch.arange(3)}
    seen = []

    def ask(model: nn.Module, batch: dict[str, Tensor]) -> list[Tensor | None]:
        seen.append(batch)
        assert model.training
        return [batch["x"]]

    subject = Subject("own/small", Small(), inputs)
    results = list(subject.nearby(ask, inputs, True))
    assert len(results) > 1 and not torch.equal(seen[0]["x"], seen[1]["x"])
    for batch in seen:
        off = (batch["x"] - inputs["x"]).abs() / inputs["x"].abs()
        assert 0 < off.max() <= 2**-23 and batch["ids"] is inputs["ids"]
    assert not subject.model.training
    weight = subject.model.layer.weight
    before = weight.detach().clone()

    def weights(model: nn.Module, batch: dict[str, Tensor]) -> list[Tensor | None]:
        return [weight.detach().clone()]

    for found in subject.nearby(weights, {"ids": inputs["ids"]}, True):  # no input is a float
        off = (found[0] - before).abs() / before.abs()
        assert 0 < off.max() <= 2**-23
    assert torch.equal(weight, before)


class RatedDropping(nn.Module):
    """Leaves out layers at random, by an `if` in Python."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.ModuleList(nn.Linear(4, 4) for _ in range(2))
        self.encoder_layerdrop = 0.5

    def forward(self, x: Tensor) -> Tensor:
        for layer in self.layers:
            drops = self.training and self.encoder_layerdrop > 0
            if not drops or not torch.rand([]) < self.encoder_layerdrop:
                x = layer(x)
        return x


def test_a_model_that_leaves_out_layers_is_right_with_guards_and_the_page_says_so():
    torch.manual_seed(0)
    subject = Subject("own/dropping", RatedDropping(), {"x": torch.randn(6, 4)})
    found = run_stage(subject, "joint", 60.0)
    assert found.verdict == "bit-equal", found.detail
    assert found.facts[stages.GUARDED] >= 1 and "torch.rand" in found.facts[stages.WHY_GUARDED]
    records = [
        Record(subject.name, stages={"joint": found.to_dict()}),
        Record("own/fine", stages={"joint": {"verdict": "bit-equal", "seconds": 1.0}}),
    ]
    columns, (row,) = rows(records)
    said = dict(zip(columns, row, strict=True))
    assert (said["refused"], said["right"], said["with guards"]) == ("0", "100.0 %", "1")
    page = markdown(records, {"torch": "2"}, "two of them.")
    assert "`dropping` (joint)" in page.partition("## Right with guards")[2]
