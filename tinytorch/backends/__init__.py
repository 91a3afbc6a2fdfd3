"""Backends by name: register one, set one for the process, or use one for a block.

tinytorch.register_backend("mine", MyBackend)
tinytorch.set_backend("mine")
with tinytorch.using_backend("numpy"): ...
"""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module
from importlib.util import find_spec

from tinytorch.absent import names_of
from tinytorch.backends.base import ComputeBackend
from tinytorch.backends.signatures import adapted
from tinytorch.collector import collected_no_more
from tinytorch.errors import BackendError, missing_extra

__all__ = [
    "ComputeBackend",
    "default",
    "find_backend",
    "get_backend",
    "get_num_threads",
    "list_backends",
    "register_backend",
    "set_backend",
    "set_num_threads",
]

Factory = Callable[[], ComputeBackend]

DEFAULT_BACKEND = "naive"  # what a learner reads

_factories: dict[str, Factory] = {}
_instances: dict[str, ComputeBackend] = {}
current: ComputeBackend | None = None  # the process-wide one; `default()` makes it on first use


def register_backend(name: str, factory: Factory, *, replace: bool = False) -> None:
    """Make a backend known under a name. It is made, by calling `factory`, on first use.

    `_factories` has the factory of each name, `_instances` the backends that were made. A name that
    is replaced loses its instance.

    Args:
        name: the name that `set_backend` takes.
        factory: a ComputeBackend subclass, or a function that returns an instance. Of a class,
            `adapted(factory)` is registered: it checks the signatures of the kernels.
        replace: allow a name that is taken.

    Raises:
        BackendError: the name is taken, and nothing has changed; or a kernel of the class has a
            signature that cannot be served (see `signatures.adapted`; the message has the one to
            write).
    """
    if isinstance(factory, type):
        factory = adapted(factory)
    if name in _factories and not replace:
        raise BackendError(f"there is a backend {name!r} already; pass replace=True to replace it")
    _factories[name] = factory
    _instances.pop(name, None)


def list_backends() -> list[str]:
    """Names of all registered backends."""
    return sorted(_factories)


def find_backend(backend: str | ComputeBackend) -> ComputeBackend:
    """The backend of this name, made once and remembered; an instance is returned as it is.

    Raises:
        BackendError: no such name, and the message lists the known ones; or the factory does not
            make a ComputeBackend, and what it makes is not remembered.
        MissingExtraError: the backend needs a package that is not installed.
    """
    if isinstance(backend, ComputeBackend):
        return backend
    if backend not in _instances:
        if backend not in _factories:
            raise BackendError(
                f"there is no backend {backend!r}; there are {', '.join(list_backends())}"
            )
        instance = _factories[backend]()
        if not isinstance(instance, ComputeBackend):
            raise BackendError(
                f"backend {backend!r}: {type(instance).__name__} is not a ComputeBackend; derive "
                f"it from one, for example NumpyBackend"
            )
        _instances[backend] = instance
    return _instances[backend]


def set_backend(backend: str | ComputeBackend) -> None:
    """Switch the whole process to a backend.

    Raises:
        BackendError: as `find_backend`; the backend in force then stays.
    """
    global current
    current = find_backend(backend)


def default() -> ComputeBackend:
    """The backend of the process."""
    global current
    if current is None:
        current = find_backend(DEFAULT_BACKEND)
    return current


get_backend = default


def set_num_threads(count: int) -> None:
    """Let large kernels of the compiled backends use `count` threads; 1 makes all of them serial.

    Raises:
        ValueError: not a positive number, or more than numba was started with.
        MissingExtraError: numba is not installed.
    """
    _need_numba("set_num_threads")
    from tinytorch.jit import threads

    threads.set_num_threads(count)


def get_num_threads() -> int:
    """How many threads large kernels of the compiled backends may use.

    Raises:
        MissingExtraError: numba is not installed.
    """
    _need_numba("get_num_threads")
    from tinytorch.jit import threads

    return threads.get_num_threads()


def _need_numba(purpose: str) -> None:
    if find_spec("numba") is None:
        raise missing_extra("numba", "fast", purpose)


def _built_in(module: str, cls: str, needs_numba: bool) -> Factory:
    def make() -> ComputeBackend:
        if not needs_numba:
            return _instance(module, cls)
        _need_numba(f"the {module} backend")
        with collected_no_more():
            return _instance(module, cls)

    return make


def _instance(module: str, cls: str) -> ComputeBackend:
    made: ComputeBackend = getattr(import_module(f"tinytorch.backends.{module}"), cls)()
    return made


register_backend("naive", _built_in("naive", "NaiveBackend", False))
register_backend("numpy", _built_in("numpy", "NumpyBackend", False))
register_backend("blocked", _built_in("blocked", "BlockedBackend", True))
register_backend("optimized", _built_in("optimized", "OptimizedBackend", True))

__getattr__ = names_of("torch.backends")  # names of PyTorch's that are not here
