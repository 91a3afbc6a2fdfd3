"""Whether code fits a call, decided in about a microsecond.

`CompiledTrace.why_not` compares everything that a trace depends on, and can say what differs. Most
calls differ in nothing: the same objects, the same metas. For those a function is generated that
looks at each once, by `is`, and another that collects the values of the inputs:

    def fits(args, backend):
        try:
            x, y = args
            return backend is value_0 and x.meta is meta_1 and module.training is True and ...
        except (AttributeError, KeyError, ValueError): return False
    def values(args):
        x, y = args
        return [x._data, weight._data, rate()]

False means that it takes a closer look to tell.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from types import BuiltinMethodType
from typing import TYPE_CHECKING, Any, NamedTuple

from tinytorch.backends.base import ComputeBackend
from tinytorch.dtypes import Array, TensorMeta
from tinytorch.graph.bindings import (
    ArgumentBinding,
    Binding,
    GradBinding,
    ScalarBinding,
    SeedBinding,
    StateBinding,
    captured_value,
)
from tinytorch.graph.pytree import LEAF, TreeSpec
from tinytorch.graph.traced import differs
from tinytorch.history import owner_of, write_clock
from tinytorch.tensor import Tensor

if TYPE_CHECKING:
    from tinytorch.graph.compiler.calls import CompiledTrace


class Guard(NamedTuple):
    """What is known of the calls that fit.

    Attributes:
        fits: whether a call with these arguments, on this backend, is one of them.
        values: of the inputs, for the arguments of such a call: in C order, for native code.
        mark_written: notes in the write clock that the call has written its inputs.
    """

    fits: Callable[[tuple[Any, ...], ComputeBackend], bool]
    values: Callable[[Sequence[Any]], list[Any]]
    mark_written: Callable[[], None]


def _no_values(args: Sequence[Any]) -> list[Any]:
    raise AssertionError("no call fits")


NEVER = Guard(lambda args, backend: False, _no_values, lambda: None)


def make_guard(trace: CompiledTrace) -> Guard:
    """For calls like the one that the trace has just been found to fit."""
    s = trace.signature
    watched = trace._environment.watched_values()
    if any(differs(value, s.watched[name]) for name, value in watched.items()):
        return NEVER
    writes_arguments = any(type(s.inputs[i]) is not StateBinding for i in trace.written)
    if not _is_flat(s.in_spec) or s.first_call_differs or writes_arguments:
        return NEVER
    state = [b.tensor._data for b in s.inputs if isinstance(b, StateBinding)]
    if not all(array.flags.c_contiguous for array in state):
        return NEVER
    return _Writer(trace).build()


def _is_flat(spec: TreeSpec) -> bool:
    """The arguments are given by position, and none is a nest."""
    positional, named = spec.children
    return not named.children and all(child == LEAF for child in positional.children)


class _Writer:
    """Collects conditions, and the objects that they refer to."""

    def __init__(self, trace: CompiledTrace) -> None:
        self.trace = trace
        self.namespace: dict[str, Any] = {}
        self.conditions: list[str] = []
        self._names: dict[int, str] = {}
        self._apart = ""  # the name of `_is_apart()`

    def bind(self, value: Any) -> str:
        """A name for an object."""
        name = self._names.setdefault(id(value), f"v{len(self._names)}")
        self.namespace[name] = value  # which keeps it alive, and so its id its own
        return name

    def same(self, expression: str, value: Any) -> None:
        """The expression must be this very object."""
        literal = repr(value) if value is None or isinstance(value, bool) else self.bind(value)
        self.conditions.append(f"{expression} is {literal}")

    def build(self) -> Guard:
        s = self.trace.signature
        self.same("backend", self.trace.target.backend)
        self._arguments()
        self._watched()
        self._optimizers()
        for _, owner, was_none in s.grads:
            negation = "" if was_none else " not"
            self.conditions.append(f"{self._tensor(owner)}.grad is{negation} None")
        values = [self._value(i, binding) for i, binding in enumerate(s.inputs)]
        names = "".join(f"a{i}, " for i in range(len(s.in_leaves))) or "()"
        source = "\n".join(
            [
                "def fits(args, backend):",
                "    try:",
                f"        {names} = args",
                f"        return {' and '.join(self.conditions)}",
                "    except (AttributeError, KeyError, ValueError):",
                "        return False",
                "def values(args):",
                f"    {names} = args",
                f"    return [{', '.join(values)}]",
            ]
        )
        exec(compile(source, "<tinytorch.compile guard>", "exec"), self.namespace)
        written = [s.inputs[i].read([])._data for i in self.trace.written]
        return Guard(self.namespace["fits"], self.namespace["values"], write_clock.marker(written))

    # -- what must be as it was --------------------------------------------------------------------

    def _arguments(self) -> None:
        for i, expected in enumerate(self.trace.signature.in_leaves):
            if isinstance(expected, tuple):  # what `describe` makes of a tensor
                self.same(f"a{i}.requires_grad", expected[1])
                self._new_tensor(f"a{i}", expected[0])
            else:
                self.same(f"a{i}", expected)

    def _new_tensor(self, tensor: str, meta: TensorMeta) -> None:
        """One that is another in every call: all that code relies on is looked at again."""
        self.same(f"{tensor}.meta", meta)
        if self.trace.is_native:
            self.conditions.append(f"{tensor}._data.flags.c_contiguous")
        if self.trace.written:
            self._apart = self._apart or self.bind(self._is_apart())
            self.conditions.append(f"{self._apart}({tensor}._data)")

    def _is_apart(self) -> Callable[[Array], bool]:
        """Whether an array certainly shares no memory with those that are written."""
        inputs = self.trace.signature.inputs
        owners = {id(owner_of(inputs[i].read([])._data)) for i in self.trace.written}

        def is_apart(array: Array) -> bool:
            owner = array if array.base is None else owner_of(array)
            return owner.base is None and id(owner) not in owners

        return is_apart

    def _watched(self) -> None:
        """Python values: where a trace looks up an attribute, a global or an option, so do we."""
        for read in self.trace._environment.watched().values():
            self.same(self._lookup(read), read())

    def _lookup(self, read: Callable[[], Any]) -> str:
        function = read.func if isinstance(read, partial) else None
        arguments = read.args if isinstance(read, partial) else ()
        if function is getattr and arguments[1].isidentifier():
            return f"{self.bind(arguments[0])}.{arguments[1]}"
        if isinstance(function, BuiltinMethodType) and isinstance(function.__self__, dict):
            return f"{self.bind(function.__self__)}[{arguments[0]!r}]"
        if function is captured_value and arguments[1] not in arguments[0].__code__.co_freevars:
            return f"{self.bind(arguments[0].__globals__)}.get({arguments[1]!r})"
        return f"{self.bind(read)}()"

    def _optimizers(self) -> None:
        for optimizer in self.trace._environment.optimizers():
            state = self.bind(optimizer.state)
            self.conditions.append(f"len({state}) == {len(optimizer.state)}")
            for p, entries in optimizer.state.items():
                if not entries:
                    self.conditions.append(f"not {state}.get({self.bind(p)})")
                    continue
                inside = self.bind(entries)
                self.same(f"{state}.get({self.bind(p)})", entries)
                self.conditions.append(f"len({inside}) == {len(entries)}")
                for key, value in entries.items():
                    if isinstance(value, Tensor):
                        self.same(f"{inside}.get({key!r})", value)

    # -- the values --------------------------------------------------------------------------------

    def _tensor(self, binding: Binding) -> str:
        """The expression for the tensor that a binding reads."""
        if isinstance(binding, ArgumentBinding):
            return f"a{binding.position}"
        if isinstance(binding, GradBinding):
            return f"{self._tensor(binding.owner)}.grad"
        assert isinstance(binding, StateBinding)
        return self.bind(binding.tensor)

    def _value(self, i: int, binding: Binding) -> str:
        """The expression for an input's value."""
        if isinstance(binding, SeedBinding):
            return f"{self.bind(binding.generator.draw_seed)}()"
        if isinstance(binding, ScalarBinding):
            return f"{self.bind(binding.source)}()"
        tensor = self._tensor(binding)
        if isinstance(binding, GradBinding):
            self._new_tensor(tensor, self.trace.metas[i])
        elif isinstance(binding, StateBinding):
            self.same(f"{tensor}.meta", self.trace.metas[i])
            if self.trace.written or self.trace.is_native:
                # what was seen of it, its order in memory and that it is nobody else's, still holds
                array = self.bind(binding.tensor._data)
                self.conditions.append(f"{tensor}._data is {array}")
                return array
        return f"{tensor}._data"
