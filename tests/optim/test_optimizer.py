"""What all optimizers share: groups, state, gradients that do not fit, modes that listen."""

from __future__ import annotations

import json
import re
from typing import Any

import numpy as np
import pytest
import torch

import tinytorch
from tinytorch import AutogradError, DTypeError, Mode, ShapeError, Tensor, optim
from tinytorch.optim import SGD, Adam, AdamW, Optimizer, RMSprop
from tinytorch.optim.muon import orthogonalize
from tinytorch.state import current_phase

MAKERS = [
    lambda params: SGD(params, lr=0.1),
    lambda params: SGD(params, lr=0.1, momentum=0.9, dampening=0.5),
    lambda params: Adam(params, lr=0.1),
    lambda params: AdamW(params, lr=0.1, amsgrad=True),
    lambda params: RMSprop(params, lr=0.1, momentum=0.9, centered=True),
]
each_optimizer = pytest.mark.parametrize("make", MAKERS)


def parameters(dtype: str = "float64") -> list[Tensor]:
    rng = np.random.default_rng(0)
    shapes = [(2, 3), (3,)]
    return [tinytorch.tensor(rng.normal(size=s), dtype, requires_grad=True) for s in shapes]


def train(params: list[Tensor], optimizer: Optimizer, steps: int, seed: int = 1) -> None:
    rng = np.random.default_rng(seed)
    for _ in range(steps):
        x = tinytorch.tensor(rng.normal(size=(4, 2)), params[0].dtype)
        optimizer.zero_grad()
        ((x @ params[0] + params[1]).tanh() ** 2).sum().backward()
        optimizer.step()


def values(params: list[Tensor]) -> list[Any]:
    return [p.tolist() for p in params]


@each_optimizer
def test_a_step_changes_the_same_tensors_in_place(make: Any) -> None:
    params = parameters()
    arrays, before = [p._data for p in params], values(params)
    train(params, make(params), 1)
    assert all(p._data is array for p, array in zip(params, arrays, strict=True))
    assert all(p.requires_grad and p.history is None for p in params)
    assert values(params) != before


@each_optimizer
def test_parameters_without_gradient_stay(make: Any) -> None:
    params = parameters()
    optimizer = make(params)
    before = values(params)
    optimizer.step()
    assert values(params) == before
    assert len(optimizer.state) == 0


@each_optimizer
def test_a_saved_state_continues_bit_for_bit(make: Any) -> None:
    params = parameters()
    optimizer = make(params)
    train(params, optimizer, 3)
    others = [p.detach().clone().requires_grad_() for p in params]
    other = make(others)
    other.load_state_dict(optimizer.state_dict())
    train(params, optimizer, 5, seed=2)
    train(others, other, 5, seed=2)
    assert values(others) == values(params)


@each_optimizer
def test_a_loaded_state_is_a_copy(make: Any) -> None:
    params = parameters()
    optimizer = make(params)
    train(params, optimizer, 2)
    other = make(parameters())
    other.load_state_dict(optimizer.state_dict())
    taken = str(other.state_dict()["state"])
    train(params, optimizer, 1)
    assert str(other.state_dict()["state"]) == taken


def test_state_of_a_parameter_that_was_never_updated_is_empty() -> None:
    p, q = parameters()
    optimizer = Adam([p, q])
    p.sum().backward()
    optimizer.step()
    state = optimizer.state_dict()["state"]
    assert sorted(state[0]) == ["exp_avg", "exp_avg_sq", "step"] and 1 not in state
    other = Adam(parameters())
    other.load_state_dict(optimizer.state_dict())
    assert list(other.state_dict()["state"]) == [0]


def test_options_survive_json() -> None:
    optimizer = Adam([tinytorch.zeros(2)], lr=0.5, betas=(0.5, 0.75))
    other = Adam([tinytorch.zeros(2)])
    other.load_state_dict(json.loads(json.dumps(optimizer.state_dict())))
    assert other.param_groups[0]["betas"] == (0.5, 0.75)
    assert other.param_groups[0]["lr"] == 0.5


def test_options_of_a_schedule_or_of_the_program_are_loaded() -> None:
    theirs = torch.optim.AdamW([torch.zeros(2)])
    torch.optim.lr_scheduler.OneCycleLR(theirs, max_lr=0.5, total_steps=10)
    optimizer = AdamW([tinytorch.zeros(2)])
    optimizer.load_state_dict(theirs.state_dict())
    assert optimizer.param_groups[0]["max_lr"] == 0.5
    assert optimizer.param_groups[0]["lr"] == theirs.param_groups[0]["lr"]
    optimizer.param_groups[0]["lr_scale"] = 0.25
    other = AdamW([tinytorch.zeros(2)])
    other.load_state_dict(optimizer.state_dict())
    assert other.param_groups[0]["lr_scale"] == 0.25


def test_a_state_that_does_not_fit_changes_nothing() -> None:
    params = parameters()
    optimizer = Adam(params)
    train(params, optimizer, 1)
    good = optimizer.state_dict()
    bad = optimizer.state_dict()
    del bad["state"][0]["exp_avg"]
    bad["state"][0]["step"] = "one"
    bad["state"][7] = {"step": 1}
    bad["state"][1]["exp_avg"] = tinytorch.zeros(4)
    bad["state"][1]["velocity"] = 3
    bad["param_groups"][0] = {**bad["param_groups"][0], "lr": 7.0}
    del bad["param_groups"][0]["eps"]
    with pytest.raises(ValueError) as error:
        optimizer.load_state_dict(bad)
    assert str(error.value).splitlines() == [
        "this state does not fit this Adam, which stays as it was:",
        "  group 0: missing options ['eps'], unknown options []",
        "  parameter 0: missing state ['exp_avg'], unknown state []",
        "  parameter 0: step is 'one', expected a tensor",
        "  parameter 1: missing state [], unknown state ['velocity']",
        "  parameter 1: exp_avg is float32[4], expected float64[3]",
        "  parameter 1: velocity is 3, expected a tensor",
        "  the state of parameter 7, but there are 2",
    ]
    assert str(optimizer.state_dict()) == str(good)


@pytest.mark.parametrize(
    ("state", "message"),
    [
        ({"state": []}, "it has no param_groups"),
        ({"state": [], "param_groups": []}, "groups of [] parameters, expected groups of [2]"),
        (SGD(parameters()).state_dict(), "missing options ['amsgrad', 'betas', 'decoupled_weight"),
        (
            AdamW(parameters()).state_dict(),
            "group 0: decoupled_weight_decay is True, expected False",
        ),
    ],
)
def test_a_state_of_another_shape_is_refused(state: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=re.escape(message)):
        Adam(parameters()).load_state_dict(state)


def test_groups_have_their_own_options() -> None:
    p, q = (tinytorch.ones(1, requires_grad=True) for _ in range(2))
    optimizer = SGD([{"params": [p], "lr": 0.5}, {"params": q}], lr=0.25)
    (p + q).sum().backward()
    optimizer.step()
    assert (p.item(), q.item()) == (0.5, 0.75)
    assert repr(optimizer).splitlines()[1].startswith("  1 parameters, lr=0.5, momentum=0.0")


def test_a_generator_of_parameters_is_taken() -> None:
    assert len(SGD(p for p in parameters()).param_groups[0]["params"]) == 2


@pytest.mark.parametrize(
    ("params", "error", "message"),
    [
        ([], ValueError, "an optimizer needs at least one parameter, got none"),
        (tinytorch.zeros(2), TypeError, "for one tensor t write [t]"),
        ([3.0], TypeError, "parameter 0 is not a tensor but float"),
        ([tinytorch.arange(3)], DTypeError, "parameter 0 (shape (3,)) is int64; only floats"),
        ([parameters()[0] * 2], AutogradError, "was computed from other tensors; optimize those"),
        ([tinytorch.zeros(2)] * 2, ValueError, "parameter 1 (shape (2,)) is given twice"),
        ([{"params": {tinytorch.zeros(2)}}], TypeError, "must be in order, which a set is not"),
        (
            [{"params": [tinytorch.zeros(1)], "lrate": 1}],
            ValueError,
            "SGD has no option lrate; it has lr, momentum, dampening",
        ),
    ],
)
def test_parameters_that_cannot_be_optimized(params: Any, error: Any, message: str) -> None:
    with pytest.raises(error, match=re.escape(message)):
        SGD(params)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda p: SGD(p, lr=-1.0), "lr must be at least 0, got -1.0"),
        (lambda p: SGD(p, lr=float("nan")), "lr must be at least 0, got nan"),
        (lambda p: SGD(p, weight_decay=-1.0), "weight_decay must be at least 0, got -1.0"),
        (lambda p: SGD(p, momentum=-0.5), "momentum must be at least 0, got -0.5"),
        (lambda p: SGD(p, nesterov=True), "nesterov needs momentum above 0 and dampening 0"),
        (lambda p: Adam(p, betas=(0.9, 1.0)), "betas must be two numbers in [0, 1), got (0.9, 1"),
        (lambda p: AdamW(p, eps=-1.0), "eps must be at least 0, got -1.0"),
        (lambda p: RMSprop(p, alpha=1.5), "alpha must be in [0, 1], got 1.5"),
        (lambda p: RMSprop(p, momentum=-1.0), "momentum must be at least 0, got -1.0"),
    ],
)
def test_options_out_of_range(make: Any, message: str) -> None:
    with pytest.raises(ValueError, match=re.escape(message)):
        make(parameters())


def test_a_gradient_that_does_not_fit_changes_no_parameter() -> None:
    params = parameters()
    before = values(params)
    optimizer = SGD(params, lr=1.0)
    params[0].grad = tinytorch.ones(2, 3, dtype="float64")
    params[1].grad = tinytorch.ones(1, dtype="float64")
    message = "the gradient of a parameter of shape (3,) has shape (1,); set p.grad to a tensor"
    with pytest.raises(ShapeError, match=re.escape(message)):
        optimizer.step()
    params[1].grad = tinytorch.ones(3)
    with pytest.raises(DTypeError, match=r"the gradient of a float64 parameter of .* float32"):
        optimizer.step()
    assert values(params) == before


def test_a_parameter_converted_after_the_optimizer_was_made() -> None:
    (p,) = params = [tinytorch.ones(2, requires_grad=True)]
    optimizer = Adam(params)
    p.sum().backward()
    optimizer.step()
    double = p.detach().double()
    p._data, p.meta = double._data, double.meta
    p.grad = tinytorch.ones(2, dtype="float64")
    message = "exp_avg is float32[2], but its parameter has become float64[2]; make the optimizer"
    with pytest.raises(DTypeError, match=re.escape(message)):
        optimizer.step()


def test_zero_grad_forgets_gradients() -> None:
    params = parameters()
    train(params, SGD(params), 1)
    assert all(p.grad is not None for p in params)
    SGD(params).zero_grad()
    assert all(p.grad is None for p in params)


def test_step_with_a_closure_records_and_returns_its_loss() -> None:
    p = tinytorch.ones(1, requires_grad=True)
    optimizer = SGD([p], lr=0.25)

    def closure() -> Tensor:
        optimizer.zero_grad()
        loss = (p * p).sum()
        loss.backward()
        return loss

    with tinytorch.no_grad():
        loss = optimizer.step(closure)
    assert loss is not None and loss.item() == 1.0
    assert p.item() == 0.5


class Listener(Mode):
    def __init__(self) -> None:
        self.phases: set[str] = set()
        self.written: list[Tensor] = []

    def run(self, op: Any, inputs: Any, params: Any, plan: Any) -> Any:
        self.phases.add(current_phase())
        return self.below(op, inputs, params, plan)

    def write(self, target: Tensor, data: Any) -> None:
        self.written.append(target)
        super().write(target, data)


@each_optimizer
def test_a_mode_sees_the_whole_update(make: Any) -> None:
    params = parameters()
    optimizer = make(params)
    (params[0].sum() + params[1].sum()).backward()
    with Listener() as listener:
        optimizer.step()
    assert listener.phases == {"optimizer"}
    changed = [*params, *(t for s in optimizer.state.values() for t in s.values())]
    tensors = {id(t) for t in changed if isinstance(t, Tensor)}
    assert {id(t) for t in listener.written} == tensors


@each_optimizer
def test_an_update_between_forward_and_backward_is_noticed(make: Any) -> None:
    p = tinytorch.ones(3, requires_grad=True)
    optimizer = make([p])
    loss = (p * p).sum()
    p.grad = tinytorch.ones(3)
    optimizer.step()
    with pytest.raises(AutogradError):
        loss.backward()


# -- programs written for PyTorch ------------------------------------------------------------------


def user_optimizer(library: Any) -> Any:
    """An optimizer as programs write it: `step` of their own, `self.param_groups`, `self.state`."""

    class Heavy(library.optim.Optimizer):
        def __init__(self, params: Any, lr: float = 0.1, beta: float = 0.9) -> None:
            super().__init__(params, dict(lr=lr, beta=beta))

        @library.no_grad()
        def step(self, closure: Any = None) -> Any:
            loss = None
            if closure is not None:
                with library.enable_grad():
                    loss = closure()
            for group in self.param_groups:
                for p in group["params"]:
                    if p.grad is None:
                        continue
                    state = self.state[p]
                    if len(state) == 0:
                        state["step"] = 0
                        state["velocity"] = library.zeros_like(p)
                    state["step"] += 1
                    state["velocity"].mul_(group["beta"]).add_(p.grad)
                    p.add_(state["velocity"], alpha=-group["lr"] / state["step"])
            return loss

    return Heavy


def test_an_optimizer_that_has_only_step_runs_as_in_pytorch(rng: Any) -> None:
    start = rng.normal(size=(3, 2)).astype(np.float32)
    seen = []
    for library in (tinytorch, torch):
        p = library.tensor(start.copy(), requires_grad=True)
        optimizer = user_optimizer(library)([p], lr=0.2)
        schedule = library.optim.lr_scheduler.StepLR(optimizer, 2, 0.5)
        losses = []
        for _ in range(5):

            def closure() -> Any:
                optimizer.zero_grad()  # noqa: B023
                loss = (p**2).sum()  # noqa: B023
                loss.backward()
                return loss

            losses.append(optimizer.step(closure).item())
            schedule.step()
        again = user_optimizer(library)([p])
        again.load_state_dict(optimizer.state_dict())
        assert again.state_dict()["state"][0]["step"] == 5
        assert again.param_groups[0]["lr"] == pytest.approx(0.05)
        seen.append(losses)
    np.testing.assert_allclose(seen[0], seen[1], rtol=1e-5)


def test_an_optimizer_with_neither_says_what_to_write() -> None:
    (p, _) = parameters()
    p.grad = p.detach()
    with pytest.raises(NotImplementedError, match=r"Optimizer must define update\(p, g, state, gr"):
        Optimizer([p], {"lr": 0.1}).step()


def test_zero_grad_keeps_the_gradients_if_asked() -> None:
    params = parameters()
    optimizer = SGD(params)
    train(params, optimizer, 1)
    held = params[0].grad
    optimizer.zero_grad(set_to_none=False)
    assert params[0].grad is held and held is not None and held.tolist() == [[0, 0, 0], [0, 0, 0]]
    optimizer.zero_grad(set_to_none=True)
    assert params[0].grad is None


def test_hints_are_taken_and_change_nothing() -> None:
    optimizer = AdamW(parameters(), lr=0.1, fused=True, foreach=None, capturable=False)
    assert "fused" not in optimizer.param_groups[0]
    with pytest.raises(TypeError, match="AdamW got an unexpected keyword 'learning'; its options"):
        AdamW(parameters(), learning=0.1)
    with pytest.raises(ValueError, match="differentiable=True: a step changes parameters in place"):
        SGD(parameters(), differentiable=True)


def test_a_group_may_have_entries_of_its_own() -> None:
    p, q = parameters()
    optimizer = SGD([{"params": [p], "name": "first", "lr_scale": 0.5}], lr=0.1)
    optimizer.add_param_group({"params": q, "lr": 0.5})
    assert optimizer.param_groups[0]["name"] == "first"
    assert [group["lr"] for group in optimizer.param_groups] == [0.1, 0.5]
    other = SGD([{"params": [p], "name": "x", "lr_scale": 1.0}, {"params": [q]}])
    other.load_state_dict(optimizer.state_dict())
    assert other.param_groups[0]["name"] == "first"
    for wrong, meant in [("learning_rate", "lr"), ("weight_decai", "weight_decay")]:
        with pytest.raises(ValueError, match=f"no option {wrong}; .* Did you mean {meant}"):
            SGD([{"params": [p], wrong: 1.0}])


def test_named_parameters_are_taken() -> None:
    p, q = parameters()
    group = SGD([("weight", p), ("bias", q)], lr=0.1).param_groups[0]
    assert group["params"] == [p, q] and group["param_names"] == ["weight", "bias"]


def test_muon_moves_every_direction_as_far(rng: np.random.Generator) -> None:
    u, _ = np.linalg.qr(rng.normal(size=(12, 12)))
    v, _ = np.linalg.qr(rng.normal(size=(8, 8)))
    g = tinytorch.tensor(u[:, :8] * np.geomspace(1, 0.02, 8) @ v)
    for each in (g, g.T):
        singular = np.linalg.svd(orthogonalize(each).numpy(), compute_uv=False)
        assert singular.min() > 0.5 and singular.max() < 1.3


def test_muon_refuses_what_is_no_matrix() -> None:
    for params in ([tinytorch.zeros(3)], [tinytorch.zeros(3, 3, 2)]):
        with pytest.raises(ShapeError, match=r"matrices, got a parameter of shape \(3,"):
            optim.Muon(params)
    with pytest.raises(ValueError, match=r"adjust_lr_fn must be one of .*, got 'adam'"):
        optim.Muon([tinytorch.zeros(3, 3)], adjust_lr_fn="adam")
    with pytest.raises(ValueError, match=r"ns_coefficients must be three, got \(1, 2\)"):
        optim.Muon([tinytorch.zeros(3, 3)], ns_coefficients=(1, 2))
    with pytest.raises(ValueError, match=r"ns_steps must be in \[0, 100\), got 100"):
        optim.Muon([tinytorch.zeros(3, 3)], ns_steps=100)
