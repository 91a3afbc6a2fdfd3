"""Whether code fits a call, decided in about a microsecond.

`CompiledTrace.why_not` compares everything that a trace depends on, and can say what differs. Most
calls differ in nothing: the same objects, the same metas. For those a function is generated that
looks at each once, by `is`, and another that collects the values of the inputs:

    def fits(args, backend, grad):
        try:
            x, y = args
            return backend is value_0 and x.meta is meta_1 and options["scale"] is value_2 and ...
        except (AttributeError, KeyError, ValueError): return False
    def values(args):
        x, y = args
        return [x._data, weight._data, rate()]

False means that it takes a closer look to tell.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from tinytorch.backends.base import ComputeBackend
from tinytorch.dtypes import Array, TensorMeta
from tinytorch.graph.bindings import (
    ArgumentBinding,
    Binding,
    GradBinding,
    ScalarBinding,
    SeedBinding,
    StateBinding,
)
from tinytorch.graph.facts import Contents, HooksFact, PartsFact, Same
from tinytorch.graph.pytree import LEAF, TreeSpec
from tinytorch.history import owner_of, structure, write_clock
from tinytorch.state import GradState
from tinytorch.tensor import Tensor

if TYPE_CHECKING:
    from tinytorch.graph.compiler.calls import CompiledTrace


class Guard(NamedTuple):
    """The conditions under which calls fit.

    Attributes:
        fits: whether a call with these arguments, on this backend, with gradients on or off, is one
            of them.
        values: of the inputs, for the arguments of such a call: in C order, for native code.
        mark_written: notes in the write clock that the call has written its inputs.
    """

    fits: Callable[[tuple[Any, ...], ComputeBackend, GradState], bool]
    values: Callable[[Sequence[Any]], list[Any]]
    mark_written: Callable[[], None]


def _no_values(args: Sequence[Any]) -> list[Any]:
    raise AssertionError("no call fits")


NEVER = Guard(lambda args, backend, grad: False, _no_values, lambda: None)


def make_guard(trace: CompiledTrace) -> Guard:
    """Make the guard for calls like the one that the trace has just been found to fit."""
    s = trace.signature
    if trace.environment.why_not() is not None:
        return NEVER
    writes_arguments = any(type(s.inputs[i]) is not StateBinding for i in trace.written)
    if not _is_flat(s.in_spec) or s.first_call_differs or writes_arguments:
        return NEVER
    if any(type(leaf) is Contents for leaf in s.in_leaves):
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
        self.counted: list[str] = []  # those that `structure` counts changes of
        self._names: dict[int, str] = {}
        self._unaliased = ""  # the name of `_is_unaliased()`

    def bind(self, value: Any) -> str:
        """A name for an object."""
        name = self._names.setdefault(id(value), f"v{len(self._names)}")
        self.namespace[name] = value  # which keeps it alive, and so its id its own
        return name

    def same(self, expression: str, value: Any) -> None:
        """The expression must be this very object."""
        self.conditions.append(f"{expression} is {self._literal(value)}")

    def _literal(self, value: Any) -> str:
        return repr(value) if value is None or isinstance(value, bool) else self.bind(value)

    def build(self) -> Guard:
        s = self.trace.signature
        self.same("grad", s.grad)
        self.same("backend", self.trace.target.backend)
        self._arguments()
        self._facts()
        self._optimizers()
        for _, owner, was_none in s.grads:
            negation = "" if was_none else " not"
            self.conditions.append(f"{self._tensor(owner)}.grad is{negation} None")
        values = [self._value(i, binding) for i, binding in enumerate(s.inputs)]
        for _, binding, condition, args in s.value_guards:  # of arrays whose metas have been met
            array = f"{self._tensor(binding)}._data"
            self.conditions.append(f"{self.bind(condition)}({array}, *{self.bind(args)})")
        for _, binding, is_contiguous in s.orders:
            order = f"{self._tensor(binding)}._data.flags.c_contiguous"
            self.conditions.append(f"{order} is {is_contiguous}")
        names = "".join(f"a{i}, " for i in range(len(s.in_leaves))) or "()"
        self.namespace.update(all=all, map=map, is_=operator.is_, structure=structure)
        self.namespace["environment"] = self.trace.environment
        source = "\n".join(
            [
                "def fits(args, backend, grad):",
                "    try:",
                f"        {names} = args",
                f"        return {' and '.join(self.conditions)}",
                "    except (AttributeError, KeyError, ValueError, RuntimeError):",
                "        return False",
                "def look_again():",
                "    now = structure.now",
                f"    if {' and '.join(self.counted) or True}:",
                "        environment.checked = now",
                "        return True",
                "    return False",
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
        owners = self.trace.signature.grad_owners
        for i, expected in enumerate(self.trace.signature.in_leaves):
            if type(expected) is tuple:  # what `describe` makes of a tensor
                self.same(f"a{i}.requires_grad", expected[1])
                self._new_tensor(f"a{i}", expected[0])
                if any(owner.same(ArgumentBinding(i)) for owner in owners):
                    self.same(f"a{i}.history", None)  # as `why_incomplete` asks
            else:
                self.same(f"a{i}", expected.value if type(expected) is Same else expected)
        tensors = [self._tensor(b) for b in self.trace.signature.differentiated]
        if any(tensor.startswith("a") for tensor in tensors):  # as `why_incomplete` asks
            ids = ", ".join(f"id({tensor})" for tensor in tensors)
            self.conditions.append(f"len({{{ids}}}) == {len(tensors)}")

    def _new_tensor(self, tensor: str, meta: TensorMeta) -> None:
        """One that is another in every call: all that code relies on is looked at again."""
        self.same(f"{tensor}.meta", meta)
        if self.trace.is_native:
            self.conditions.append(f"{tensor}._data.flags.c_contiguous")
        if self.trace.written:
            self._unaliased = self._unaliased or self.bind(self._is_unaliased())
            self.conditions.append(f"{self._unaliased}({tensor}._data)")

    def _is_unaliased(self) -> Callable[[Array], bool]:
        """Whether an array certainly shares no memory with those that are written."""
        inputs = self.trace.signature.inputs
        owners = {id(owner_of(inputs[i].read([])._data)) for i in self.trace.written}

        def is_unaliased(array: Array) -> bool:
            owner = array if array.base is None else owner_of(array)
            return owner.base is None and id(owner) not in owners

        return is_unaliased

    def _facts(self) -> None:
        """Python values: what `structure` counts is compared only if its count has changed."""
        self.conditions.append("(structure.now == environment.checked or look_again())")
        for fact in self.trace.environment.facts:
            value = fact.read()
            conditions = self.counted if fact.counted else self.conditions
            if isinstance(fact, (HooksFact, PartsFact)):
                conditions.append(f"{self.bind(fact.why_not)}() is None")
                continue
            conditions.append(f"{fact.expression(self.bind)} is {self._literal(value)}")
            self._contents(value, fact.frozen, self.counted if fact.whole else self.conditions)

    def _contents(self, value: Any, frozen: Any, conditions: list[str]) -> None:
        """A container may get other entries while it stays the same object."""
        if type(frozen) is not Contents:
            return
        name = self.bind(value)
        if isinstance(value, np.ndarray):
            conditions.append(f"{name}.tobytes() == {self.bind(value.tobytes())}")
            return
        if not isinstance(value, tuple):
            conditions.append(f"len({name}) == {len(value)}")
        if isinstance(value, (set, frozenset)):
            conditions.append(f"{name} == {self.bind(frozenset(value))}")
            return
        if not frozen.entries:  # it is empty, or too large
            return
        entries = tuple(value.values() if isinstance(value, dict) else value)
        if isinstance(value, dict):
            conditions.append(f"all(map(is_, {name}.values(), {self.bind(entries)}))")
            conditions.append(f"all(map(is_, {name}, {self.bind(tuple(value))}))")
        elif not isinstance(value, tuple):
            conditions.append(f"all(map(is_, {name}, {self.bind(entries)}))")
        for entry, was in zip(entries, frozen.entries, strict=True):
            self._contents(entry, was, conditions)

    def _optimizers(self) -> None:
        for optimizer in self.trace.environment.optimizers():
            state = self.bind(optimizer.state)
            self.conditions.append(f"len({state}) == {len(optimizer.state)}")
            groups = f"{self.bind(optimizer)}.param_groups"
            self.conditions.append(f"len({groups}) == {len(optimizer.param_groups)}")
            for i, group in enumerate(optimizer.param_groups):
                self.same(f"{groups}[{i}]", group)
                given, params = f"{self.bind(group)}['params']", tuple(group["params"])
                self.conditions.append(f"len({given}) == {len(params)}")
                self.conditions.append(f"all(map(is_, {given}, {self.bind(params)}))")
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
            if self.trace.written or self.trace.is_native:
                # what was seen of it, its order in memory and that it is nobody else's, still holds
                array = self.bind(binding.tensor._data)
                self.conditions.append(f"{tensor}._data is {array}")
                return array
            self.same(f"{tensor}.meta", self.trace.metas[i])
        return f"{tensor}._data"
