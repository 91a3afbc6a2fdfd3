"""L-BFGS: steps along the Newton direction, with curvature estimated from the last steps."""

from __future__ import annotations

import operator
from collections.abc import Callable

from tinytorch.autograd import enable_grad, no_grad
from tinytorch.functions.movement import cat
from tinytorch.optim.line_search import Point, strong_wolfe
from tinytorch.optim.optimizer import Optimizer, Parameters, State
from tinytorch.state import phase
from tinytorch.tensor import Tensor


class LBFGS(Optimizer):
    """p <- p + t d  with  d = -H g, where H estimates the inverse Hessian from the last steps

    One `step` makes up to `max_iter` such iterations, and calls the closure for each. All
    parameters are one group. It is for losses that are the same at every call: full batches.

        def closure():
            optimizer.zero_grad()
            loss = criterion(model(x), y)
            loss.backward()
            return loss

        optimizer.step(closure)

    Args:
        params: tensors; no groups.
        lr: the distance t that is tried first.
        max_iter: iterations in one step.
        max_eval: calls of the closure in one step; by default 1.25 max_iter.
        tolerance_grad: stop where no gradient is larger.
        tolerance_change: stop where neither the parameters nor the loss change by more.
        history_size: steps that H is estimated from.
        line_search_fn: None to go t = lr, "strong_wolfe" to search along d.

    Raises:
        ValueError: there are groups, another line search, or a negative history_size.
        TypeError: `step` without a closure.

    >>> import tinytorch
    >>> p = tinytorch.tensor([1.0, -2.0], requires_grad=True)
    >>> optimizer = LBFGS([p], line_search_fn="strong_wolfe")
    >>> def closure():
    ...     optimizer.zero_grad()
    ...     loss = ((p - 3) ** 2).sum()
    ...     loss.backward()
    ...     return loss
    >>> optimizer.step(closure).item(), p
    (29.0, tensor([3., 3.], requires_grad=True))

    Source: J. Nocedal, S. Wright, "Numerical optimization", 2006, algorithms 7.4 and 7.5.
    """

    def __init__(
        self,
        params: Parameters,
        lr: float = 1.0,
        max_iter: int = 20,
        max_eval: int | None = None,
        tolerance_grad: float = 1e-7,
        tolerance_change: float = 1e-9,
        history_size: int = 100,
        line_search_fn: str | None = None,
    ) -> None:
        if line_search_fn not in (None, "strong_wolfe"):
            raise ValueError(
                f"line_search_fn must be None or 'strong_wolfe', got {line_search_fn!r}"
            )
        if operator.index(history_size) < 0:
            raise ValueError(f"history_size must not be negative, got {history_size}")
        super().__init__(
            params,
            {
                "lr": lr,
                "max_iter": max_iter,
                "max_eval": max_iter * 5 // 4 if max_eval is None else max_eval,
                "tolerance_grad": tolerance_grad,
                "tolerance_change": tolerance_change,
                "history_size": history_size,
                "line_search_fn": line_search_fn,
            },
        )
        if len(self.param_groups) != 1:
            raise ValueError(f"LBFGS takes one group of parameters, got {len(self.param_groups)}")

    def step(self, closure: Callable[[], Tensor] | None = None) -> Tensor:
        """Make up to `max_iter` iterations.

        Args:
            closure: sets the gradients to zero, computes the loss and the gradients, returns the
                loss.

        Returns:
            The loss before the step.
        """
        if closure is None:
            raise TypeError("LBFGS evaluates the loss several times: write step(closure)")

        def evaluate() -> Tensor:
            with enable_grad(), phase("forward"):
                return closure()

        with no_grad(), phase("optimizer"):
            return self._iterate(evaluate)

    def _iterate(self, closure: Callable[[], Tensor]) -> Tensor:
        group, state = self.param_groups[0], self.state[self._params()[0]]
        first_loss = closure()
        loss, g = first_loss.item(), self._flat_gradient()
        state["func_evals"] = state.get("func_evals", 0) + 1
        evaluations, converged = 1, g.abs().amax().item() <= group["tolerance_grad"]
        for iteration in range(1, group["max_iter"] + 1):
            if converged:
                break
            d = self._direction(state, g, group["history_size"])
            t = group["lr"]
            if state["n_iter"] == 1:
                t *= min(1.0, 1.0 / g.abs().sum().item())
            state.update(d=d, t=t, prev_flat_grad=g, prev_loss=loss)
            slope = g.dot(d).item()
            if slope > -group["tolerance_change"]:
                break
            before, calls = loss, 0
            if group["line_search_fn"]:
                found, calls = strong_wolfe(
                    self._along(closure, d), Point(0.0, loss, g, slope), t, d.abs().amax().item(),
                    max_evaluations=group["max_eval"] - evaluations,
                )  # fmt: skip
                t, loss, g, _ = found
                state["t"] = t
                self._move(t, d)
            else:
                self._move(t, d)
                if iteration != group["max_iter"]:  # the next step begins with an evaluation
                    loss, calls = closure().item(), 1
                    g = self._flat_gradient()
            converged = g.abs().amax().item() <= group["tolerance_grad"]
            evaluations += calls
            state["func_evals"] += calls
            still = (d * t).abs().amax().item() <= group["tolerance_change"]
            if still or abs(loss - before) < group["tolerance_change"]:
                break
            if evaluations >= group["max_eval"]:
                break
        return first_loss

    def _direction(self, state: State, g: Tensor, history_size: int) -> Tensor:
        """-H g, by two loops over the last changes s of the parameters and y of the gradient."""
        state["n_iter"] = state.get("n_iter", 0) + 1
        if state["n_iter"] == 1:
            state.update(old_dirs=[], old_stps=[], ro=[], H_diag=1.0)
            return -g
        changes, steps, ro = state["old_dirs"], state["old_stps"], state["ro"]
        y, s = g - state["prev_flat_grad"], state["d"] * state["t"]
        curvature = y.dot(s).item()
        if curvature > 1e-10:
            for history, new in ((changes, y), (steps, s), (ro, 1.0 / curvature)):
                history.append(new)
                del history[: max(len(history) - history_size, 0)]
            state["H_diag"] = curvature / y.dot(y).item()
        q, weights = -g, []
        for y, s, r in zip(reversed(changes), reversed(steps), reversed(ro), strict=True):
            weights.append(s.dot(q).item() * r)
            q = q - y * weights[-1]
        d: Tensor = q * state["H_diag"]
        for y, s, r, weight in zip(changes, steps, ro, reversed(weights), strict=True):
            d = d + s * (weight - y.dot(d).item() * r)
        return d

    def _along(self, closure: Callable[[], Tensor], d: Tensor) -> Callable[[float], Point]:
        """What gives the point t along d; the parameters are then where they were."""
        start = [p.detach().clone() for p in self._params()]

        def evaluate(t: float) -> Point:
            self._move(t, d)
            loss, g = closure().item(), self._flat_gradient()
            for p, value in zip(self._params(), start, strict=True):
                p.copy_(value)
            return Point(t, loss, g, g.dot(d).item())

        return evaluate

    def _move(self, t: float, d: Tensor) -> None:
        position = 0
        for p in self._params():
            p.add_(d[position : position + p.numel()].reshape(p.shape) * t)
            position += p.numel()

    def _flat_gradient(self) -> Tensor:
        """All gradients as one vector of its own memory; 0 for a parameter that has none."""
        self._check_gradients()
        parts = [p.detach() * 0 if p.grad is None else p.grad.detach() for p in self._params()]
        flat: Tensor = cat([part.reshape(-1) for part in parts], 0)
        return flat.clone()
