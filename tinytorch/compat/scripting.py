"""`torch.jit`, `torch.compiler` and settings of PyTorch's process: Python code runs as it is."""

from __future__ import annotations

import contextlib
from typing import Any

Final = Any


def script(obj: Any, *args: Any, **options: Any) -> Any:
    """The function or module itself; `tinytorch.compile` makes it fast."""
    return obj


def ignore(drop: Any = False, **options: Any) -> Any:
    """The function itself, or a decorator that returns it."""
    return drop if callable(drop) else lambda function: function


script_method = export = unused = interface = ignore
script_if_tracing = script
disable = ignore
allow_in_graph = script


def is_scripting() -> bool:
    """False: nothing is compiled from its source."""
    return False


is_tracing = is_compiling = is_dynamo_compiling = is_scripting


def annotate(the_type: Any, value: Any) -> Any:
    """The value."""
    return value


def fork(function: Any, *args: Any, **keywords: Any) -> Any:
    """The result, computed at once."""
    return function(*args, **keywords)


def wait(value: Any) -> Any:
    """What `fork` returned."""
    return value


@contextlib.contextmanager
def optimized_execution(should_optimize: bool) -> Any:
    """A block in which nothing is different."""
    yield


def _refuse(name: str, instead: str) -> Any:
    def refused(*args: Any, **options: Any) -> Any:
        raise NotImplementedError(f"torch.jit.{name} writes TorchScript: {instead}")

    return refused


trace = _refuse("trace", "use tinytorch.graph.trace(function, *examples), or tinytorch.compile")
save = _refuse("save", "save model.state_dict() with torch.save, and make the model by its class")
load = _refuse("load", "make the model by its class, and load its state with torch.load")


class ScriptModule:
    """A name to ask for by isinstance; there are none."""


class ScriptFunction:
    """A name to ask for by isinstance; there are none."""


def do_nothing(*args: Any, **options: Any) -> None:
    """Accept a setting that has no effect here."""


def mark_dynamic(*args: Any, **options: Any) -> None:
    """Accept a hint that has no effect here."""


def get_float32_matmul_precision() -> str:
    """ "highest": float32 is multiplied in float32."""
    return "highest"


def use_deterministic_algorithms(mode: bool, *, warn_only: bool = False) -> None:
    """Accept: results are the same in every run as it is."""


def are_deterministic_algorithms_enabled() -> bool:
    """True."""
    return True


def get_num_interop_threads() -> int:
    """1: ops run one after the other."""
    return 1


def typename(value: Any) -> str:
    """The type's name: "torch.FloatTensor" for a tensor."""
    from tinytorch.compat.dtypes import type_name
    from tinytorch.tensor import Tensor

    if isinstance(value, Tensor):
        return type_name(value.dtype)
    kind = value if isinstance(value, type) else type(value)
    return f"{kind.__module__}.{kind.__qualname__}"
