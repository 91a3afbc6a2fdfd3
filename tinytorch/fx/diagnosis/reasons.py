"""Why a tracer gave up: the user's line, the reason in plain words, and what to do."""

from __future__ import annotations

import linecache
import re
import sys
import sysconfig
import traceback
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import torch
import torch.fx

TORCH = str(Path(torch.__file__).parent)
OWN = str(Path(__file__).parent.parent)  # tinytorch/fx
STDLIB = sysconfig.get_paths()["stdlib"]
SITE = sysconfig.get_paths()["purelib"]


@dataclass(frozen=True)
class Line:
    """A line of source.

    Attributes:
        file: that contains it.
        number: from 1.
        text: the line itself.
    """

    file: str
    number: int
    text: str

    def __str__(self) -> str:
        return f"{self.file}:{self.number}: {self.text}"


@dataclass(frozen=True)
class Reason:
    """Why something cannot be traced, or is traced wrong.

    Attributes:
        text: the reason in plain words.
        fix: what to do.
        line: where, if it is known.
        error: the tracer's own words, if it raised.
    """

    text: str
    fix: str
    line: Line | None = None
    error: str = ""

    def __str__(self) -> str:
        where = f" at {self.line}" if self.line else ""
        return f"{self.text}{where}\n  fix: {self.fix}" + (
            f"\n  error: {self.error}" if self.error else ""
        )


VALUE = (
    "Python asks for the value of a tensor, which is not known while tracing",
    "compute the choice with torch.where or torch.cond, or take it out of the model; a value that "
    "follows from an input which stays (such as sizes) is known if that is named in constants=; "
    "with guarded=True the graph is of the value of the example, and checks it",
)
CHECKPOINT_OFF = (
    "turn off torch.utils.checkpoint (gradient_checkpointing_disable() in transformers): "
    "tinytorch.fx.checkpoint does that in the graph"
)
#: What is searched in the text of an error, and what it means. The first match counts.
PATTERNS: list[tuple[str, str, str]] = [
    (r"in output, which is not a known type|Unsupported input type",
     "the model takes or returns an object that is neither a tensor nor a tuple, list or dict",
     "take and return tensors in tuples, lists and dicts (models of transformers do with "
     "use_cache=False), or register the class: torch.utils._pytree.register_pytree_node"),
    (r"use_reentrant=True",
     "torch.utils.checkpoint with use_reentrant=True gives no gradients to torch.autograd.grad",
     f"{CHECKPOINT_OFF}; GraphOptimizer takes use_reentrant=False, too"),
    (r"fake tensor in the exported program",
     "the model makes a tensor that torch.export takes for a constant of the trace, as x.data",
     "write x.detach() instead of x.data, or use capture_joint or capture_step"),
    (r"functorch tensor|inside a function being vmapped|BatchedTensor|GradTrackingTensor",
     "a tensor of torch.vmap or torch.func (grad, jvp, vjp) is used outside of the function that "
     "it belongs to, or becomes a constant of the graph",
     "let the function return what it makes, and give it the parameters as arguments (functional_"
     "call); capture_joint and capture_step take more of these than capture_forward"),
    (r"_local_scalar_dense|data-dependent|GuardOnDataDependent|Could not guard|aten\.item|"
     r"control flow on values|used in control flow|cannot be converted to|"
     r"Tensor\.item|Tensor\.tolist|to a Python (boolean|integer|float|number)|"
     r"its data is not allocated yet", *VALUE),  # the last: an index that is a tuple of tensors
    (r"symbolically traced variables cannot be used as inputs to control flow",
     "an `if` or `while` depends on a tensor or its shape, of which symbolic_trace knows nothing",
     "use export or capture_forward, which know shapes; for values torch.where or torch.cond"),
    (r"'len' is not supported|object cannot be interpreted as an integer|cannot be interpreted as",
     "a size is used as a Python number, which symbolic_trace does not know",
     "use export or capture_forward, which know shapes"),
    (r"co_varnames", "symbolic_trace cannot read the arguments of a forward that a decorator wraps",
     "use export or capture_forward, which call the model as you do"),
    (r"Proxy object cannot be iterated|not iterable|cannot unpack|\*args",
     "symbolic_trace cannot iterate over what it does not know the length of",
     "use export or capture_forward, or name each argument and write torch.unbind"),
    (r"numpy|Numpy", "the model leaves torch for NumPy, where nothing is recorded",
     "write it with torch functions"),
    (r"LeakedError|fake tensor.*kept|non-Fake|real Tensors|FakeTensorMode",
     "the model keeps tensors from one call to the next, and the graph keeps those of the trace",
     "keep them in a buffer (register_buffer) and change it in place, or pass them in and out"),
    (r"nonzero|dynamic_output_shape|DynamicOutputShape|unbacked",
     "the shape of a result depends on values (nonzero, a boolean mask as index)",
     "keep the shape fixed: torch.where, or multiply by the mask"),
    (r"[Nn]ot supported for autograd\.Function|torch\.autograd\.Function|"
     r"functorch.*autograd function", "a custom autograd.Function is not followed by this tracer",
     "write the gradient with torch.library.register_autograd, or use capture_joint"),
    (r"torch\.jit\.frontend|NotSupportedError|TorchScript|Compiled functions can't|"
     r"Unknown type name|Expected a value of type|attribute lookup is not defined",
     "TorchScript compiles only a part of Python, and this is outside of it",
     "use export or torch.compile"),
    (r"in-place operation|in place", "an input of the model is written in place",
     "write to a copy: x = x.clone()"),
    (r"[Mm]utat", "something that was captured from outside is changed by the model",
     "return it as an output, or register it as a buffer"),
    (r"side effect|graph break|Unsupported|skip(ped)? function",
     "Python code here cannot be recorded in a graph",
     "take it out of the forward; with torch.compile it splits the graph"),
]  # fmt: skip
UNKNOWN = ("the tracer raised an error", "see the error itself")


def explain(error: BaseException) -> Reason:
    """The reason behind an error of a tracer or of a model under one."""
    own = getattr(error, "reason", None)  # of one of our own errors
    if isinstance(own, Reason):
        return own
    message = f"{type(error).__name__}: {error}"
    short = next((line for line in str(error).splitlines() if line.strip()), "")
    found = ((text, fix) for pattern, text, fix in PATTERNS if re.search(pattern, message))
    text, fix = next(found, UNKNOWN)
    return Reason(text, fix, user_line(error), f"{type(error).__name__}: {short.strip()[:300]}")


def is_out_of_memory(error: BaseException) -> bool:
    """Whether there was no memory left, in Python or in PyTorch; for the stack of a thread, too."""
    known = isinstance(error, (MemoryError, torch.OutOfMemoryError))
    return known or re.search("can't (allocate memory|start new thread)", str(error)) is not None


def user_line(error: BaseException) -> Line | None:
    """The innermost line of code that is neither torch's, nor ours, nor the standard library's."""
    found = None
    for frame in _frames(error):
        if _is_users(frame.filename):
            found = Line(frame.filename, frame.lineno or 0, (frame.line or "").strip())
    return found or _line_of_node(error)


def calling_line(beyond: str = "\0") -> Line | None:
    """The line of the user's that runs now.

    Args:
        beyond: functions whose names begin so are passed over: their callers are meant.
    """
    for frame, number in traceback.walk_stack(sys._getframe(1)):  # innermost first
        file = frame.f_code.co_filename
        if _is_users(file) and not frame.f_code.co_name.startswith(beyond):
            return Line(file, number, linecache.getline(file, number, frame.f_globals).strip())
    return None


def line_that_calls(file: str) -> Line | None:
    """The line of the user's that runs now, and calls what is defined in a file; None if none."""
    is_called = False
    for frame, number in traceback.walk_stack(sys._getframe(1)):  # innermost first
        own = frame.f_code.co_filename
        is_called = is_called or own == file
        if is_called and _is_users(own):
            return Line(own, number, linecache.getline(own, number, frame.f_globals).strip())
    return None


def _line_of_node(error: BaseException) -> Line | None:
    """The line that made the node at which a tracer's own pass over the graph has failed."""
    for frame, _ in reversed(list(traceback.walk_tb(error.__traceback__))):
        node = frame.f_locals.get("node")  # as all of those loops call it
        if not isinstance(node, torch.fx.Node):
            continue
        if line := line_of(node):
            return line
    return None


def line_of(node: torch.fx.Node) -> Line | None:
    """The user's line that made a node, or one that uses it."""
    for each in (node, *node.users):
        text = each.meta.get("stack_trace") or ""
        stack = re.findall(r'File "(.+)", line (\d+), in .*\n\s*(.*)', text)
        users = [Line(f, int(n), line.strip()) for f, n, line in stack if _is_users(f)]
        if users:
            return users[-1]
    return None


def _is_users(file: str) -> bool:
    if file.startswith("<"):
        return False
    if file.startswith(SITE):
        return not file.startswith(TORCH)
    return not file.startswith((OWN, TORCH, STDLIB))


def _frames(error: BaseException) -> Iterator[traceback.FrameSummary]:
    """Frames of an error, outermost first; dynamo keeps those of the traced code apart."""
    if error.__cause__ is not None:
        yield from _frames(error.__cause__)
    yield from traceback.extract_tb(error.__traceback__)
    yield from getattr(error, "real_stack", None) or ()
