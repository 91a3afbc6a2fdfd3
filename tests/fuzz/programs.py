"""Random straight-line programs: statements over arguments, parameters and buffers.

A program is Python source, so a failure prints as what a user would have written. Each statement is
drawn from `TEMPLATES` and tried in eager mode; what eager refuses is not part of a program.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from random import Random

import numpy as np

from tests.fuzz.mutations import add_mutations
from tests.fuzz.world import World, runs
from tinytorch.dtypes import Array
from tinytorch.state import using_backend
from tinytorch.tensor import Tensor

CALLS = 3
LARGEST = 1e3  # of a value that is drawn: beyond it float32 has too few digits for a comparison
SIZES = (1, 2, 3, 5, 8, 17, 33)
TRIES = 400  # statements that are tried for one program


@dataclass(frozen=True)
class Statement:
    """A line of a program.

    Attributes:
        text: a format string of `operands`; if there is `out`, the expression that it is set to.
        operands: names of values.
        out: the name of the value that it makes.
    """

    text: str
    operands: tuple[str, ...] = ()
    out: str = ""

    def __str__(self) -> str:
        text = self.text.format(*self.operands)
        return f"{self.out} = {text}" if self.out else text

    def renamed(self, old: str, new: str) -> Statement:
        """With another operand in place of one."""
        return replace(self, operands=tuple(new if o == old else o for o in self.operands))


@dataclass
class Program:
    """Statements, and the arrays that they start from.

    Attributes:
        arguments: for each call, arrays by name.
        passed: what stands for each parameter of the function: an argument, or a view of one.
        state: arrays by name: buffers `s0`, ... and parameters `p0`, ...
        optimizer: an expression over `parameters`; "" if there is none.
        layers: the attributes of `net`: name -> expression.
        statements: in order.
        results: names that are returned.
        mutations: for each call but the first, statements that change the world before it.
    """

    seed: str
    arguments: list[dict[str, Array]]
    passed: dict[str, str]
    state: dict[str, Array]
    optimizer: str
    layers: dict[str, str] = field(default_factory=dict)
    statements: list[Statement] = field(default_factory=list)
    results: list[str] = field(default_factory=list)
    mutations: list[list[str]] = field(default_factory=list)

    @property
    def source(self) -> str:
        """The function `step`."""
        lines = [f"    {s}" for s in self.statements]
        result = f"    return {', '.join(self.results)}" if self.results else "    pass"
        return "\n".join([f"def step({', '.join(self.passed)}):", *lines, result]) + "\n"

    def __str__(self) -> str:
        shapes = [f"{k}: {v.dtype}{list(v.shape)}" for k, v in self.arguments[0].items()]
        shapes += [f"{k}: {v.dtype}{list(v.shape)}" for k, v in self.state.items()]
        call = f"step({', '.join(self.passed.values())})"
        calls = [call]
        for changes in self.mutations:
            calls += [*changes, call]
        made = [f"net.{name} = {layer}" for name, layer in self.layers.items()]
        made += [f"optimizer = {self.optimizer}"] if self.optimizer else []
        head = [f"# seed {self.seed!r}", f"# {', '.join(shapes)}", *made]
        return "\n".join([*head, self.source.rstrip(), *calls])


# -- what statements there are ---------------------------------------------------------------------

Pick = Callable[["_Drawing"], str]


@dataclass(frozen=True)
class Template:
    """A kind of statement; `weight` says how often it is drawn.

    In the text, {f} is a value of floats, {b} of bools, {i} of indices, {p} a parameter, {w} what
    is written, {l} that if it is no global, {m} a layer. `#` is a number, `@` a dimension, and `:`
    alone inside of brackets some slice.
    """

    text: str
    weight: float = 1.0
    makes: bool = True


def _makes(weight: float, *texts: str) -> list[Template]:
    return [Template(text, weight / len(texts)) for text in texts]


def _does(weight: float, *texts: str) -> list[Template]:
    return [Template(text, weight / len(texts), makes=False) for text in texts]


TEMPLATES = [
    *_makes(
        6, "-{f}", "{f}.abs()", "{f}.tanh()", "{f}.sigmoid()", "{f}.relu()", "{f}.square()",
        "{f}.clamp(-3.0, 3.0).exp()", "({f}.abs() + 0.5).sqrt()", "({f}.abs() + 0.5).log()",
        "{f}.sin()", "{f}.cos()", "{f}.erf()", "F.gelu({f})", "{f} * #", "{f} + #", "# - {f}",
        "{f} / #", "{f}.clamp(-1.0, #)", "F.silu({f})", "{f}.expm1().clamp(-5.0, 5.0)",
        "({f}.abs() + 0.5).log2()", "({f}.abs() + 0.5).log10()",
    ),
    *_makes(
        7, "{f} + {f}", "{f} - {f}", "{f} * {f}", "{f} / ({f}.abs() + 1.0)",
        "tinytorch.maximum({f}, {f})", "tinytorch.minimum({f}, {f})", "{f} + {f}", "{f} * {f}",
    ),
    *_makes(
        2, "{f} < {f}", "{f} > #", "{b} & {b}", "{b} | {b}", "~{b}", "{b}.float()", "{b} + {b}",
        "tinytorch.where({b}, {f}, {f})", "tinytorch.where({b}, {f}, #)", "{f} * {b}",
    ),
    *_makes(
        3, "{f}.sum()", "{f}.sum(@)", "{f}.sum(@, keepdim=True)", "{f}.mean()", "{f}.mean(@)",
        "{f}.amax(@)", "{f}.amin(@, keepdim=True)", "{f}.softmax(@)", "{f}.log_softmax(@)",
        "{f}.var(@, keepdim=True)", "F.layer_norm({f}, {f}.shape[-1:])", "{f}.logsumexp(@)",
        "F.group_norm({f}, 1)", "F.group_norm({f}, {f}.shape[1])", "{f}.argmax(@)",
    ),
    *_makes(
        4, "{f} @ {f}", "{f} @ {f}.T", "{f}.T @ {f}", "F.linear({f}, {f})", "{f} @ {f} + {f}",
        "{f} @ {p}", "F.linear({f}, {p})", "F.linear({f}, {p}, {f})",
    ),
    *_makes(
        4, "{f}.T", "{f}[:]", "{f}[:, :]", "{f}[..., :]", "{f}.unsqueeze(@)", "{f}.flatten()",
        "{f}.reshape(-1)", "{f}.transpose(0, 1)", "{f}[0]", "{f}.expand(3, *{f}.shape)",
        "{f}.reshape(*{f}.shape[::-1])", "{f}.squeeze()", "{f}[::2]", "{f}.flip(@)",
    ),
    *_makes(
        3, "{f}.clone()", "{f}.detach()", "{f}.contiguous()", "{f}.double()", "{f}.float()",
        "tinytorch.cat([{f}, {f}], @)", "tinytorch.stack([{f}, {f}])", "{f}.clone().detach()",
        "tinytorch.zeros_like({f})", "tinytorch.full_like({f}, #)",
    ),
    *_makes(1, "{f}[{i}]", "F.embedding({i}, {f})", "F.cross_entropy({f}, {i})", "{i} + {i}"),
    *_does(
        6, "{w}.copy_({f})", "{w}.add_({f})", "{w}.add_({f}, alpha=#)", "{w}.sub_({f})",
        "{w}.mul_(#)", "{w}.mul_({f})", "{w}.mul_({f}.clone().detach())", "{w}.fill_(#)",
        "{w}.zero_()", "{w}.clamp_(-1.0, 1.0)", "{w}.masked_fill_({b}, #)", "{w}.copy_({w})",
        "{w}.mul_(#).add_({f}, alpha=#)", "{l} += {f}", "{l} *= #",
    ),
    *_does(
        3, "{w}[:].copy_({f})", "{w}[:].add_({f})", "{w}[:].mul_(#)", "{w}[0].fill_(#)",
        "{w}.T.copy_({f})", "{w}.T.mul_(#)", "{w}[..., :].fill_(#)", "{w}[0].copy_({f})",
        "{w}.unsqueeze(0).add_({f})", "{w}[::2].sub_({f})", "{w}.detach().mul_(#)",
    ),
    *_does(
        2, "{f}.square().mean().backward()", "{f}.sum().backward()", "({f} * #).mean().backward()",
        "({f} * {f}).sum().backward()",
        "(F.cross_entropy({f}, {i}) * #).backward()",
    ),
    *_does(
        2, "with no_grad(): {p}.sub_({p}.grad * 0.1)", "with no_grad(): {p}.mul_(#)",
        "with no_grad(): {p}.copy_({f})", "optimizer.step()", "optimizer.zero_grad()",
        "nn.utils.clip_grad_norm_([{p}, {p}], 0.5)", "optim.clip_grad_norm_([{p}, {p}], 0.5)",
        "optim.clip_grad_value_([{p}], 0.1)", "{p}.grad.zero_()", "{p}.grad = None",
    ),
    *_makes(1, "{p}.grad * #", "{p}.grad.clone()", "{p} * #", "{p} + {f}"),
    *_makes(
        2, "{f} * options['scale']", "{f} + options['shift']", "{f} * numbers[0]", "helper({f})",
        "{f} + sum(numbers)", "{f} * config.scale", "{f} * (2.0 if config.flag else -1.0)",
    ),
    *_makes(6, "{m}({f})", "{m}({f})", "{m}({f}) + {f}", "{m}({f}).relu()", "{m}({i})"),
]  # fmt: skip
WEIGHTS = [t.weight for t in TEMPLATES]
MOVES = [
    *_makes(3, "{f}.clone()"),
    *_makes(2, "{f} + {f}", "{f} - {f} * #", "{f}.detach()", "{f}[:]"),
    *_does(4, "{w}.copy_({f})"),
    *_does(
        4, "{w}.copy_({w})", "{w}.add_({f}, alpha=#)", "{w}.mul_({f}.clone())",
        "{w}.mul_(0.9).add_({f}, alpha=0.1)", "{w}[1:].copy_({f}[:-1])", "{w}[0].copy_({f}[-1])",
        "{w}.copy_({f} * 0.5)", "{w}.sub_({f} * 0.1)",
    ),
]  # fmt: skip
"""Of programs whose point is the order of reads and writes: all values have one shape."""

OPTIMIZERS = (
    "optim.SGD(parameters, lr=0.1)",
    "optim.SGD(parameters, lr=0.1, momentum=0.9, weight_decay=0.01)",
    "optim.SGD(parameters, lr=0.1, momentum=0.9, nesterov=True)",
    "optim.Adam(parameters, lr=0.01)",
    "optim.AdamW(parameters, lr=0.01)",
    "optim.RMSprop(parameters, lr=0.01, momentum=0.5)",
)
LAYERS = (
    "nn.Linear({m}, {k})", "nn.Linear({m}, {m})", "nn.Linear({m}, {m}, bias=False)",
    "nn.Sequential(nn.Linear({m}, {k}), nn.ReLU(), nn.Linear({k}, {m}))", "nn.LayerNorm({m})",
    "nn.Sequential(nn.Linear({m}, {m}), nn.Dropout(0.25))", "nn.BatchNorm1d({m})", "nn.PReLU()",
    "nn.Dropout(0.5)", "nn.RMSNorm({m})", "nn.Embedding(40, {m})", "nn.GRUCell({m}, {m})",
    "nn.Conv1d({n}, 2, 3, padding=1)", "nn.Conv2d(2, 3, 3, padding=1)", "nn.GELU()",
)  # fmt: skip
NUMBERS = ("0.5", "-1.0", "2.0", "0.1", "1.5", "0.0", "1.0", "3", "-0.0")


# -- drawing ---------------------------------------------------------------------------------------


def draw(seed: str, length: int | None = None) -> Program:
    """The program of a seed: 3 to 25 statements, unless a length is given."""
    random = Random(seed)
    rng = np.random.default_rng(random.getrandbits(64))
    while True:
        try:
            with using_backend("numpy"), np.errstate(all="ignore"):
                program = _Drawing(seed, random, rng, length or random.randint(3, 25)).program
                World(program).calls(program)
        except Exception:  # a later call meets other state: a gradient that is there, a history
            continue
        return program


class _Drawing:
    """Draws statements one after the other, running each in eager mode."""

    def __init__(self, seed: str, random: Random, rng: np.random.Generator, length: int) -> None:
        self.random, self.rng = random, rng
        self.sizes = [self._size() for _ in range(3)]
        self.one_shape = (
            tuple(self.sizes[: random.randint(1, 2)]) if random.random() < 0.2 else None
        )
        names = [f"x{i}" for i in range(random.randint(1, 1 if self.one_shape else 3))]
        shapes = {name: self._shape() for name in names}
        arguments = [{k: self._array(s) for k, s in shapes.items()} for _ in range(CALLS)]
        if random.random() < 0.3:
            high, shape = max(1, min(self.sizes[:2])), (self.sizes[0],)
            for each in arguments:
                each["k"] = rng.integers(0, high, shape)
        passed = {name: name for name in arguments[0]}
        if random.random() < 0.06:
            passed["y"] = random.choice(["x0", "x0.T", "x0[1:]", "x0.detach()"])
        state = {f"s{i}": self._array(self._shape()) for i in range(random.randint(0, 3))}
        if self.one_shape is not None:
            state |= {f"s{i}": self._array(self.one_shape) for i in range(2)}
        parameters = 0 if self.one_shape else random.randint(0, 2)
        state |= {f"p{i}": self._array(self._shape()) for i in range(parameters)}
        has_parameters = any(k.startswith("p") for k in state)
        n, m, k = self.sizes
        count = 0 if self.one_shape else random.choice([0, 0, 1, 2])
        layers = {f"m{i}": random.choice(LAYERS).format(n=n, m=m, k=k) for i in range(count)}
        has_parameters = has_parameters or count > 0
        optimizer = random.choice(OPTIMIZERS) if has_parameters and random.random() < 0.6 else ""
        self.program = Program(seed, arguments, passed, state, optimizer, layers)
        world = World(self.program)
        self.names = dict(zip(passed, world.arguments(0), strict=True))
        self.names |= {name: world.names[name] for name in state}
        self.world = world
        for _ in range(TRIES):
            if len(self.program.statements) >= length:
                break
            self._add()
        made = list(self.names)
        count = min(len(made), random.randint(0, 3))
        self.program.results = random.sample(made[len(passed) :] or made, min(count, len(state)))
        if len(made) > len(passed) + len(state):
            self.program.results.append(made[-1])
        if random.random() < 0.6:
            add_mutations(self.program, random)

    def _size(self) -> int:
        return self.random.choice([*SIZES, 0] if self.random.random() < 0.1 else SIZES)

    def _shape(self) -> tuple[int, ...]:
        if self.one_shape is not None:
            return self.one_shape
        n, m, k = self.sizes
        return self.random.choice(
            [(n, m), (n, m), (n, m), (m,), (n, 1), (1, m), (), (m, n), (n, n), (m, m), (n, k),
             (2, n, m), (1,)]
        )  # fmt: skip

    def _array(self, shape: tuple[int, ...]) -> Array:
        dtype = np.float64 if self.random.random() < 0.05 else np.float32
        return np.asarray(self.rng.standard_normal(shape)).astype(dtype)

    def _add(self) -> None:
        if self.one_shape is None:
            (template,) = self.random.choices(TEMPLATES, WEIGHTS)
        else:
            (template,) = self.random.choices(MOVES, [t.weight for t in MOVES])
        statement = self._statement(template)
        if statement is None:
            return
        names = {**self.world.names, **self.names}
        try:
            exec(str(statement), names)
        except Exception:
            return  # eager refuses it
        if statement.out:
            value = names[statement.out]
            if not isinstance(value, Tensor) or not _is_moderate(value):
                return
            self.names[statement.out] = value
        self.program.statements.append(statement)

    def _statement(self, template: Template) -> Statement | None:
        operands: list[str] = []

        def slot(match: re.Match[str]) -> str:
            operands.append(self._operand(match.group(1)))
            return f"{{{len(operands) - 1}}}"

        text = template.text
        if "{m}" in text:
            if not self.program.layers:
                return None
            text = text.replace("{m}", "net." + self.random.choice([*self.program.layers]))
        text = re.sub(r"\{(\w)\}", slot, text)
        if "" in operands:
            return None
        text = re.sub("#", lambda _: self.random.choice(NUMBERS), text)
        text = re.sub("@", lambda _: self.random.choice(["-1", "0", "1"]), text)
        text = re.sub(r"(?<=[\[ ]):(?=[\],])", lambda _: self._slice(), text)
        out = f"v{len(self.program.statements)}" if template.makes else ""
        return Statement(text, tuple(operands), out)

    def _slice(self) -> str:
        return self.random.choice(["1:", ":-1", ":2", "::2", ":", "1:3", "::-1"])

    def _operand(self, kind: str) -> str:
        """The name of a value of a kind, the later the likelier; "" if there is none."""
        kinds: dict[str, Callable[[str, Tensor], bool]] = {
            "f": lambda name, t: t.dtype.is_floating_point,
            "w": lambda name, t: t.dtype.is_floating_point and not name.startswith("p"),
            "l": lambda name, t: t.dtype.is_floating_point and name[0] not in "sp",
            "b": lambda name, t: t.dtype.name == "bool",
            "i": lambda name, t: t.dtype.name == "int64",
            "p": lambda name, t: name.startswith("p"),
        }
        found = [name for name, t in self.names.items() if kinds[kind](name, t)]
        if not found:
            return ""
        return self.random.choice(found[-4:] if self.random.random() < 0.4 else found)


def _is_moderate(value: Tensor) -> bool:
    values = value.detach().numpy()
    if values.dtype.kind != "f" or not values.size:
        return True
    return bool(np.isfinite(values).all() and np.abs(values).max() < LARGEST)


# -- shrinking -------------------------------------------------------------------------------------


def shrink(program: Program, fails: Callable[[Program], bool]) -> Program:
    """The smallest program found that still fails, by leaving out statements and results."""
    changed = True
    while changed:
        changed = False
        for smaller in _smaller(program):
            if runs(smaller) and fails(smaller):
                program, changed = smaller, True
                break
    return program


def _smaller(program: Program) -> Sequence[Program]:
    found: list[Program] = []
    statements = program.statements
    for size in (8, 4, 2, 1):
        for start in range(0, len(statements), size):
            found.append(_without(program, start, min(start + size, len(statements))))
    for result in program.results:
        found.append(replace(program, results=[r for r in program.results if r != result]))
    if program.optimizer and not any("optimizer" in s.text for s in statements):
        found.append(replace(program, optimizer=""))
    for i, changes in enumerate(program.mutations):
        for change in changes:
            rest = [c for c in changes if c is not change]
            found.append(replace(program, mutations=[
                rest if k == i else other for k, other in enumerate(program.mutations)
            ]))  # fmt: skip
    for name in program.layers:
        layers = {k: v for k, v in program.layers.items() if k != name}
        found.append(replace(program, layers=layers))
    return found


def _without(program: Program, start: int, stop: int) -> Program:
    """Without some statements; what used their values uses their first operands."""
    rest, results = list(program.statements), list(program.results)
    for statement in reversed(rest[start:stop]):
        if statement.out and statement.operands:
            new = statement.operands[0]
            rest = [s.renamed(statement.out, new) for s in rest]
            results = [new if r == statement.out else r for r in results]
    return replace(program, statements=rest[:start] + rest[stop:], results=results)
