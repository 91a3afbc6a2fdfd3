"""Hooks before and after a step, beside PyTorch's."""

from __future__ import annotations

import copy
import pickle
from typing import Any

import pytest
import torch

import tinytorch
from tinytorch import optim


def weight(t: Any) -> Any:
    p = t.tensor([1.0, 2.0], requires_grad=True)
    (p * p).sum().backward()
    return p


@pytest.mark.parametrize("name", ["SGD", "AdamW", "LBFGS"])
def test_the_order_of_hooks_and_what_they_are_given(name: str) -> None:
    logs = []
    for t in (tinytorch, torch):
        p, log = weight(t), list[Any]()
        optimizer = getattr(t.optim, name)([p], lr=0.1)

        def closure(p: Any = p, optimizer: Any = optimizer, log: Any = log) -> Any:
            log.append("closure")
            optimizer.zero_grad()
            loss = (p * p).sum()
            loss.backward()
            return loss

        def hook(which: str, log: Any = log, optimizer: Any = optimizer, p: Any = p) -> Any:
            def call(*given: Any) -> None:
                own, args, kwargs = given
                assert own is optimizer is args[0]
                log.append((which, len(args), sorted(kwargs), p.tolist() == [1.0, 2.0]))

            return call

        handles = [optimizer.register_step_pre_hook(hook(which)) for which in "ab"]
        handles += [optimizer.register_step_post_hook(hook(which)) for which in "cd"]
        optimizer.step(closure)
        handles[0].remove()
        handles[3].remove()
        optimizer.step(closure=closure)
        logs.append([entry for entry in log if entry != "closure"])
    assert logs[0] == logs[1]
    assert [which for which, *_ in logs[0]] == list("abcd") + list("bc")


def test_a_hook_may_replace_the_arguments() -> None:
    for t in (tinytorch, torch):
        p = weight(t)
        optimizer = t.optim.SGD([p], lr=0.1)
        optimizer.register_step_pre_hook(lambda o, args, kwargs: ((o, lambda: 7.0), {}))
        assert optimizer.step() == 7.0
        optimizer.register_step_pre_hook(lambda *_: [1])
        with pytest.raises((TypeError, RuntimeError), match="None or"):
            optimizer.step()


class Halving(optim.Optimizer):
    """Its own `step`, as programs for PyTorch write it."""

    def __init__(self, params: Any) -> None:
        super().__init__(params, {})

    def step(self, closure: Any = None) -> None:
        with tinytorch.no_grad():
            for p in self._params():
                p.mul_(0.5)


class Twice(optim.SGD):
    def step(self, closure: Any = None) -> Any:
        super().step()
        return super().step(closure)


@pytest.mark.parametrize("make", [Halving, lambda params: Twice(params, lr=0.1)])
def test_a_step_of_a_subclass_has_the_hooks_once(make: Any) -> None:
    optimizer, calls = make([weight(tinytorch)]), []
    optimizer.register_step_post_hook(lambda *_: calls.append(1))
    optimizer.step()
    assert calls == [1]


def test_hooks_run_again_after_an_error() -> None:
    optimizer, calls = optim.SGD([weight(tinytorch)], lr=0.1), []
    optimizer.register_step_pre_hook(lambda *_: calls.append(1))
    for _ in range(2):
        with pytest.raises(ZeroDivisionError):
            optimizer.step(lambda: 1 / 0)  # type: ignore[arg-type, return-value]
    assert calls == [1, 1]


def test_a_schedule_and_a_copy() -> None:
    optimizer, rates = optim.SGD([weight(tinytorch)], lr=1.0), []
    schedule = optim.lr_scheduler.ExponentialLR(optimizer, 0.5)
    optimizer.register_step_post_hook(lambda o, *_: rates.append(o.param_groups[0]["lr"]))
    for _ in range(3):
        optimizer.step()
        schedule.step()
    assert rates == [1.0, 0.5, 0.25]
    for other in (copy.deepcopy(optimizer), pickle.loads(pickle.dumps(optimizer))):
        other.step()  # has no hooks, as in PyTorch
        assert other.param_groups[0]["lr"] == 0.125
    assert len(rates) == 3
