"""What the sixth module's parts do inside the package."""

import math

import tinytorch
from tinytorch import optim
from tito.checks import check, close, equal, raises


def valley(p: tinytorch.Tensor) -> tinytorch.Tensor:
    """The gradient of (x^2 + 100 y^2) / 2."""
    return p.detach() * tinytorch.tensor([1.0, 100.0])


def test_steps_go_down_the_valley() -> None:
    """SGD, momentum, Nesterov, Adam and AdamW all come near the bottom of the valley"""
    makers = {
        "SGD": lambda p: optim.SGD([p], lr=0.0198),
        "momentum": lambda p: optim.SGD([p], lr=0.033, momentum=0.67),
        "Nesterov": lambda p: optim.SGD([p], lr=0.01, momentum=0.8, nesterov=True),
        "Adam": lambda p: optim.Adam([p], lr=0.4, betas=(0.8, 0.99)),
        "AdamW": lambda p: optim.AdamW([p], lr=0.4, betas=(0.8, 0.99), weight_decay=0.1),
    }
    for name, make in makers.items():
        p = tinytorch.tensor([10.0, 1.0])
        optimizer = make(p)
        for _ in range(150):
            p.grad = valley(p)
            optimizer.step()
        check(p.abs().max().item() < 1.0, f"{name} is at {p.tolist()} after 150 steps")
    p = tinytorch.tensor([1.0, -2.0])
    p.grad = tinytorch.tensor([0.5, 0.0])
    optim.SGD([p], lr=0.5, weight_decay=1.0).step()
    close(p.tolist(), [0.25, -1.0])


def test_groups_have_their_own_rate() -> None:
    """groups differ in their options, what is wrong is refused, gradients are dropped"""
    a, b = tinytorch.ones(1), tinytorch.ones(1)
    optimizer = optim.SGD([{"params": [a]}, {"params": [b], "lr": 0.5}], lr=0.1)
    a.grad, b.grad = tinytorch.ones(1), tinytorch.ones(1)
    optimizer.step()
    close(a.tolist() + b.tolist(), [0.9, 0.5])
    raises(ValueError, optimizer.add_param_group, {"params": [b]})
    equal(len(optimizer.param_groups), 2)
    optimizer.zero_grad()
    equal((a.grad, b.grad), (None, None))


def test_a_run_is_resumed() -> None:
    """an optimizer that is saved, copied and loaded goes on as if it had not stopped"""
    runs = []
    for stop in (False, True):
        p = tinytorch.tensor([10.0, 1.0])
        optimizer = optim.Adam([p], lr=0.3)
        for i in range(12):
            if stop and i == 6:
                saved = optimizer.state_dict()
                optimizer = optim.Adam([p], lr=0.1)
                optimizer.load_state_dict(saved)
            p.grad = valley(p)
            optimizer.step()
        runs.append(p.tolist())
    equal(runs[1], runs[0])


def test_steps_have_a_limit_and_a_schedule() -> None:
    """gradients are clipped by norm and by value, and rates follow their schedule"""
    p = tinytorch.zeros(2)
    p.grad = tinytorch.tensor([30.0, -40.0])
    close(optim.clip_grad_norm_([p], 5.0).item(), 50.0)
    close(p.grad.tolist(), [3.0, -4.0])
    optim.clip_grad_value_([p], 3.5)
    close(p.grad.tolist(), [3.0, -3.5])
    optimizer = optim.SGD([p], lr=1.0)
    parts = [optim.LinearLR(optimizer, 0.5, total_iters=2), optim.CosineAnnealingLR(optimizer, 4)]
    schedule = optim.SequentialLR(optimizer, parts, milestones=[2])
    rates = []
    for _ in range(6):
        rates.append(optimizer.param_groups[0]["lr"])
        schedule.step()
    half = math.sqrt(0.5) / 2
    close(rates, [0.5, 0.75, 1.0, 0.5 + half, 0.5, 0.5 - half])
    power = optim.lr_scheduler.PolynomialLR(optim.SGD([p], lr=2.0), total_iters=4, power=2.0)
    power.step()
    close(power.get_last_lr(), [1.125])
