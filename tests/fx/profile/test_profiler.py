"""The profile of a step: types, times, predicted against measured memory, activations."""

from __future__ import annotations

from collections import Counter

import pytest
import torch

import tinytorch.fx.passes  # noqa: F401 - they are asked for by name
from tests.fx.small import SEMANTICS, ConvNet, mlp, squares
from tinytorch.fx.capture.forward import capture_forward
from tinytorch.fx.capture.joint import capture_joint
from tinytorch.fx.capture.slots import CaptureError
from tinytorch.fx.capture.step import TrainingStep, capture_step
from tinytorch.fx.models import load_model
from tinytorch.fx.profile.clock import HostClock, clock_of, copy_bandwidth
from tinytorch.fx.profile.memory_meter import MemoryMeter
from tinytorch.fx.profile.profile import Profile
from tinytorch.fx.profile.profiler import GraphProfiler
from tinytorch.fx.profile.rows import CATEGORIES
from tinytorch.fx.recompute.checkpointing import CLEANING
from tinytorch.graph.passes import get_pass_by_name

BATCH = (torch.randn((64, 32), generator=torch.Generator().manual_seed(0)),)


@pytest.fixture(scope="module")
def step() -> TrainingStep:
    return capture_step(mlp(3), BATCH, "adam", loss=squares, lr=1e-3)


@pytest.fixture(scope="module")
def profile(step: TrainingStep) -> Profile:
    return GraphProfiler(step, title="three layers").run(repeats=3)


def test_predicted_is_measured(step: TrainingStep, profile: Profile) -> None:
    assert profile.predicted_peak == profile.measured_peak
    inputs = [n.meta["example"] for n in step.module.graph.find_nodes(op="placeholder")]
    with MemoryMeter(inputs) as meter, torch.no_grad():
        step.module(*inputs)
    assert profile.measured_peak == meter.peak + profile.external_bytes
    assert profile.external_bytes == sum(x.nbytes for x in inputs)


def test_nodes_are_classified(profile: Profile) -> None:
    types = Counter((n.phase, n.type) for n in profile.nodes)
    parameters = 3 * 4 + 2
    assert types["", "parameter"] == parameters
    assert types["", "optimizer_state"] == 2 * parameters + 2
    assert types["optimizer", "parameter"] == parameters
    assert types["backward", "gradient"] == parameters
    activations = {n.name for n in profile.nodes if n.type == "activation"}
    assert {a.name for a in profile.activations} <= activations
    assert all(n.phase == "forward" for n in profile.nodes if n.type == "activation")


def test_phases_follow_each_other(profile: Profile) -> None:
    assert list(profile.phases) == ["forward", "backward", "optimizer"]
    forward, backward, optimizer = profile.phases.values()
    assert forward.stop <= backward.start < backward.stop <= optimizer.start


def test_times(profile: Profile) -> None:
    assert profile.whole_seconds > 0
    assert sum(n.seconds for n in profile.nodes if n.phase) > 0
    assert all(n.seconds == 0 for n in profile.nodes if not n.phase)


def test_memory_by_category_adds_up(profile: Profile) -> None:
    assert tuple(profile.memory) == CATEGORIES
    for n in profile.nodes:
        assert n.predicted_bytes == sum(profile.memory[c][n.rank] for c in CATEGORIES)
    assert min(profile.memory["parameter"]) > 0
    boundary = profile.phases["backward"].start
    assert profile.memory["activation"][boundary] > 0
    gradients = profile.memory["gradient"]
    assert gradients[boundary] < gradients[profile.phases["optimizer"].start]
    assert profile.memory["activation"][-1] <= 4  # the loss, whose gradient looks at it


def test_activations(profile: Profile) -> None:
    boundary = profile.phases["backward"].start
    elapsed = sum(n.seconds for n in profile.nodes)
    assert len(profile.activations) >= 6
    for a in profile.activations:
        assert a.rank <= a.last_forward < boundary <= a.first_backward <= a.last_backward
        assert 0 <= a.inactive_seconds <= elapsed
        assert a.swap_seconds == a.nbytes / profile.bandwidth
        assert a.recompute_seconds >= 0
        assert a.recompute_bytes >= a.nbytes
        assert a.recompute_ratio > 0
    first, last = profile.activations[0], profile.activations[-1]
    assert first.inactive_seconds > last.inactive_seconds  # what is made first is needed last


def test_joint_graphs_and_forwards() -> None:
    model, batch = ConvNet(), (torch.ones(2, 3, 8, 8),)
    joint = GraphProfiler(capture_joint(model, batch, squares)).run(repeats=1)
    assert joint.predicted_peak == joint.measured_peak
    assert list(joint.phases) == ["forward", "backward"]
    gradients = {n.name for n in joint.nodes if n.type == "gradient"}
    assert len(gradients) == len(list(model.parameters()))
    forward = capture_forward(mlp(2).eval(), BATCH)
    found = GraphProfiler(forward, BATCH).run(repeats=1)
    assert found.predicted_peak == found.measured_peak
    assert found.activations == []
    assert list(found.phases) == ["forward"]


def test_a_graph_that_writes_its_inputs() -> None:
    def function(x: torch.Tensor) -> torch.Tensor:
        x.mul_(2)
        return x.sum()

    graph = torch.fx.experimental.proxy_tensor.make_fx(function, tracing_mode="fake")(torch.ones(8))
    x = torch.ones(8)
    found = GraphProfiler(graph, [x]).run(repeats=2)
    assert torch.equal(x, torch.ones(8))
    assert found.predicted_peak == found.measured_peak == 32 + 4


def test_a_step_that_updates_in_the_backward() -> None:
    step = capture_step(mlp(2), BATCH, "adam", loss=squares)
    for name in (*CLEANING, "reinplace", "early-update"):
        get_pass_by_name(name)(SEMANTICS).run(step.module.graph)
    step.module.recompile()
    found = GraphProfiler(step).run(repeats=1)
    assert found.predicted_peak == found.measured_peak
    assert found.activations


def test_summary(profile: Profile) -> None:
    text = str(profile)
    assert text.startswith(f"three layers on cpu: {len(profile.nodes)} nodes")
    assert all(phase in text for phase in profile.phases)
    assert profile.peak_node.predicted_bytes == profile.predicted_peak


def test_errors() -> None:
    graph = torch.fx.symbolic_trace(torch.nn.Identity())
    with pytest.raises(CaptureError, match="there is no example of input_1: pass inputs"):
        GraphProfiler(graph)
    with pytest.raises(ValueError, match="at least one run, not 0"):
        GraphProfiler(graph, BATCH).run(repeats=0)


def test_clocks() -> None:
    clock = clock_of(torch.device("cpu"))
    assert isinstance(clock, HostClock)
    start = clock.stamp()
    assert clock.seconds(start, clock.stamp()) >= 0
    assert copy_bandwidth(torch.device("cpu")) > 1e6


@pytest.mark.slow(seconds=50)
@pytest.mark.parametrize(("name", "options"), [
    pytest.param("hf:resnet152", {"batch": 2, "image": 64}, marks=pytest.mark.exhaustive),
    ("hf:bert-base", {"batch": 2, "sequence": 64}),
    pytest.param("hf:gpt2", {"batch": 1, "sequence": 64}, marks=pytest.mark.exhaustive),
])  # fmt: skip
def test_whole_models_to_one_percent(name: str, options: dict[str, int]) -> None:
    example = load_model(name, **options)
    step = capture_step(example.model, example.batch, "adam")
    profile = GraphProfiler(step, title=name).run(repeats=1, warm_up=0)
    assert profile.predicted_peak == pytest.approx(profile.measured_peak, rel=0.01)
    above = [p - profile.external_bytes for p in (profile.predicted_peak, profile.measured_peak)]
    assert above[0] == pytest.approx(above[1], rel=0.01)
