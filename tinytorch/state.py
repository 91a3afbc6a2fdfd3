"""What is in force here: modes, backend, whether gradients are recorded, the phase.

It belongs to the thread or coroutine that set it (a context variable), and is never changed, only
replaced; so it is safe in threads, and leaving a block restores exactly what was before.
"""

from __future__ import annotations

from contextvars import ContextVar, Token
from typing import TYPE_CHECKING

from tinytorch import backends
from tinytorch.backends.base import ComputeBackend

if TYPE_CHECKING:
    from tinytorch.dispatch import Mode


class Unrecorded:
    """`State.grad` in an `enable_grad` inside an `inference_mode`, where that has no effect."""

    def __bool__(self) -> bool:
        """Nothing is recorded."""
        return False


UNRECORDED = Unrecorded()
#: None: off in an `inference_mode`, where `enable_grad` has no effect but on `is_grad_enabled`.
GradState = bool | Unrecorded | None


class State:
    """The backend, modes and switches of a thread or coroutine."""

    __slots__ = ("backend", "below", "grad", "mode", "phase")

    def __init__(
        self,
        mode: Mode | None,
        below: State | None,
        backend: ComputeBackend | None,
        grad: GradState,
        phase: str,
    ) -> None:
        self.mode = mode
        self.below = below  # the state outside of `mode`
        self.backend = backend  # None: the process-wide one
        self.grad = grad
        self.phase = phase


_INITIAL = State(None, None, None, True, "forward")
STATE: ContextVar[State] = ContextVar("tinytorch", default=_INITIAL)


class StateContext:
    """A context in which another state is in force. For one use: `__enter__` once.

    `STATE` is a context variable: each thread and each coroutine has a value of its own in it.
    """

    __slots__ = ("_token", "state")

    _token: Token[State]

    def __init__(self, state: State) -> None:
        self.state = state

    def __enter__(self) -> None:
        """Put `self.state` in force, and keep in `_token` how to restore what was there."""
        self._token = STATE.set(self.state)

    def __exit__(self, *error: object) -> None:
        """Restore what was in force before; an exception passes on."""
        STATE.reset(self._token)


def using_backend(backend: str | ComputeBackend) -> StateContext:
    """Run a block on another backend, in this thread or coroutine only.

    Args:
        backend: its name, or the backend itself.

    Raises:
        BackendError: no backend has this name; the message lists those there are.

    >>> with using_backend("naive"):
    ...     type(current_backend()).__name__
    'NaiveBackend'
    """
    return StateContext(on_backend(STATE.get(), backends.find_backend(backend)))


def on_backend(state: State, backend: ComputeBackend) -> State:
    """A new state: the given one, but for the backend. The given one does not change.

    >>> from tinytorch.backends import find_backend
    >>> on_backend(STATE.get(), find_backend("numpy")).backend
    <NumpyBackend>
    """
    return State(state.mode, state.below, backend, state.grad, state.phase)


def current_backend() -> ComputeBackend:
    """The backend that ops run on here: that of the innermost `using_backend`, or the default."""
    return STATE.get().backend or backends.get_backend()


def ops_are_unseen(state: State) -> bool:
    """Whether NumPy may do what an op would, and nobody could tell: no mode is active, and the
    backend has no kernels of its user."""
    return state.mode is None and (state.backend or backends.get_backend()).programs is not None


def grad_mode(enabled: GradState) -> StateContext:
    """Record history, or not, inside the block. (`no_grad` and `enable_grad` are made of it.)

    Args:
        enabled: None for `inference_mode`: not, and `enable_grad` inside, which is UNRECORDED
            there, has no effect. In its block False is None, too, and True ends it.

    >>> with grad_mode(False):
    ...     is_grad_enabled()
    False
    """
    old = STATE.get()
    grad = enabled or (enabled if is_inference(enabled) else _off(old))
    return StateContext(State(old.mode, old.below, old.backend, grad, old.phase))


def is_inference(grad: GradState) -> bool:
    """Whether a `State.grad` is that of an `inference_mode`."""
    return grad is None or grad is UNRECORDED


def _off(old: State) -> bool | None:
    return None if is_inference(old.grad) else False


def is_recording() -> bool:
    """Whether ops are being recorded for `backward`."""
    return STATE.get().grad is True


def is_grad_enabled() -> bool:
    """Whether ops are recorded for `backward`, if no `inference_mode` forbids it.

    >>> from tinytorch import enable_grad, inference_mode
    >>> with inference_mode(), enable_grad():
    ...     is_grad_enabled(), is_recording()
    (True, False)
    """
    return STATE.get().grad is UNRECORDED or is_recording()


def backward_state(create_graph: bool) -> State:
    """The state of `grad_mode(create_graph)` and `phase("backward")` in one."""
    old = STATE.get()
    return State(old.mode, old.below, old.backend, bool(create_graph) or _off(old), "backward")


def optimizer_mode() -> StateContext:
    """`grad_mode(False)` and `phase("optimizer")` in one."""
    old = STATE.get()
    return StateContext(State(old.mode, old.below, old.backend, _off(old), "optimizer"))


def phase(name: str) -> StateContext:
    """Mark the ops of a block as "forward", "backward" or "optimizer", for modes that listen.

    >>> with phase("optimizer"):
    ...     current_phase()
    'optimizer'
    """
    old = STATE.get()
    return StateContext(State(old.mode, old.below, old.backend, old.grad, name))


def no_mode_active() -> bool:
    """Ops go straight to the backend: nothing would miss what bypasses `apply`."""
    return STATE.get().mode is None


def current_phase() -> str:
    """The phase in force: "forward", "backward" or "optimizer"."""
    return STATE.get().phase
