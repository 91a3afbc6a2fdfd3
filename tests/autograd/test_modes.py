"""`no_grad`, `enable_grad`, `inference_mode`, `set_grad_enabled`: what records, as in PyTorch."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

import pytest
import torch

import tinytorch
from tinytorch.errors import AutogradError


def _recorded(library: Any) -> tuple[bool, bool]:
    """Whether an op on a tensor that requires a gradient is recorded here, and gradients are on."""
    x = library.ones(2, requires_grad=True)
    return (x * 2).requires_grad, library.is_grad_enabled()


def _nested(library: Any, *names: str) -> tuple[bool, bool]:
    if not names:
        return _recorded(library)
    name, *inner = names
    function, _, argument = name.partition(" ")
    made = getattr(library, function)
    with made(argument == "True") if argument else made():
        return _nested(library, *inner)


@pytest.mark.parametrize("names", [
    ("inference_mode",),
    ("inference_mode", "enable_grad"),
    ("inference_mode", "set_grad_enabled True"),
    ("inference_mode", "no_grad", "enable_grad"),
    ("no_grad", "inference_mode", "enable_grad"),
    ("inference_mode", "inference_mode", "enable_grad"),
    ("inference_mode", "inference_mode False"),
    ("inference_mode", "inference_mode False", "no_grad"),
    ("inference_mode", "inference_mode False", "no_grad", "enable_grad"),
    ("inference_mode", "no_grad", "inference_mode False"),
    ("inference_mode", "inference_mode False", "inference_mode", "enable_grad"),
    ("no_grad", "inference_mode False"),
    ("no_grad", "enable_grad"),
    ("no_grad", "set_grad_enabled True", "set_grad_enabled False"),
])  # fmt: skip
def test_nested(names: tuple[str, ...]) -> None:
    assert _nested(tinytorch, *names) == _nested(torch, *names)
    assert _recorded(tinytorch) == (True, True)


def _a_call(library: Any) -> list[tuple[bool, bool]]:
    with library.inference_mode():
        library.set_grad_enabled(True)
        found = [_recorded(library)]
        library.set_grad_enabled(False)
        with library.enable_grad():
            found.append(_recorded(library))
    return [*found, _recorded(library)]


def _decorated(library: Any) -> list[tuple[bool, bool]]:
    def run() -> tuple[bool, bool]:
        with library.enable_grad():
            return _recorded(library)

    enabled = library.enable_grad()(lambda: _recorded(library))
    with library.inference_mode():
        found = [enabled()]
    found += [library.inference_mode()(run)(), library.inference_mode(run)(), enabled()]
    with library.inference_mode():
        found.append(library.inference_mode(False)(run)())
    return found


def _a_generator(library: Any) -> list[tuple[bool, bool]]:
    @library.inference_mode()
    def steps() -> Any:
        for _ in range(2):
            with library.enable_grad():
                inside = _recorded(library)
            yield inside

    found = []
    for inside in steps():
        found += [inside, _recorded(library)]
    return found


def _a_thread(library: Any) -> list[tuple[bool, bool]]:
    found = []
    with library.inference_mode():
        thread = threading.Thread(target=lambda: found.append(_recorded(library)))
        thread.start()
        thread.join()
    return found


def _a_derivative(library: Any) -> list[float]:
    with library.inference_mode():
        return library.func.grad(lambda x: (x * x).sum())(library.ones(2)).tolist()  # type: ignore[no-any-return]


@pytest.mark.parametrize(
    "found", [_a_call, _decorated, _a_generator, _a_thread, _a_derivative], ids=lambda f: f.__name__
)
def test_in_inference_mode(found: Callable[[Any], list[Any]]) -> None:
    assert found(tinytorch) == found(torch)
    assert _recorded(tinytorch) == (True, True)


def test_a_closure_in_inference_mode_has_no_gradients() -> None:
    w = tinytorch.nn.Parameter(tinytorch.ones(2))
    optimizer = tinytorch.optim.SGD([w], lr=0.1)

    def closure() -> Any:
        loss = (w * w).sum()
        loss.backward()
        return loss

    with tinytorch.inference_mode(), pytest.raises(AutogradError):
        optimizer.step(closure)
    with tinytorch.no_grad():
        optimizer.step(closure)


def test_compiled_functions_know_inference_mode_from_no_grad() -> None:
    w = tinytorch.ones(2, requires_grad=True)

    @tinytorch.compile
    def loss() -> Any:
        with tinytorch.enable_grad():
            (w * 2).sum().backward()
        return w * 1

    with tinytorch.no_grad():
        loss()
    assert w.grad is not None
    with tinytorch.inference_mode(), pytest.raises(AutogradError):
        loss()


def test_a_compiled_function_knows_each_kind_of_inference() -> None:
    x = tinytorch.ones(2, requires_grad=True)

    def scaled(x: Any) -> Any:
        return x * (2.0 if tinytorch.is_grad_enabled() else 3.0)

    compiled = tinytorch.compile(scaled)
    for _ in range(2):
        with tinytorch.inference_mode():
            assert compiled(x).tolist() == [3.0, 3.0]
            with tinytorch.enable_grad():
                enabled = compiled(x)
        assert enabled.tolist() == [2.0, 2.0] and not enabled.requires_grad
        assert compiled(x).requires_grad
