"""Everything that a function can reach: tensors by name, and the Python values that it relies on.

Two walks follow names, attributes and entries from a function. The first goes everywhere and finds
tensors, optimizers and what the function might change (`effects`). The second follows only what the
code mentions, and gives the facts that a trace relies on: an attribute that no walked function has
the name of may change without another trace.
"""

from __future__ import annotations

import dis
import functools
import inspect
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from types import CodeType, FunctionType, MethodType, ModuleType
from typing import Any, NamedTuple

from tinytorch.autograd.function import Function
from tinytorch.errors import TinyTorchError
from tinytorch.graph.facts import (
    CONTAINERS,
    MISSING,
    NAMESPACES,
    SIMPLE,
    AttributeFact,
    Contents,
    EntryFact,
    Fact,
    HooksFact,
    PartsFact,
    VariableFact,
    attributes_of,
    is_library,
    is_ours,
)
from tinytorch.history import structure
from tinytorch.nn.hooks import HookList, Hooks
from tinytorch.nn.module import Module
from tinytorch.optim.hooks import StepHooks
from tinytorch.optim.optimizer import Optimizer
from tinytorch.random import Generator
from tinytorch.tensor import Tensor

OBJECTS_LIMIT = 100_000
LIVE_OPTIONS = frozenset({"params", "lr", "initial_lr"})  # a trace reads the rate at every call
#: Code that mentions one of these may read any attribute, and the rate of an optimizer.
READS_ALL = frozenset({"getattr", "vars", "__dict__", "asdict", "astuple", "attrgetter", "eval"})
READS_RATE = frozenset({"lr", "param_groups", "get_last_lr", "state_dict"})
#: Methods that a trace does not run on an object that it meets.
NOT_RUN = frozenset({"__init__", "__new__", "__post_init__", "__repr__", "__str__"})
#: Methods of an `autograd.Function` that always matter.
FUNCTION_METHODS = ("forward", "setup_context", "backward")


class Edge(NamedTuple):
    """A step of the walk.

    Attributes:
        label: the name of what it leads to.
        child: what it leads to.
        key: a name that code must mention to take this step; None if it always does.
        fact: what makes it lead there.
        own: it is an attribute of an object, which methods may change that nobody has read.
    """

    label: str
    child: Any
    key: str | None = None
    fact: Fact | None = None
    own: bool = False


class Environment:
    """The objects that a function can reach, from itself and from its arguments.

    Args:
        live: code of functions that a trace calls anew at every call, so that what they read is no
            constant.

    Attributes:
        signature: of the function.
        names: of tensors, by id.
        tensors: those, in the order in which they were found.
        facts: the Python values that a trace takes for constants.
        reached: all objects that were met, with their names.
        checked: the count of `structure` when the facts were last seen to hold.
    """

    def __init__(
        self,
        function: Callable[..., Any],
        arguments: Sequence[Any] = (),
        live: Iterable[CodeType] = (),
    ) -> None:
        self.signature = inspect.signature(
            function.forward if isinstance(function, Module) else function
        )
        self.names: dict[int, str] = {}
        self.tensors: list[Tensor] = []
        self.facts: list[Fact] = []
        self.reached: list[tuple[str, Any]] = []  # which keeps their ids their own
        self.checked = structure.now
        self._optimizers: list[tuple[str, Optimizer]] = []
        self._seen: set[int] = set()
        self._labels: set[str] = set()
        self._code = Code(set(), frozenset(live))
        roots = [Edge("", function)]
        roots += [Edge("argument", a) for a in arguments if not isinstance(a, (*SIMPLE, Tensor))]
        self._walk(roots)

    def name_of(self, tensor: Tensor) -> str | None:
        """The name of a tensor, also of one that an optimizer has made since."""
        if id(tensor) not in self.names:
            for name, optimizer in self._optimizers:
                self._visit_state(name, optimizer)
        return self.names.get(id(tensor))

    def mentions(self, name: str) -> bool:
        """Code of the user's that the function can reach names an attribute or a variable so."""
        return name in self._code.mentioned

    def optimizers(self) -> list[Optimizer]:
        """The optimizers that the function can reach."""
        return [optimizer for _, optimizer in self._optimizers]

    def optimizer_state(self) -> list[tuple[int, str, int]]:
        """The groups and tensors that optimizers hold: the number, name and identity of each."""
        found = []
        for _, optimizer in self._optimizers:
            found += [(i, "group", id(group)) for i, group in enumerate(optimizer.param_groups)]
            for i, p in enumerate(optimizer._params()):
                found.append((i, "params", id(p)))
                found += [
                    (i, key, id(value))
                    for key, value in optimizer.state.get(p, {}).items()
                    if isinstance(value, Tensor)
                ]
        return found

    def counted_state(self) -> dict[str, Any]:
        """The Python numbers in optimizers' states: a trace must not change them."""
        return {
            f"{name}.state[{i}][{key!r}]": value
            for name, optimizer in self._optimizers
            for i, p in enumerate(optimizer._params())
            for key, value in optimizer.state.get(p, {}).items()
            if isinstance(value, SIMPLE)
        }

    def why_not(self) -> str | None:
        """The difference from the state at the trace; what is counted is looked at only if the
        count changed."""
        now = structure.now
        unchanged = now == self.checked
        for fact in self.facts:
            if unchanged and (fact.whole or (fact.counted and type(fact.frozen) is not Contents)):
                continue
            reason = fact.why_not()
            if reason is not None:
                return reason
        self.checked = now
        return None

    # -- the walk ----------------------------------------------------------------------------------

    def _walk(self, roots: list[Edge]) -> None:
        """First along what code mentions, then along all other attributes."""
        queue, waiting = deque(roots), list[Edge]()
        while queue:
            while queue:
                self._follow(queue.popleft(), queue, waiting)
            # a function that was met late may mention what an object met before has
            again, waiting = waiting, []
            for edge in again:
                (queue if self._is_read(edge.key) else waiting).append(edge)
        while waiting:
            rest = deque(edge._replace(fact=None) for edge in waiting if edge.own)
            waiting = []
            while rest:
                self._follow(rest.popleft(), rest, waiting, with_facts=False)
        for name, optimizer in self._optimizers:  # last, so that a model names its parameters
            for i, p in enumerate(optimizer._params()):
                self._note(f"{name}.params.{i}", p)
            self._visit_state(name, optimizer)

    def _is_read(self, key: str | None) -> bool:
        names = self._code.mentioned
        if key == "lr":
            return not names.isdisjoint(READS_RATE)
        return key is None or key in names or not names.isdisjoint(READS_ALL)

    def _follow(
        self, edge: Edge, queue: deque[Edge], waiting: list[Edge], with_facts: bool = True
    ) -> None:
        name, value = edge.label, edge.child
        if edge.fact is not None and with_facts:
            self._add(edge.fact)
        if isinstance(value, SIMPLE) or id(value) in self._seen:
            return
        if len(self._seen) > OBJECTS_LIMIT:
            raise TinyTorchError(
                f"the function reaches more than {OBJECTS_LIMIT:,} objects, the last of them "
                f"{name}; pass large collections in as arguments"
            )
        self._seen.add(id(value))
        self.reached.append((name, value))
        if isinstance(value, Tensor):
            self._note(name, value)
        elif isinstance(value, Optimizer):
            self._optimizers.append((name or "optimizer", value))
        elif isinstance(value, Module):
            for key, tensor in (*value.named_parameters(), *value.named_buffers()):
                self._note(f"{name}.{key}" if name else key, tensor)
        for step in edges(name, value, self._code):
            (queue if self._is_read(step.key) else waiting).append(step)

    def _add(self, fact: Fact) -> None:
        """Two functions may have a variable of the same name."""
        label, number = fact.label, 1
        while label in self._labels:
            number += 1
            label = f"{fact.label} ({number})"
        self._labels.add(label)
        fact.label = label
        self.facts.append(fact.freeze())

    def _note(self, name: str, tensor: Tensor) -> None:
        if id(tensor) not in self.names:
            self.names[id(tensor)] = name
            self.tensors.append(tensor)

    def _visit_state(self, name: str, optimizer: Optimizer) -> None:
        for i, p in enumerate(optimizer._params()):
            for key, value in optimizer.state.get(p, {}).items():
                if isinstance(value, Tensor):
                    self._note(f"{name}.{key}.{self.names.get(id(p), i)}", value)


# -- what an object leads to -----------------------------------------------------------------------


class Code(NamedTuple):
    """The facts that a walk collects of code.

    Attributes:
        mentioned: the names in the functions that were met.
        live: code of functions that a trace calls anew at every call.
    """

    mentioned: set[str]
    live: frozenset[CodeType]


def edges(name: str, value: Any, code: Code) -> Iterator[Edge]:
    """The steps from an object of this name."""
    dot = f"{name}." if name else ""
    if isinstance(value, Tensor):
        yield Edge(name, None, None, AttributeFact(f"{name}.requires_grad", value, "requires_grad"))
        yield Edge(name, None, None, HooksFact(f"{name}.hooks", value))
        yield from (Edge(f"{dot}hook", hook) for hook in value.hooks or ())
    elif isinstance(value, MethodType):
        yield Edge("", value.__self__)
        yield from edges(name, value.__func__, code)
    elif isinstance(value, FunctionType):
        yield from _of_function(value, code)
    elif isinstance(value, functools.partial):
        for i, each in enumerate((value.func, *value.args, *value.keywords.values())):
            yield Edge(f"{dot}partial.{i}", each)
    elif isinstance(value, ModuleType):
        if not is_library(value.__name__):
            for key, each in list(vars(value).items()):
                yield Edge(dot + key, each, key, EntryFact(dot + key, vars(value), key))
    elif isinstance(value, CONTAINERS):
        keys = list(value) if isinstance(value, dict) else range(len(value))
        entries = list(value.values() if isinstance(value, dict) else value)
        yield from (Edge(f"{dot}{key}", e) for key, e in zip(keys, entries, strict=True))
    elif isinstance(value, type):
        yield from _of_class(dot, value)
    elif "__wrapped__" in attributes_of(value):  # what calls it keeps is not its state
        yield Edge(name, value.__wrapped__)
    elif not isinstance(value, Generator):
        yield from _of_object(dot, value)


def _of_function(function: FunctionType, code: Code) -> Iterator[Edge]:
    """Nonlocals and globals that it uses, its defaults and its code."""
    if is_library(function.__module__):
        return
    names = names_in(function.__code__, code.live)
    code.mentioned.update(names.mentioned)
    free = zip(function.__code__.co_freevars, function.__closure__ or (), strict=True)
    cells = {name: cell for name, cell in free if name in names.nonlocals}
    space = function.__globals__
    for name in sorted({*names.globals, *cells}):
        fact: Fact
        if name in cells:
            fact = VariableFact(name, cells[name], name)
        elif name in space or name in names.stored:
            fact = EntryFact(name, space, name)
        else:
            continue  # a builtin function
        value = fact.read()
        yield Edge(name, value, None, fact)
    label = getattr(function, "__qualname__", "function")
    for key in ("__code__", "__defaults__", "__kwdefaults__"):
        # the code object itself has no state
        held = getattr(function, key)
        fact = AttributeFact(f"{label}.{key}", function, key)
        yield Edge("default", () if key == "__code__" else held, None, fact)


def _of_class(dot: str, cls: type, skipped: frozenset[str] = frozenset()) -> Iterator[Edge]:
    """The attributes of a class of the user's and its bases; its operators always matter."""
    always = FUNCTION_METHODS if issubclass(cls, Function) else ("forward",)
    for base in cls.__mro__:
        if is_library(base.__module__) or base in NAMESPACES:
            continue
        for key, held in list(vars(base).items()):
            value = getattr(held, "__func__", getattr(held, "fget", held))
            is_operator = key.startswith("__") or key in always
            if key in skipped or (is_operator and not isinstance(value, FunctionType)):
                continue
            fact: Fact
            if getattr(cls, key, MISSING) is held:
                fact = AttributeFact(dot + key, cls, key)
            else:  # of a base that hides it, or a method of the class, made at every look
                fact = EntryFact(dot + key, vars(base), key)
            yield Edge(dot + key, value, None if is_operator else key, fact)


def _of_object(dot: str, value: Any) -> Iterator[Edge]:
    cls = type(value)
    if isinstance(value, (Hooks, StepHooks)):
        for key, held in vars(value).items():
            if isinstance(held, HookList):
                yield Edge(dot + key, held, None, AttributeFact(dot + key, value, key, True, True))
        return
    if isinstance(value, Optimizer):
        yield from _of_optimizer(dot, value)
    elif isinstance(value, Module):
        yield from _of_module(dot, value)
    elif not is_library(cls.__module__) or isinstance(value, NAMESPACES) or is_ours(value):
        for key, held in attributes_of(value).items():
            yield Edge(dot + key, held, key, AttributeFact(dot + key, value, key), own=True)
    # what its class has, and that the object does not hide it
    own = getattr(value, "__dict__", None)
    for edge in _of_class(dot, cls, NOT_RUN):
        yield edge
        name = edge.label.removeprefix(dot)
        if own is not None and name not in own and not name.startswith("__"):
            hides = EntryFact(edge.label, own, name, isinstance(value, Module))
            yield Edge(edge.label, None, edge.key, hides)


def _of_module(dot: str, module: Module) -> Iterator[Edge]:
    """A module's attributes; assigning one is counted."""
    # the code of a layer of TinyTorch's mentions its attributes
    is_layer = next(filter(_is_ours, type(module).__mro__)) is not Module
    for key in ("training", "_hooks"):
        if key not in vars(module):
            yield Edge(dot + key, None, None, AttributeFact(dot + key, module, key, True))
    for key, held in list(vars(module).items()):
        fact = AttributeFact(dot + key, module, key, True)
        always = is_layer or isinstance(held, (Module, Tensor)) or key in ("training", "_hooks")
        yield Edge(dot + key, held, None if always else key, fact, own=True)
    yield Edge(dot, None, None, PartsFact(f"{dot}modules and parameters", module))


def _of_optimizer(dot: str, optimizer: Optimizer) -> Iterator[Edge]:
    """All options; the learning rate only where code reads it."""
    for i, group in enumerate(optimizer.param_groups):
        for key in group.keys() - LIVE_OPTIONS | {"lr"}:
            label = f"{dot}param_groups[{i}][{key!r}]"
            yield Edge(
                label, group[key], "lr" if key == "lr" else None, EntryFact(label, group, key)
            )
    yield from (Edge(f"{dot}params.{i}", p) for i, p in enumerate(optimizer._params()))
    hooks = AttributeFact(f"{dot}_step_hooks", optimizer, "_step_hooks", True)
    yield Edge(f"{dot}_step_hooks", optimizer._step_hooks, None, hooks)
    for key, held in vars(optimizer).items():
        if key not in ("param_groups", "state", "defaults"):
            yield Edge(dot + key, held, key, AttributeFact(dot + key, optimizer, key), own=True)


def _is_ours(cls: type) -> bool:
    return (cls.__module__ or "").startswith("tinytorch.")


# -- what code mentions ----------------------------------------------------------------------------


class Names(NamedTuple):
    """The names in a code object and in the functions inside it.

    Attributes:
        globals, nonlocals: variables that they read or set. Attributes are not among them, though
            `co_names` has both: `optimizer.step` is no `step`.
        stored: globals that they set.
        mentioned: names of attributes and variables, and texts that could be one.
    """

    globals: frozenset[str]
    nonlocals: frozenset[str]
    stored: frozenset[str]
    mentioned: frozenset[str]


@functools.lru_cache(2048)
def names_in(code: CodeType, live: frozenset[CodeType] = frozenset()) -> Names:
    """The names in a function's code, but for those in functions that are called live."""
    found: dict[str, set[str]] = {"LOAD_GLOBAL": set(), "STORE_GLOBAL": set(), "DEREF": set()}
    for each in dis.get_instructions(code):
        kind = "DEREF" if each.opname.endswith("DEREF") else each.opname
        if kind in found:
            found[kind].add(each.argval)
    texts = {c for c in code.co_consts if isinstance(c, str) and c.isidentifier()}
    inner = [c for c in code.co_consts if isinstance(c, CodeType) and c not in live]
    parts = [names_in(c, live) for c in inner]
    own = Names(
        frozenset(found["LOAD_GLOBAL"] | found["STORE_GLOBAL"]),
        frozenset(found["DEREF"]),
        frozenset(found["STORE_GLOBAL"]),
        frozenset(texts | set(code.co_names)),
    )
    return Names(*(frozenset().union(*each) for each in zip(own, *parts, strict=True)))
