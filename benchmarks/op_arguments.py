"""Arguments for every public function, at any size: by the names of its parameters.

A function's signature says what it takes: `x` is a matrix, `dim` a dimension, `mask` an array of
bool. So there is a line for each name of a parameter, and one for each function whose parameters
mean something of their own (images, classes, probabilities). Both libraries get the same arrays.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import cache
from itertools import takewhile
from typing import Any

import numpy as np

import tinytorch
import tinytorch.nn.functional as F
from tinytorch import creation, random
from tinytorch.functions.publish import FUNCTIONS, METHODS
from tinytorch.testing.op_samples import LOWEST
from tinytorch.testing.source import laid_out

LARGE, SMALL, TINY = (1024, 1024), (32, 64), (6, 8)
NARROW = (4096, 10)  # as scores of ten classes: a loop over a row has hardly begun when it ends


@dataclass(frozen=True)
class Values:
    """Where arguments come from: a size, a dtype, a layout, the dimension of functions with one."""

    shape: tuple[int, int]
    dtype: str = "float32"
    layout: str = "contiguous"
    dim: int | None = None
    rng: np.random.Generator = field(default_factory=lambda: np.random.default_rng(0))

    @property
    def rows(self) -> int:
        return self.shape[0]

    @property
    def columns(self) -> int:
        return self.shape[1]

    def array(self, *shape: int, low: float | None = None) -> Any:
        """Numbers without order; above `low` if it is given."""
        shape = shape or self.shape
        if np.dtype(self.dtype).kind == "i":
            values: Any = self.rng.integers(-9 if low is None else 1, 10, shape)
        else:
            values = self.rng.standard_normal(shape)
            values = values if low is None else np.abs(values) + low + 0.1
        return laid_out(values.astype(self.dtype), self.layout)

    def within_one(self, *shape: int) -> Any:
        return np.asarray(np.tanh(self.array(*shape)) * 0.9, self.dtype)

    def probabilities(self, *shape: int) -> Any:
        return np.asarray(0.5 + self.within_one(*shape) / 2, self.dtype)

    def mask(self) -> Any:
        return laid_out(self.rng.random(self.shape) < 0.5, self.layout)

    def index(self, *shape: int, below: int | None = None) -> Any:
        extent = self.shape[self.dim or 0] if below is None else below
        return self.rng.integers(0, extent, shape or self.shape)

    @property
    def sixteenth(self) -> int:
        """Of the positions along the dimension; one at least."""
        return max(1, self.shape[self.dim or 0] // 16)

    def distinct(self) -> Any:
        """A sixteenth of the positions along the dimension, none twice."""
        return self.rng.permutation(self.shape[self.dim or 0])[: self.sixteenth]

    def part(self) -> Any:
        """What has the length of `distinct` along the dimension."""
        shape = list(self.shape)
        shape[self.dim or 0] = self.sixteenth
        return self.array(*shape)

    def signs(self, *shape: int) -> Any:
        return np.where(self.rng.random(shape or self.shape) < 0.5, -1, 1).astype(self.dtype)

    @property
    def is_large(self) -> bool:
        return self.shape == LARGE

    def images(self) -> Any:
        return self.array(*((16, 32, 28, 28) if self.is_large else (2, 4, 8, 8)))

    def signals(self) -> Any:
        return self.array(*((16, 32, 512) if self.is_large else (2, 4, 32)))

    def filters(self, *kernel: int) -> Any:
        return self.array(*((64, 32) if self.is_large else (8, 4)), *kernel)


@dataclass(frozen=True)
class DType:
    """A dtype by name, which each library looks up."""

    name: str


Make = Callable[[Values], Any]

# A matrix for each name that means one; the second operand of a division is not 0.
MATRICES = (
    *("a", "x", "input", "elements", "anchor", "positive", "negative", "x1", "x2", "input1"),
    *("input2", "logits", "end", "tensor1", "p_", "target"),
)
BY_PARAMETER: dict[str, Make] = {
    **dict.fromkeys(MATRICES, lambda v: v.array()),
    **dict.fromkeys(("b", "other", "tensor2", "values"), lambda v: v.array(low=0.0)),
    **dict.fromkeys(("condition", "mask"), lambda v: v.mask()),
    **dict.fromkeys(("dim", "dimension", "dims"), lambda v: v.dim),
    "dim0": lambda v: 0,
    "axis0": lambda v: 0,
    "dim1": lambda v: 1,
    "axis1": lambda v: 1,
    "source": lambda v: v.array(),
    "src": lambda v: v.array(),
    "shape": lambda v: (v.columns, v.rows),
    "index": lambda v: v.index(),
    "value": lambda v: 2.0 if v.dtype[0] == "f" else 2,
    "exponent": lambda v: 2.5 if v.dtype[0] == "f" else 3,
    "weight": lambda v: 0.25,
    "k": lambda v: 10,
    "start": lambda v: 1,
    "length": lambda v: v.shape[v.dim or 0] - 2,
    "tensors": lambda v: [v.array(), v.array()],
    "chunks": lambda v: 4,
    **dict.fromkeys(("size", "split_size_or_sections"), lambda v: 8),
    "step": lambda v: 4,
    "indices_or_sections": lambda v: 4,
    "shifts": lambda v: 3,
    "repeats": lambda v: 2,
    "threshold": lambda v: 0.1,
    "bins": lambda v: 50,
    "padding": lambda v: (1, 2),
    "pad": lambda v: (1, 2),
    "labels": lambda v: v.index(v.rows, below=16),
    "test_elements": lambda v: v.array(16),
}


@dataclass(frozen=True)
class Call:
    """Positional and keyword arguments; a function may have several kinds of calls."""

    args: tuple[Any, ...]
    options: dict[str, Any] = field(default_factory=dict)


def _call(*args: Any, **options: Any) -> Call:
    return Call(args, options)


def _created(v: Values) -> Call:
    return _call(*v.shape, dtype=DType(v.dtype))


def _vectors(v: Values) -> Call:
    return _call(v.array(v.rows), v.array(v.rows))


def _square(v: Values) -> Any:
    return v.array(v.rows, v.rows)


def _product(v: Values) -> Call:
    return _call(_square(v), v.array())


def _batch(v: Values) -> tuple[Any, Any]:
    n = 256 if v.is_large else 8
    return v.array(16, n, 64), v.array(16, 64, n)


def _pooled(v: Values) -> Call:
    return _call(v.images(), 2)


def _pooled_signal(v: Values) -> Call:
    return _call(v.signals(), 2)


def _labels(v: Values) -> Any:
    return v.index(v.rows, below=v.columns)


def _normalized(v: Values) -> Call:
    return _call(v.array(), (v.columns,), v.array(v.columns), v.array(v.columns))


def _attention(v: Values) -> Call:
    n = 256 if v.is_large else 16
    return _call(*(v.array(2, 4, n, 64) for _ in range(3)))


def _ctc(v: Values) -> Call:
    steps, classes = (128, 64) if v.is_large else (16, 8)
    x = v.array(steps, 4, classes).astype(np.float64)
    log_probs = x - np.log(np.exp(x).sum(-1, keepdims=True))
    targets = 1 + v.rng.integers(0, classes - 1, (4, steps // 4))
    lengths = np.full(4, steps), np.full(4, steps // 4)
    return _call(log_probs.astype(v.dtype), targets, *lengths)


def _few(v: Values, n: int) -> Any:
    return v.array(*(n if v.is_large else min(n, 8),) * 2)


def _unpooled(v: Values) -> Call:
    x = v.images()
    n, c, h, w = x.shape
    corners = np.arange(0, h * w, 2 * w)[:, None] + np.arange(0, w, 2)
    index = np.broadcast_to(corners, (n, c, h // 2, w // 2)).copy()
    return _call(np.ascontiguousarray(x[..., ::2, ::2]), index, 2)


def _folded_windows(v: Values) -> Call:
    size = 28 if v.is_large else 8
    return _call(v.array(4, 4 * 9, (size - 2) ** 2), (size, size), 3)


def _sorted(v: Values) -> Any:
    return np.sort(v.array(v.columns))


def _channels(v: Values) -> list[Any]:
    return [v.array(v.images().shape[1], low=0.0) for _ in range(4)]


# Functions whose parameters do not mean what their names do elsewhere.
BY_FUNCTION: dict[str, Make] = {
    **dict.fromkeys(("dot", "outer", "ger", "inner"), _vectors),
    **dict.fromkeys(("matmul", "mm"), _product),
    "mv": lambda v: _call(v.array(), v.array(v.columns)),
    "bmm": lambda v: _call(*_batch(v)),
    "tensordot": lambda v: _call(_square(v), v.array(), dims=1),
    "einsum": lambda v: _call("ij,jk->ik", _square(v), v.array()),
    "kron": lambda v: _call(_few(v, 32), _few(v, 32)),
    "cdist": lambda v: _call(_few(v, 128), _few(v, 128)),
    "cross": lambda v: _call(v.array(v.rows, 3), v.array(v.rows, 3), dim=1),
    "addmm": lambda v: _call(v.array(), _square(v), v.array()),
    "addmv": lambda v: _call(v.array(v.rows), v.array(), v.array(v.columns)),
    "addr": lambda v: _call(v.array(), v.array(v.rows), v.array(v.columns)),
    "baddbmm": lambda v: _call((_batch(v)[0] @ _batch(v)[1]), *_batch(v)),
    "addbmm": lambda v: _call((_batch(v)[0][0] @ _batch(v)[1][0]), *_batch(v)),
    "matrix_power": lambda v: _call(_few(v, 256) / 64 if v.dtype[0] == "f" else _few(v, 64), 3),
    "logit": lambda v: _call(v.probabilities()),
    **dict.fromkeys(
        ("asin", "acos", "atanh", "arcsin", "arccos", "arctanh", "erfinv"),
        lambda v: _call(v.within_one()),
    ),
    **dict.fromkeys((*LOWEST, "log2", "log10", "rsqrt"), lambda v: _call(v.array(low=0.0))),
    **dict.fromkeys(("acosh", "arccosh"), lambda v: _call(v.array(low=1.0))),
    **dict.fromkeys(
        ("pow", "float_power"), lambda v: _call(v.array(low=0.0), BY_PARAMETER["exponent"](v))
    ),
    "xlogy": lambda v: _call(v.array(low=0.0), v.array(low=0.0)),
    "bitwise_left_shift": lambda v: _call(v.array(), v.index(below=5)),
    "bitwise_right_shift": lambda v: _call(v.array(), v.index(below=5)),
    "where": lambda v: _call(v.mask(), v.array(), v.array()),
    "clip": lambda v: _call(v.array(), -1, 1),
    "clamp": lambda v: _call(v.array(), -1, 1),
    "lerp": lambda v: _call(v.array(), v.array(), 0.25),
    "broadcast_tensors": lambda v: _call(v.array(), v.array(v.columns)),
    "broadcast_to": lambda v: _call(v.array(v.columns), v.shape),
    "meshgrid": lambda v: _call(v.array(v.rows), v.array(v.columns), indexing="ij"),
    **dict.fromkeys(("atleast_1d", "atleast_2d", "atleast_3d"), lambda v: _call(v.array())),
    "flip": lambda v: _call(v.array(), (v.dim or 0,)),
    "reshape": lambda v: _call(v.array(), (-1,)),
    "permute": lambda v: _call(v.array(), (1, 0)),
    "expand": lambda v: _call(v.array(v.columns), v.rows, v.columns),
    "expand_as": lambda v: _call(v.array(v.columns), v.array()),
    "view_as": lambda v: _call(v.array(), v.array()),
    "tile": lambda v: _call(v.array(), (2, 1)),
    "repeat": lambda v: _call(v.array(), 2, 1),
    "rot90": lambda v: _call(v.array()),
    "movedim": lambda v: _call(v.array(), 0, 1),
    "moveaxis": lambda v: _call(v.array(), 0, 1),
    "unflatten": lambda v: _call(v.array(), v.dim, (2, v.shape[v.dim or 0] // 2)),
    "diagonal": lambda v: _call(v.array()),
    **dict.fromkeys(("diagflat", "diag_embed"), lambda v: _call(v.array(v.rows))),
    "select": lambda v: _call(v.array(), v.dim, 1),
    "select_scatter": lambda v: _call(v.array(), v.array(v.shape[1 - (v.dim or 0)]), v.dim, 1),
    "slice_scatter": lambda v: _call(v.array(), v.part(), v.dim, 0, v.sixteenth),
    "index_select": lambda v: _call(v.array(), v.dim, v.distinct()),
    "index_add": lambda v: _call(v.array(), v.dim, v.distinct(), v.part()),
    "index_copy": lambda v: _call(v.array(), v.dim, v.distinct(), v.part()),
    "index_fill": lambda v: _call(v.array(), v.dim, v.distinct(), 2),
    "index_put": lambda v: _call(v.array(), (v.index(v.rows, below=v.rows),), v.array()),
    "scatter": lambda v: _call(v.array(), v.dim, v.index(), v.array()),
    "take": lambda v: _call(v.array(), v.index(below=v.rows * v.columns)),
    "take_along_dim": lambda v: _call(v.array(), v.index(), v.dim),
    "bincount": lambda v: _call(v.index(v.rows * v.columns, below=100)),
    "searchsorted": lambda v: _call(_sorted(v), v.array(v.rows)),
    "bucketize": lambda v: _call(v.array(v.rows), _sorted(v)),
    "histogram": lambda v: _call(v.array().ravel(), 50),
    "tril_indices": lambda v: _call(v.rows, v.columns),
    "triu_indices": lambda v: _call(v.rows, v.columns),
    "nanmean": lambda v: _call(v.array(), v.dim),
    "norm": lambda v: _call(v.array(), 2, v.dim),
    "dist": lambda v: _call(v.array(), v.array()),
    # methods
    "to": lambda v: _call(v.array(), DType("float64" if v.dtype == "float32" else "float32")),
    "new_full": lambda v: _call(v.array(2, 2), v.shape, 1),
    **dict.fromkeys(("new_empty", "new_ones", "new_zeros"), lambda v: _call(v.array(), v.shape)),
    "multinomial": lambda v: _call(v.array(low=0.0), 10, True),
    "bernoulli": lambda v: _call(v.probabilities()),
    # creation and random numbers
    "full": lambda v: _call(v.shape, 2.0),
    **dict.fromkeys(("zeros", "ones", "empty", "rand", "randn"), _created),
    "full_like": lambda v: _call(v.array(), 2),
    "arange": lambda v: _call(0, v.rows * v.columns, 1),
    "range": lambda v: _call(0, v.rows * v.columns, 1),
    "linspace": lambda v: _call(0, 1, v.rows * v.columns),
    "logspace": lambda v: _call(0, 1, v.rows * v.columns),
    "eye": lambda v: _call(v.rows, v.columns),
    "randint": lambda v: _call(0, 10, v.shape),
    "randint_like": lambda v: _call(v.array(), 0, 10),
    "randperm": lambda v: _call(v.rows * v.columns),
    "normal": lambda v: _call(0.0, 1.0, v.shape),
    "poisson": lambda v: _call(v.array(low=0.0)),
    # layers
    "F.linear": lambda v: _call(
        v.array(),
        _square(v)[:, : v.columns] if v.rows >= v.columns else v.array(v.rows, v.columns),
        v.array(v.rows),
    ),
    "F.bilinear": lambda v: _call(v.array(v.rows, 32), v.array(v.rows, 32), v.array(8, 32, 32)),
    "F.embedding_bag": lambda v: _call(v.index(v.rows // 8, 8, below=v.rows), v.array()),
    "F.embedding": lambda v: _call(v.index(v.rows, below=v.rows), v.array()),
    "F.conv1d": lambda v: _call(v.signals(), v.filters(3), None, 1, 1),
    "F.conv2d": lambda v: _call(v.images(), v.filters(3, 3), None, 1, 1),
    "F.conv_transpose1d": lambda v: _call(v.signals(), v.filters(3).swapaxes(0, 1), None, 2),
    "F.conv_transpose2d": lambda v: _call(v.images(), v.filters(3, 3).swapaxes(0, 1), None, 2),
    **dict.fromkeys(("F.avg_pool2d", "F.max_pool2d"), _pooled),
    **dict.fromkeys(("F.avg_pool1d", "F.max_pool1d"), _pooled_signal),
    **dict.fromkeys(
        ("F.adaptive_avg_pool2d", "F.adaptive_max_pool2d"), lambda v: _call(v.images(), 4)
    ),
    **dict.fromkeys(
        ("F.adaptive_avg_pool1d", "F.adaptive_max_pool1d"), lambda v: _call(v.signals(), 8)
    ),
    "F.max_unpool2d": _unpooled,
    "F.unfold": lambda v: _call(v.images(), 3),
    "F.fold": _folded_windows,
    "F.interpolate": lambda v: _call(v.images(), None, 2.0),
    "F.pixel_shuffle": lambda v: _call(v.images(), 2),
    "F.pixel_unshuffle": lambda v: _call(v.images(), 2),
    "F.channel_shuffle": lambda v: _call(v.images(), 2),
    "F.local_response_norm": lambda v: _call(v.images(), 3),
    "F.layer_norm": _normalized,
    "F.rms_norm": lambda v: _call(v.array(), (v.columns,), v.array(v.columns)),
    "F.group_norm": lambda v: _call(v.images(), 2, *_channels(v)[:2]),
    "F.batch_norm": lambda v: _call(v.images(), *_channels(v), True),
    "F.instance_norm": lambda v: _call(v.images()),
    "F.dropout2d": lambda v: _call(v.images()),
    "F.dropout1d": lambda v: _call(v.signals()),
    "F.dropout3d": lambda v: _call(v.images()[:, None]),
    "F.prelu": lambda v: _call(v.array(), v.array(1)),
    "F.scaled_dot_product_attention": _attention,
    "F.softmax": lambda v: _call(v.array(), v.dim),
    "F.gumbel_softmax": lambda v: _call(v.array(), dim=v.dim),
    "F.one_hot": lambda v: _call(_labels(v), v.columns),
    # losses
    "F.cross_entropy": lambda v: _call(v.array(), _labels(v)),
    "F.nll_loss": lambda v: _call(v.array(), _labels(v)),
    "F.multi_margin_loss": lambda v: _call(v.array(), _labels(v)),
    "F.ctc_loss": _ctc,
    "F.kl_div": lambda v: _call(v.array(), v.probabilities()),
    "F.binary_cross_entropy": lambda v: _call(v.probabilities(), v.probabilities()),
    "F.gaussian_nll_loss": lambda v: _call(v.array(), v.array(), v.array(low=0.0)),
    "F.hinge_embedding_loss": lambda v: _call(v.array(), v.signs()),
    "F.soft_margin_loss": lambda v: _call(v.array(), v.signs()),
    "F.multilabel_soft_margin_loss": lambda v: _call(v.array(), v.probabilities()),
    "F.margin_ranking_loss": lambda v: _call(v.array(), v.array(), v.signs()),
    "F.cosine_embedding_loss": lambda v: _call(v.array(), v.array(), v.signs(v.rows)),
}


# What is not measured, with the reason.
NOT_MEASURED = {
    **dict.fromkeys(("equal", "allclose"), "they end at the first difference, in Python's bool"),
    **dict.fromkeys(("tensor", "as_tensor", "from_numpy", "from_dlpack"), "they take no tensors"),
    **dict.fromkeys(("manual_seed", "draw_seed", "seed_tensor"), "they draw no numbers"),
    "bfloat16": "a format that is stored and not computed with",
    "new_tensor": "PyTorch warns of it",
    "F.triplet_margin_with_distance_loss": "its distance is a function that is given",
}


@cache
def functions() -> dict[str, Callable[..., Any]]:
    """Every public function by name: `F.` in front of those of nn.functional.

    A function that writes in place (`exp_`) is the one without `_`, and a copy.
    """
    found = dict(FUNCTIONS)
    found.update({n: f for n, f in METHODS.items() if n not in found and not n.endswith("_")})
    for module in (creation, random):
        found.update({n: f for n, f in vars(module).items()
                      if inspect.isfunction(f) and n[0] != "_"
                      and f.__module__ == module.__name__})  # fmt: skip
    for name in F.__all__:
        if not name.endswith("_"):
            found[f"F.{name}"] = getattr(F, name)
    first = {id(f): n for n, f in reversed(found.items())}  # an alias is the same function
    return {n: f for n, f in found.items() if n not in NOT_MEASURED and first[id(f)] == n}


def parameters(function: Callable[..., Any]) -> Iterator[inspect.Parameter]:
    """Those by position up to the last that must be given, with `dim` if it can be."""
    every = [p for p in inspect.signature(inspect.unwrap(function)).parameters.values()
             if p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD)]  # fmt: skip
    yield from takewhile(lambda p: p.default is p.empty, every)


#: Whose `dims` are an order, or one number for each dimension.
ORDERS = ("permute", "tile")


@cache
def dims_of(name: str) -> tuple[int | None, ...]:
    """The values of `dim` that a function is measured with; (None,) if it has none."""
    function = functions()[name]
    known = inspect.signature(inspect.unwrap(function)).parameters
    dim = known.get("dim", known.get("dimension", known.get("dims")))
    if dim is None or name in ORDERS:
        return (None,)
    if name == "logsumexp":  # PyTorch's has no default
        return (0, 1)
    return (None, 0, 1) if dim.default is None else (0, 1)


def call_of(name: str, v: Values) -> Call:
    """Arguments for a function.

    Raises:
        LookupError: nothing says what a parameter means; the message says where to write it.
    """
    if name in BY_FUNCTION:
        made: Call = BY_FUNCTION[name](v)
        return made
    function, args = functions()[name], []
    for parameter in parameters(function):
        if parameter.name not in BY_PARAMETER:
            raise LookupError(
                f"benchmarks/ops.py has no arguments for {name}{inspect.signature(function)}: say "
                f"what {parameter.name!r} is in BY_PARAMETER of benchmarks/op_arguments.py, or "
                f"what {name} takes in BY_FUNCTION; or why it is not measured in NOT_MEASURED"
            )
        args.append(BY_PARAMETER[parameter.name](v))
    known = inspect.signature(inspect.unwrap(function)).parameters
    given = [p.name for p in parameters(function)]
    for dim in ("dim", "dims"):
        if v.dim is not None and dim in known and dim not in given:
            return Call(tuple(args), {dim: v.dim})
    return Call(tuple(args))


def as_tensors(value: Any, make: Callable[[Any], Any], library: Any) -> Any:
    """Arguments with arrays as a library's tensors, and dtypes as its own."""
    if isinstance(value, np.ndarray):
        return make(value)
    if isinstance(value, DType):
        return getattr(library, value.name)
    if isinstance(value, (list, tuple)):
        return type(value)(as_tensors(each, make, library) for each in value)
    return value


def of_library(name: str, library: Any, functional: Any) -> Any:
    """The function of this name in TinyTorch or PyTorch: of the module, or a method."""
    if name.startswith("F."):
        return getattr(functional, name[2:], None)
    found = getattr(library, name, None)  # `torch.float` is a dtype, and a method
    return found if callable(found) else getattr(library.Tensor, name, None)


OURS = (tinytorch, F)
