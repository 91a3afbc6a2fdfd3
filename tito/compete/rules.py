"""The kernel division's rules, read from an entry's syntax tree: no library does the work.

They are rules and no wall: the wall is the sandbox. What they refuse is calling the product that
one is to beat (BLAS through NumPy, SciPy, ctypes), and the ways around such a list. The worker
holds the same list at run time. In the open division everything is allowed.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator

MODULES = frozenset(
    {"__future__", "collections", "dataclasses", "functools", "itertools", "math", "numba", "numpy",
     "typing"}
)  # fmt: skip
#: Functions of NumPy that end in BLAS or LAPACK.
BLAS = frozenset(
    {"dot", "matmul", "inner", "vdot", "outer", "einsum", "einsum_path", "tensordot", "convolve",
     "correlate", "cov", "corrcoef", "linalg", "matvec", "vecmat", "vecdot", "polyfit", "polymul"}
)  # fmt: skip
#: Ways to foreign code, to files, or around this list.
WAYS_ROUND = frozenset(
    {"ctypeslib", "ctypes", "cffi", "extending", "core", "lib", "_core", "objmode", "f2py",
     "distutils", "testing", "memmap", "fromfile", "tofile", "save", "savez", "load", "loadtxt",
     "genfromtxt", "savetxt", "DataSource", "sys", "os", "cfunc", "carray", "farray", "cuda",
     "get_include", "f_globals", "f_locals", "f_builtins", "f_back", "gi_frame", "tb_frame",
     "modules", "from_dlpack", "builtins", "importlib", "import_module", "inspect", "FunctionType",
     "CodeType", "subprocess", "methodcaller", "attrgetter", "pickle", "socket", "threading",
     "multiprocessing", "frombuffer", "as_strided", "stride_tricks", "matrix", "asmatrix", "bmat",
     "innerproduct", "outerproduct", "imatmul", "eval", "exec", "get_type_hints", "ForwardRef",
     "evaluate_forward_ref", "singledispatch", "singledispatchmethod", "update_wrapper", "wraps",
     "gi_code", "cr_code", "ag_code", "cr_frame", "ag_frame", "f_code", "func_code",
     "ExternalFunction", "ExternalFunctionPointer", "WrapperAddressProtocol", "base", "attrname",
     "make_dataclass"}
)  # fmt: skip
BUILTINS = frozenset(
    {"breakpoint", "compile", "delattr", "dir", "eval", "exec", "getattr", "globals", "help",
     "input", "locals", "memoryview", "open", "setattr", "vars", "__import__", "__builtins__"}
)  # fmt: skip
#: Modules below those that may be imported, beside what these call public.
PARTS = frozenset({"collections.abc", "numba.types", "numba.typed", "numpy.typing"})
METHODS = frozenset({"__init__", "__call__", "__post_init__", "__name__", "__doc__"})
#: What a class may define beside these. NumPy takes an address from `__array_interface__`.
PROTOCOLS = frozenset(
    {"__len__", "__getitem__", "__setitem__", "__contains__", "__iter__", "__next__", "__eq__",
     "__hash__", "__repr__", "__enter__", "__exit__"}
)  # fmt: skip


def broken_rules(tree: ast.AST) -> Iterator[str]:
    """Each place where the kernel division's rules are broken, as a sentence with its line.

    >>> next(broken_rules(ast.parse("c = a @ b")))
    'line 1: the operator @ calls the product that this event is about'
    """
    for node in ast.walk(tree):
        for what in _broken(node):
            yield f"line {getattr(node, 'lineno', 1)}: {what}"


class OwnNames(ast.NodeTransformer):
    """Makes `self.dot` the entry's own method, whatever `self` is: `self.dot_of_self`, which no
    array has. Methods keep their names as well, by which the event calls them."""

    def visit_Attribute(self, node: ast.Attribute) -> ast.Attribute:
        self.generic_visit(node)
        node.attr += "_of_self" * _is_own(node)
        return node

    def visit_ClassDef(self, node: ast.ClassDef) -> ast.ClassDef:
        self.generic_visit(node)
        stored = [t for n in node.body if isinstance(n, ast.Assign) for t in n.targets]
        made = {getattr(n, "name", getattr(n, "id", "")) for n in [*node.body, *stored]} & BLAS
        own = "\n".join(f"{name}_of_self = {name}" for name in sorted(made))
        node.body += ast.parse(own).body
        return node


def _broken(node: ast.AST) -> Iterator[str]:
    if isinstance(node, ast.Import):
        yield from (_module(a.name) for a in node.names if not _allowed(a.name))
    elif isinstance(node, ast.ImportFrom):
        if node.level or not _allowed(node.module or ""):
            yield _module(node.module or ".")
        yield from (_name(a.name) for a in node.names if _forbidden(a.name) or a.name == "*")
    elif isinstance(node, ast.Attribute) and _forbidden(node.attr) and not _is_own(node):
        yield _name(node.attr)
    elif isinstance(node, ast.Name) and (node.id in BUILTINS or _forbidden(node.id, free=True)):
        yield _name(node.id)
    elif isinstance(node, (ast.BinOp, ast.AugAssign)) and isinstance(node.op, ast.MatMult):
        yield "the operator @ calls the product that this event is about"
    elif isinstance(node, (ast.FunctionDef, ast.ClassDef)):
        if _forbidden(node.name, free=True) and node.name not in PROTOCOLS:
            yield _name(node.name)
    elif isinstance(node, (ast.AsyncFunctionDef, ast.Global, ast.MatchClass)):  # case x(dot=f)
        yield "async functions, `global` and patterns of classes are not for kernels"


def _allowed(module: str) -> bool:
    parts = module.split(".")
    return parts[0] in MODULES and not any(_forbidden(p) for p in parts[1:])


def _is_own(node: ast.Attribute) -> bool:
    return isinstance(node.value, ast.Name) and node.value.id == "self" and node.attr in BLAS


def _forbidden(name: str, *, free: bool = False) -> bool:
    """Whether a name may not be used; of a variable only those with underscores count."""
    if name.startswith("__") and name.endswith("__"):
        return name not in METHODS
    return not free and name in BLAS | WAYS_ROUND


def _module(name: str) -> str:
    return f"{name!r} is not among what may be imported: {', '.join(sorted(MODULES))}"


def _name(name: str) -> str:
    if name in BLAS:
        return f"{name!r} calls a library: the kernel division is about your own loops"
    return f"{name!r} is not allowed in the kernel division"
