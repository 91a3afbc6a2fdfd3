"""What the kernel division refuses to read."""

from __future__ import annotations

import ast
import codecs
from pathlib import Path

import pytest

from tito.compete.entry import MAX_BYTES, EntryError, read_entry
from tito.compete.event import BUILT_IN, list_events, load_event
from tito.compete.rules import broken_rules

BROKEN = [
    "import os",
    "import scipy.linalg",
    "import ctypes",
    "import numpy.linalg",
    "from numpy import dot as product",
    "from numpy import *",
    "from . import helper",
    "import tinytorch",
    "from numba.core import cgutils",
    "from numba import extending",
    "import numba.extending",
    "c = a @ b",
    "a @= b",
    "c = np.dot(a, b)",
    "c = a.dot(b)",
    "c = np.einsum('ij,jk', a, b)",
    "np.linalg.multi_dot([a, b])",
    "np.ctypeslib.load_library('blas', '.')",
    "f = getattr(np, 'd' + 'ot')",
    "eval('a')",
    "exec('a = 1')",
    "open('/etc/passwd')",
    "__import__('os')",
    "().__class__.__base__.__subclasses__()",
    "np.__dict__['dot'](a, b)",
    "globals()['np']",
    "numba.misc.os.system('true')",
    "np.core.multiarray.dot(a, b)",
    "functools.builtins.open('x')",
    "f.__globals__['np']",
    "import operator",
    "with numba.objmode(): pass",
    "g = f.__code__.replace()",
    "np.load('x.npy', allow_pickle=True)",
    "np.asmatrix(a) * np.asmatrix(b)",
    "np.ma.innerproduct(a, b.T)",
    "dataclasses.re.enum.bltns.eval('a')",
    "from typing import get_type_hints",
    "functools.update_wrapper(f, np.poly, (), ('__globals__',))",
    "match f:\n    case object(__globals__=g): pass",
    "(x.y for x in z).gi_code.replace(co_names=('__globals__',))",
    "njit(f).func_code",
    "class A:\n    def dot(self, a): return super().dot(a)",
    "self.lib",
    "f = numba.types.ExternalFunction('cblas_sgemm', numba.types.void())",
    "from numba.types import ExternalFunctionPointer",
    "class A(numba.types.WrapperAddressProtocol): pass",
    "class A:\n    @property\n    def __array_interface__(self): return {}",
    "class A:\n    def __array_ufunc__(self, ufunc, *rest): return ufunc",
    "dataclasses.make_dataclass('A', ['__array_' + 'interface__'])",
    "A.x.attrname = '__array_' + 'interface__'",
    "np.ndarray((3, 3), np.float32, a.base, 4096)",
]


@pytest.mark.parametrize("code", BROKEN)
def test_ways_to_a_library_are_refused(code: str) -> None:
    assert list(broken_rules(ast.parse(code)))


@pytest.mark.parametrize(
    "code",
    [
        "import numpy as np\nfrom numba import njit, prange, types",
        "class A:\n    def __init__(self):\n        self.buffer = np.empty((3, 4), np.float32)",
        "c[i, j] += a[i, k] * b[k, j]",
        "class A:\n    def matmul(self, a): ...\n    def f(self, a): return self.matmul(a)",
        "d = {}\nd[a.shape] = np.ascontiguousarray(a.T)",
        "class A:\n    def __getitem__(self, base): return self.x[base]",
    ],
)
def test_ordinary_kernels_are_not(code: str) -> None:
    assert list(broken_rules(ast.parse(code))) == []


@pytest.mark.parametrize("name", list_events())
def test_every_starter_is_an_entry_of_its_event(name: str) -> None:
    event = load_event(name)
    entry = read_entry(BUILT_IN / name / "starter.py")
    assert entry.event == name
    entry.check_rules(event.division)


def test_a_mark_of_the_byte_order_is_no_part_of_an_entry(tmp_path: Path) -> None:
    file = tmp_path / "mine.py"
    text = "# tito: event = matmul\r\nclass A: pass\r\n"
    file.write_bytes(codecs.BOM_UTF8 + text.encode())  # as Windows' Notepad saves it
    entry = read_entry(file)
    assert (entry.text, entry.event, entry.class_name) == (text, "matmul", "A")


def test_what_is_no_entry_is_said(tmp_path: Path) -> None:
    file = tmp_path / "mine.py"
    for data, said in [
        (b"\xff\xfe", "no UTF-8 text"),
        (b"class A(:", "no Python"),
        (b"x = 1", "it has none"),
        (b"class A: pass\nclass B: pass", "it has A, B"),
        (b"#" * (MAX_BYTES + 1), "at most"),
        (b"(" * 5000, "no Python"),
        (b"x = f'" + b"{y}" * 80_000 + b"'\nclass A: pass", "more than 5,000 braces"),  # 20 s
        (b"class " + b"A" * 201 + b": pass", "at most 200 letters"),
    ]:
        file.write_bytes(data)
        with pytest.raises(EntryError, match=said):
            read_entry(file)
    with pytest.raises(EntryError, match="cannot be read"):
        read_entry(tmp_path / "absent.py")
    file.write_text("import os\nclass A:\n    x = open('a')\n")
    entry = read_entry(file)
    assert entry.event is None and len(entry.sha256) == 64
    entry.check_rules("open")
    with pytest.raises(EntryError, match=r"line 1: 'os' is not among(.|\n)*line 3: 'open'"):
        entry.check_rules("kernel")
