"""`tinytorch.compile`: a function or Module that runs as generated code.

    step = tinytorch.compile(train_step)        # or @tinytorch.compile
    loss = step(x, y)                           # traced, optimized, compiled; then only run
    print(step.explain())

What is compiled is one trace, for the shapes, dtypes and Python values that the function is called
with. A call of another kind is traced anew; `reasons` says why.
"""

from __future__ import annotations

import copy
import functools
import warnings
import weakref
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from types import MethodType
from typing import TYPE_CHECKING, Any

from tinytorch import backends
from tinytorch.backends import find_backend
from tinytorch.backends.base import ComputeBackend
from tinytorch.collector import collector_paused
from tinytorch.graph.compiler.calls import CompiledTrace
from tinytorch.graph.compiler.generate import MODES, Target
from tinytorch.graph.ir import GraphError
from tinytorch.graph.passes import OptimizationPass, PassManager
from tinytorch.graph.pytree import tree_flatten
from tinytorch.graph.retrace import Specializing
from tinytorch.graph.traced import TracedFunction
from tinytorch.nn.module import Module
from tinytorch.state import STATE, current_backend, using_backend

if TYPE_CHECKING:
    from tinytorch.graph.compiler.explain import Explanation


#: PyTorch's names of modes, and of backends of its compiler, and what they are here.
MODES_OF_PYTORCH = dict.fromkeys(
    ("default", "reduce-overhead", "max-autotune", "max-autotune-no-cudagraphs"), "auto"
)
BACKENDS_OF_PYTORCH = {
    "inductor": "auto", "cudagraphs": "auto", "aot_eager": "interpret", "eager": "interpret"
}  # fmt: skip


@dataclass(frozen=True)
class Options:
    """How to compile; see `compile`."""

    backend: ComputeBackend | None
    passes: PassManager | Sequence[OptimizationPass | str] | None
    fast_math: bool
    dynamic: bool
    mode: str
    keep_grads: bool
    cache_size: int
    fullgraph: bool


class Compiled:
    """A compiled function; made by `compile`.

    Attributes:
        function: what was compiled.
        options: of `compile`.
        uncompiled_calls: calls that ran the function itself, op by op: a mode (a profiler, a trace)
            was active, which is to see the ops, something differs in every call, or the backward
            of an `autograd.Function` inside could not be compiled.
    """

    def __init__(self, function: Callable[..., Any], options: Options) -> None:
        self.function = function
        self.options = options
        self.uncompiled_calls = 0
        self._specializing = Specializing(
            function,
            options.cache_size,
            self._compile,
            options.dynamic,
            decompose=None,
            keep_grads=options.keep_grads,
        )
        self._last: CompiledTrace | None = None
        self._bound: weakref.WeakKeyDictionary[Any, Compiled] = weakref.WeakKeyDictionary()
        functools.update_wrapper(self, function, updated=())

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Call the function, compiled.

        Raises:
            TraceError: the function cannot be traced; the message gives the line and what to write.
            GraphError: the call is of another kind than the first, and `dynamic` is False.
        """
        state = STATE.get()
        if state.mode is not None:
            return self._op_by_op(args, kwargs)
        chosen = self.options.backend
        last = self._last
        if last is not None and not kwargs:
            backend = chosen or state.backend or backends.default()
            if last.guard.fits(args, backend, state.grad):
                return last.execute_fitting(args)
        if chosen is None:
            return self._specialize(args, kwargs)
        with using_backend(chosen):
            return self._specialize(args, kwargs)

    def _specialize(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        leaves, spec = tree_flatten((args, kwargs))
        trace = self._specializing.find(leaves, spec, args, kwargs)
        if trace is None:
            self._check_fullgraph("an argument differs in every call")
            return self._op_by_op(args, kwargs)
        assert isinstance(trace, CompiledTrace)
        if reason := trace.why_op_by_op(leaves):
            self._check_fullgraph(reason)
            warnings.warn(reason, RuntimeWarning, stacklevel=3)
            return self._op_by_op(args, kwargs)
        self._last = trace
        result = trace.execute(leaves)
        trace.renew_guard()
        return result

    def _check_fullgraph(self, reason: str) -> None:
        if self.options.fullgraph:
            raise GraphError(f"fullgraph=True, but this call would run op by op: {reason}")

    def _op_by_op(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        self.uncompiled_calls += 1
        return self.function(*args, **kwargs)

    def _compile(self, traced: TracedFunction) -> CompiledTrace:
        o = self.options
        with collector_paused():
            return CompiledTrace(traced, Target(current_backend(), o.mode, o.passes, o.fast_math))

    @property
    def reasons(self) -> list[str]:
        """The reasons, for each trace that was made, why those before it did not fit."""
        return self._specializing.reasons

    @property
    def traces(self) -> list[CompiledTrace]:
        """The traces that are kept, the last used at the end."""
        return [t for t in self._specializing.traces if isinstance(t, CompiledTrace)]

    def explain(self) -> Explanation:
        """Report what was compiled, what was not and why, and how long every node takes.

        Raises:
            GraphError: nothing was called yet.
        """
        from tinytorch.graph.compiler.explain import explain

        return explain(self)

    def __get__(self, instance: Any, owner: type | None = None) -> Compiled:
        """A compiled method: each object has its own."""
        if instance is None:
            return self
        if instance not in self._bound:
            self._bound[instance] = Compiled(MethodType(self.function, instance), self.options)
        return self._bound[instance]

    def __repr__(self) -> str:
        name = getattr(self.function, "__qualname__", type(self.function).__name__)
        return f"<compiled {name}, traced {len(self.reasons)} times>"


class CompiledModule(Module):
    """A compiled Module, and itself a Module with the same parameters.

    Attributes that it has not itself are those of the compiled module, to read and to set. Names in
    its `state_dict` begin with `_orig_mod.`, as PyTorch's do.

    Attributes:
        module: what was compiled; `module.state_dict()` has the names that it always had.
        compiled: calls it.
    """

    def __init__(self, module: Module, options: Options) -> None:
        super().__init__()
        self._orig_mod = module
        self.compiled = Compiled(module, options)

    @property
    def module(self) -> Module:
        """What was compiled."""
        return self._orig_mod

    @property
    def training(self) -> bool:
        """Whether the compiled module is in training mode; there is one mode for both."""
        return self._orig_mod.training

    @training.setter
    def training(self, mode: bool) -> None:
        self._orig_mod.training = mode

    def __getattr__(self, name: str) -> Any:
        if name == "_orig_mod":  # a copy that is being made has none yet
            raise AttributeError(name)
        return getattr(self._orig_mod, name)

    def __setattr__(self, name: str, value: Any) -> None:
        own = "compiled" not in vars(self) or name in vars(self) or name in self._persistent
        if own or hasattr(type(self), name):
            super().__setattr__(name, value)
        else:
            setattr(self._orig_mod, name, value)

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        """Run the module's own forward, compiled."""
        return self.compiled(*args, **kwargs)

    def explain(self) -> Explanation:
        """See `Compiled.explain`."""
        return self.compiled.explain()

    def __deepcopy__(self, memo: dict[int, Any]) -> CompiledModule:
        """A copy of the module, to be compiled when it is called."""
        new = CompiledModule(copy.deepcopy(self._orig_mod, memo), self.compiled.options)
        vars(new).update(copy.deepcopy(self._own(), memo))
        return new

    def __reduce__(self) -> tuple[Any, ...]:
        """Pickled as the module, to be compiled when it is called."""
        return CompiledModule, (self._orig_mod, self.compiled.options), self._own()

    def _own(self) -> dict[str, Any]:
        """The buffers, hooks and the like that were given to the compiled module itself."""
        return {k: v for k, v in vars(self).items() if k not in ("_orig_mod", "compiled")}


def compile(
    function: Callable[..., Any] | None = None,
    *,
    backend: str | ComputeBackend | None = None,
    passes: PassManager | Sequence[OptimizationPass | str] | None = None,
    fast_math: bool = False,
    dynamic: bool | None = True,
    mode: str | None = "auto",
    keep_grads: bool = True,
    cache_size: int = 8,
    fullgraph: bool = False,
    options: None = None,
    disable: bool = False,
) -> Any:
    """A function or Module that does the same as generated code; also a decorator.

    Everything inside is compiled together: a forward, or a whole training step with `backward()`
    and the optimizer's `step()`. Parameters, buffers, gradients and the optimizer's state are
    afterwards where eager code leaves them. The results of a compiled forward have gradients; with
    an `autograd.Function` inside by its own backward, which is compiled, too (where it cannot be,
    calls run op by op, with a warning), and which has no gradients itself then.

    A call that finds the world changed is traced anew: another grad mode, `requires_grad`, layer,
    hook, optimizer or function, and any Python value that the code mentions, in containers and
    objects too (containers of more than 2,000 entries by their length only, NumPy arrays of more
    than 64 elements not at all). Code that changes Python values, steps a schedule, seeds a
    generator or draws from `random` or `np.random` is refused, since only the trace would do it,
    once; so `print`, and what else leaves no mark in Python, happens only while tracing. A call
    that raises an error while it is traced leaves all tensors as they were; eager code keeps what
    it has written until then.

    Args:
        function: what `trace` takes; left out, a decorator is returned.
        backend: whose kernels to call; by default the one in force at each call. Of PyTorch's,
            "inductor" is the default, and "eager" and "aot_eager" are mode "interpret".
        passes: over the graph, in place of the usual ones. What they make is checked against the
            original graph, and what fails the check is taken back.
        fast_math: allow passes that change rounding, or what happens to NaN and infinities:
            attention that is written out in products and a softmax becomes the fused op, then
            (in a step with its backward if the scores of a head are more than L1 holds).
        dynamic: a call with other shapes, dtypes or Python values is compiled anew; if False, it is
            an error that says what differs. None, PyTorch's default, is True.
        mode: "native" for machine code, on the optimized backend; "python" for Python, on any;
            "interpret" for none; "auto" for the fastest of them that can run the function.
            `explain()` says which it was, and why. PyTorch's modes, and None, are "auto".
        keep_grads: gradients stay in `.grad`, as in eager code. False drops them after each call,
            so that nothing need be kept that only an optimizer's step inside has read.
        cache_size: how many kinds of calls to keep the code of. An argument that differs in more
            traces than that is taken to differ in every call: a warning names it, and calls that
            fit no trace run op by op.
        fullgraph: what would run op by op, with a warning, is a GraphError. A function that is
            compiled is one graph in any case.
        options: None; PyTorch's are those of its own compiler.
        disable: give the function back as it is.

    Raises:
        ValueError: an unknown mode, or a cache of no size; or options.
        BackendError: an unknown backend.

    >>> import tinytorch
    >>> @tinytorch.compile(backend="numpy")
    ... def double(x):
    ...     return x * 2.0
    >>> double(tinytorch.ones(3))
    tensor([2., 2., 2.])
    """
    if options is not None:
        raise ValueError(
            f"compile: options {options!r} are those of PyTorch's compiler; here there are passes, "
            f"fast_math, mode, keep_grads and cache_size"
        )
    mode = MODES_OF_PYTORCH.get(mode or "default", mode)
    if isinstance(backend, str) and backend in BACKENDS_OF_PYTORCH:
        mode = BACKENDS_OF_PYTORCH[backend] if mode == "auto" else mode
        backend = None
    if mode not in MODES:
        raise ValueError(f"compile: there is no mode {mode!r}; there are {', '.join(MODES)}")
    how = Options(
        backend=None if backend is None else find_backend(backend),
        passes=passes,
        fast_math=fast_math,
        dynamic=dynamic is None or dynamic,
        mode=mode,
        keep_grads=keep_grads,
        cache_size=cache_size,
        fullgraph=fullgraph,
    )

    def decorate(function: Callable[..., Any]) -> Any:
        if disable:
            return function
        kind = CompiledModule if isinstance(function, Module) else Compiled
        return kind(function, how)  # type: ignore[arg-type]

    return decorate if function is None else decorate(function)
