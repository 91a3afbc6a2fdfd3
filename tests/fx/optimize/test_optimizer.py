"""`GraphOptimizer`: what it returns, what it takes back, and what it reports."""

from __future__ import annotations

import json

import pytest
import torch
from torch import Tensor, nn

from tests.fx.optimize.subjects import Doubles, GraphOptimizer, Net, Slower, randn
from tinytorch.fx.capture.slots import CaptureError
from tinytorch.fx.models import load_model
from tinytorch.fx.optimize import optimizer as optimizer_module
from tinytorch.fx.optimize.optimized import OptimizedModule, OptimizedModuleError
from tinytorch.fx.optimize.optimizer import GraphOptimizer as Optimizer, OptimizationError
from tinytorch.fx.optimize.verify import (
    ForwardSemantics,
)
from tinytorch.fx.passes.autotune import is_faster

NAMES = ["hf:resnet152", "hf:bert-base", "hf:gpt2"]


# -- what it returns -------------------------------------------------------------------------------


@pytest.mark.slow_beyond(1)
@pytest.mark.parametrize("name", NAMES)
def test_inference_of_the_models(name: str) -> None:
    example = load_model(name, small=True, batch=2, sequence=16, image=32)
    model = example.model.eval()
    optimizer = GraphOptimizer(model, example.inputs, device="cpu", trials=1)
    module = optimizer.optimize()
    with torch.no_grad():
        expected, found = model(**example.inputs), module(**example.inputs)
    assert type(found) is type(expected)
    torch.testing.assert_close(found[0], expected[0], rtol=1e-4, atol=1e-5)
    before, after = optimizer.report().calls["eval"]
    assert after < 0.75 * before
    assert not optimizer.report().undone
    accurate = optimizer.report().accuracy
    assert accurate is not None and accurate.is_good


@pytest.mark.parametrize("mode", ["train", "eval"])
def test_training(mode: str) -> None:
    model = Net().train()
    x = randn(4, 3, 8, 8)
    optimizer = GraphOptimizer(model, (x,), device="cpu")
    module = optimizer.optimize()
    assert module.training and not optimizer.report().failures
    assert dict(module.named_parameters()).keys() == {
        f"model.{name}" for name, _ in model.named_parameters()
    }
    twin = Net()
    twin.load_state_dict(model.state_dict())
    twin.train(mode == "train")
    module.train(mode == "train")
    results = []
    for each in (module, twin):
        torch.manual_seed(3)
        each(x)["logits"].square().sum().backward()
        results.append([p.grad for p in each.parameters()])
    for a, b in zip(*results, strict=True):
        torch.testing.assert_close(a, b)
    for a, b in zip(model.buffers(), twin.buffers(), strict=True):
        assert torch.equal(a, b)
    assert torch.equal(model.norm.num_batches_tracked, torch.tensor(mode == "train").long())


def test_the_model_stays_as_it_is() -> None:
    model = Net().eval()
    model.dropout.train()  # a part in another mode
    before = {name: t.clone() for name, t in model.state_dict().items()}
    generator = torch.get_rng_state()
    GraphOptimizer(model, (randn(2, 3, 8, 8),), device="cpu", passes=["cse"]).optimize()
    assert not model.training and model.dropout.training
    for name, tensor in model.state_dict().items():
        assert torch.equal(tensor, before[name])
    assert torch.equal(torch.get_rng_state(), generator)


class Averaged(nn.Module):
    """Assigns its buffers, instead of writing to them."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(4, 4)
        self.register_buffer("average", torch.zeros(4))
        self.register_buffer("calls", torch.tensor(0))

    def forward(self, x: Tensor) -> Tensor:
        y = self.layer(x)
        self.average = 0.5 * self.average + y.detach().mean(0)
        self.calls = self.calls + 1
        return y * self.average


@pytest.mark.parametrize("frozen", [False, True])
def test_a_model_that_assigns_its_buffers(frozen: bool) -> None:
    model, twin = Averaged(), Averaged()
    twin.load_state_dict(model.state_dict())
    average = model.average
    optimizer = GraphOptimizer(model, (randn(4, 4),), device="cpu", frozen=frozen)
    module = optimizer.optimize()
    optimizer.benchmark(rounds=1)
    assert model.average is average and not average.any()
    for seed in range(3):
        x = randn(4, 4, seed=seed)
        torch.testing.assert_close(module(x), twin(x).detach() if frozen else twin(x))
        torch.testing.assert_close(dict(model.named_buffers()), dict(twin.named_buffers()))


def test_open_batch() -> None:
    model = Net().eval()
    optimizer = GraphOptimizer(model, (randn(2, 3, 8, 8),), device="cpu", dynamic_dims=(0,))
    module = optimizer.optimize()
    x = randn(7, 3, 8, 8, seed=1)
    with torch.no_grad():
        torch.testing.assert_close(module(x), model(x), rtol=1e-4, atol=1e-5)


class Parity(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(4, 3)

    def forward(self, x: Tensor) -> Tensor:
        even = x.shape[0] % 2 == 0 and x.shape[0] < 8
        return self.layer(x) if even else self.layer(x) * 2


@pytest.mark.parametrize("frozen", [True, False])
def test_an_open_batch_is_held_to_what_the_model_asked(frozen: bool) -> None:
    model = Parity().eval()
    module = GraphOptimizer(
        model, (randn(4, 4),), device="cpu", frozen=frozen, dynamic_dims=(0,), keep_slower=True
    ).optimize()
    with torch.no_grad():
        torch.testing.assert_close(module(randn(6, 4)), model(randn(6, 4)))
    for size in (3, 8):
        with pytest.raises(OptimizedModuleError, match=r"something else for inputs of these sizes"):
            module(randn(size, 4))


def test_a_single_tensor_and_passes_by_name() -> None:
    optimizer = GraphOptimizer(Net().eval(), randn(1, 3, 8, 8), device="cpu", passes=["cse", "dce"])
    optimizer.optimize()
    assert [r.name for r in optimizer.report().results["eval"]] == ["cse", "dce"]


# -- what is checked -------------------------------------------------------------------------------


def test_a_wrong_pass_is_rolled_back_with_a_report() -> None:
    model, x = Net().eval(), randn(2, 3, 8, 8)
    optimizer = GraphOptimizer(model, (x,), device="cpu", passes=["dce", Doubles(), "cse"])
    module = optimizer.optimize()
    (failure,) = optimizer.report().failures
    assert failure.name == "doubles" and "output 0" in str(failure.error)
    assert "rolled back" in str(optimizer.report()) and "output 0" in str(optimizer.report())
    with torch.no_grad():
        torch.testing.assert_close(module(x), model(x))


@pytest.mark.slow
def test_a_slower_pass_is_rolled_back() -> None:
    passes = [Slower(ForwardSemantics(frozen=True))]
    optimizer = GraphOptimizer(Net().eval(), randn(1, 3, 8, 8), device="cpu", passes=passes)
    optimizer.optimize()
    (failure,) = optimizer.report().failures
    assert "not faster" in str(failure.error)


def test_small_errors_that_add_up_are_taken_back() -> None:
    """Each is within the tolerance of a float32 result, but not beside float64."""
    model, x = Net().eval(), randn(2, 3, 8, 8)
    passes = [Doubles(1 + 2e-5), Doubles(1 + 2e-5)]
    optimizer = GraphOptimizer(model, (x,), device="cpu", passes=passes)
    optimizer.optimize()
    report = optimizer.report()
    assert not report.failures
    assert len(report.undone) == 2 and "float64" in report.undone[0]
    assert report.calls["eval"][0] == report.calls["eval"][1]


def test_a_captured_graph_that_is_wrong() -> None:
    class Clock(nn.Module):
        calls = 0

        def forward(self, x: Tensor) -> Tensor:
            self.calls += 1
            return x * self.calls

    with pytest.raises(CaptureError, match=r"gives other results each time.*: output '0'"):
        GraphOptimizer(Clock().eval(), randn(3), device="cpu").optimize()


# -- report, benchmark, undo -----------------------------------------------------------------------


def test_report_and_benchmark() -> None:
    optimizer = GraphOptimizer(Net().eval(), randn(1, 3, 8, 8), device="cpu")
    for method in (optimizer.report, optimizer.benchmark, optimizer.undo):
        with pytest.raises(OptimizationError, match=r"call optimize\(\) first"):
            method()
    optimizer.optimize()
    found = json.loads(json.dumps(optimizer.report().to_dict()))
    assert {"no-ops", "cse", "conv-bn", "onednn"} <= {p["name"] for p in found["passes"]}
    assert found["calls"]["eval"]["after"] < found["calls"]["eval"]["before"]
    assert "eval:" in str(optimizer.report())
    measured = optimizer.benchmark(rounds=3)
    found = json.loads(json.dumps(measured.to_dict()))
    assert found["device"] == "cpu" and found["speedup"] == measured.speedup > 0
    assert found["original"]["rounds"] == 3
    assert found["original"]["calls"] == optimizer.report().calls["eval"][0]
    assert measured.original_peak.peak > 0 and "times as fast" in str(measured)


def test_benchmark_of_training_runs_backward() -> None:
    optimizer = GraphOptimizer(Net().train(), randn(4, 3, 8, 8), device="cpu", trials=1)
    optimizer.optimize()
    trained = optimizer.benchmark(rounds=2)
    frozen = GraphOptimizer(Net().eval(), randn(4, 3, 8, 8), device="cpu", trials=1)
    frozen.optimize()
    assert trained.original_peak.peak > frozen.benchmark(rounds=2).original_peak.peak


def test_undo() -> None:
    model, x = Net().eval(), randn(2, 3, 8, 8)
    optimizer = GraphOptimizer(model, (x,), device="cpu", passes=["cse", "conv-bn", "dce"])
    module = optimizer.optimize()
    norms = lambda: len([n for n in module.graph_module.graph.nodes  # noqa: E731
                         if n.target is torch.ops.aten.batch_norm.default])  # fmt: skip
    assert norms() == 0
    for expected in (0, 1, 1):  # dce, then conv-bn, then cse
        assert optimizer.undo() is module
        assert norms() == expected
        with torch.no_grad():
            torch.testing.assert_close(module(x), model(x))
    before, after = optimizer.report().calls["eval"]
    assert before == after
    with pytest.raises(OptimizationError, match="as captured"):
        optimizer.undo()
    assert [line.split()[0] for line in optimizer.report().undone] == ["dce", "conv-bn", "cse"]


def test_undo_in_both_modes() -> None:
    optimizer = GraphOptimizer(Net().train(), randn(2, 3, 8, 8), device="cpu", passes=["cse"])
    optimizer.optimize()
    assert all(after < before for before, after in optimizer.report().calls.values())
    optimizer.undo()
    assert all(after == before for before, after in optimizer.report().calls.values())


def test_is_faster() -> None:
    a = torch.ones(200, 200)
    assert is_faster(lambda: a.sum(), lambda: a @ a @ a)
    assert not is_faster(lambda: a @ a @ a, lambda: a.sum())


# -- wrong use -------------------------------------------------------------------------------------


def test_unknown_passes_and_devices() -> None:
    with pytest.raises(KeyError, match=r"there is no pass 'cs'; there are .*conv-bn"):
        GraphOptimizer(Net(), randn(1, 3, 8, 8), passes=["cs"], device="cpu")
    with pytest.raises(ValueError, match="valid names are auto, cpu"):
        GraphOptimizer(Net(), randn(1, 3, 8, 8), device="gpu")


# -- the cost of a call ----------------------------------------------------------------------------


def is_timed_as(monkeypatch: pytest.MonkeyPatch, times: float) -> None:
    monkeypatch.setattr(optimizer_module, "times_as_fast", lambda new, old, device: times)


def test_a_slower_module_gives_the_model_back(monkeypatch: pytest.MonkeyPatch) -> None:
    model, x = Net().eval(), randn(2, 3, 8, 8)
    is_timed_as(monkeypatch, 0.62)
    optimizer = Optimizer(model, x, device="cpu", trials=1)
    with pytest.warns(UserWarning, match=r"Net optimized is slower .* 0.62 times .* given back"):
        assert optimizer.optimize() is model
    report = optimizer.report()
    assert report.is_reverted and report.to_dict()["speedup"] == 0.62
    assert "0.62 times as fast: the model itself is given back" in str(report)
    kept = Optimizer(model, x, device="cpu", trials=1, keep_slower=True)
    assert isinstance(kept.optimize(), OptimizedModule) and kept.report().speedup is None
    with pytest.warns(UserWarning, match="given back"):
        assert Optimizer(model.train(), x, device="cpu", trials=1).optimize() is model
    # a model in training mode does not do what a frozen module does
    training = Optimizer(model, x, device="cpu", trials=1, frozen=True)
    assert isinstance(training.optimize(), OptimizedModule)
    assert "so it is kept" in str(training.report())


def test_a_faster_module_is_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    for times in (1.5, 0.97):  # the second is within the noise of timing
        is_timed_as(monkeypatch, times)
        optimizer = Optimizer(Net().eval(), randn(2, 3, 8, 8), device="cpu", trials=1)
        assert isinstance(optimizer.optimize(), OptimizedModule)
        assert f"{times:.2f} times as fast as the model" in str(optimizer.report())


@pytest.mark.filterwarnings("ignore:.*given back")
def test_timing_leaves_no_trace() -> None:
    """Buffers, generators, gradients and inputs are as they were; dropout and batch norm are on."""
    model, x = Net().train(), randn(4, 3, 8, 8)
    before = {name: t.clone() for name, t in model.state_dict().items()}
    generator, given = torch.get_rng_state(), x.clone()
    optimizer = Optimizer(model, x, device="cpu", trials=1)
    optimizer.optimize()
    assert optimizer.report().speedup
    optimizer.benchmark(rounds=1)
    assert all(t.equal(before[name]) for name, t in model.state_dict().items())
    assert torch.get_rng_state().equal(generator) and x.equal(given)
    assert all(p.grad is None for p in model.parameters()) and model.training
