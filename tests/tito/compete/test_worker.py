"""What a worker runs for a contestant, in this process: no sandbox is needed to count calls."""

from __future__ import annotations

import subprocess
import sys
from collections import Counter
from pathlib import Path
from types import FrameType
from typing import Any

import numpy as np
import pytest

from tinytorch.collector import collector_paused
from tito.compete.event import Event, Problem, list_events, load_event
from tito.compete.study import COPY
from tito.compete.worker import load_contestant, public
from tito.scripts import ROOT


def _called(event: Event, entry: Any, problem: Problem) -> Counter[str]:
    """How often each Python function runs in one call, kernels being chosen already."""
    event.task.call(entry, problem.inputs, problem.parameters)
    counts: Counter[str] = Counter()

    def count(frame: FrameType, what: str, _: Any) -> None:
        if what == "call":
            counts[f"{frame.f_code.co_filename}:{frame.f_code.co_qualname}"] += 1

    with collector_paused():  # which would run what others left to be finalised
        sys.setprofile(count)
        try:
            event.task.call(entry, problem.inputs, problem.parameters)
        finally:
            sys.setprofile(None)
    return counts


@pytest.mark.parametrize("name", list_events())
def test_a_copy_of_a_baseline_runs_what_the_baseline_runs(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One more function for each op was 1 % of a short chain: copies lost in 15 launches of 16."""
    event = load_event(name)
    problem = event.task.make(np.random.default_rng(5), event.cases[0])
    (tmp_path / "copy.py").write_text(COPY)
    both = {
        "division": "open", "class": "Copy", "threads": 1, "entry": str(tmp_path / "copy.py"),
    }  # fmt: skip
    monkeypatch.setitem(sys.modules, "entry", sys)  # put back what it was afterwards
    copy = load_contestant({**both, "baseline": None}, event.task)
    baseline = load_contestant({**both, "baseline": "numpy"}, event.task)
    assert _called(event, copy, problem) == _called(event, baseline, problem)


def test_the_optimized_baseline_is_our_kernels_and_no_library() -> None:
    """An event measures kernels: whose BLAS is faster on a machine is not the question."""
    task = load_event("matmul").task
    both = {"division": "open", "class": "", "threads": 1, "entry": ""}
    assert load_contestant({**both, "baseline": "optimized"}, task).own_kernels_only


def test_of_a_module_an_entry_sees_what_is_public() -> None:
    import dataclasses
    import typing

    import numba

    shown = public(np)
    assert shown.newaxis is None and shown.float32 is np.float32
    assert shown.ma.array is np.ma.array and shown.typing.NDArray
    assert public(numba).types.float32 is numba.float32 and public(numba).typed.List
    for module, names in (
        (np, ("_core", "matrixlib", "linalg", "ctypeslib", "asmatrix", "no_such")),
        (numba, ("np", "misc", "core", "cpython")),
        (dataclasses, ("_create_fn", "re", "types")),
        (typing, ("sys", "operator", "get_type_hints")),
    ):
        for name in names:
            with pytest.raises(AttributeError, match="for kernels") as error:
                getattr(public(module), name)
            assert error.value.obj is not module


def test_kernels_find_what_is_public(tmp_path: Path) -> None:
    """numba reads globals of a kernel, which here are such modules."""
    code = (
        "import numba\nimport math\nimport collections.abc\nimport numpy as np\n"
        "from numba.typed import List\n@numba.njit('f4[:](f4[:])', parallel=True)\n"
        "def f(a):\n    out = np.zeros_like(a)\n    for i in numba.prange(len(a)):\n"
        "        out[i] = math.sqrt(a[i]) + np.sum(a)\n    return out\n"
        "class Entry:\n    one = f(np.ones(3, np.float32))\n"
    )
    assert _restricted_run(tmp_path, "\ufeff" + code) == "[4.0, 4.0, 4.0]"


@pytest.mark.parametrize(
    ("code", "said"),
    [
        ("from numba.np.ufunc.parallel import CDLL", "numba has no 'np' for kernels"),
        ("from numba import misc", "numba has no 'misc' for kernels"),
        ("import numba.np.linalg", "numba has no 'np' for kernels"),
        ("import numba\nnumba.njit('a @ b')(lambda x: x)", "the operator @ calls the product"),
        ("import numba\nnumba.njit('f4.__class__')(lambda x: x)", "'__class__' is not allowed"),
        (
            "import numpy as np\nclass A:\n    def dot(self, a): return self.dot(a)\n"
            "A.dot(np.ones((2, 2)), np.ones((2, 2)))",
            "has no attribute 'dot_of_self'",
        ),
        ("type('A', (), {'__array_' + 'interface__': {}})", "takes 1 positional argument but 3"),
        ("type(type(1))", "the type of a class is not for kernels"),
        ("import numpy as np\nnp.poly1d([1, 2]) * np.poly1d([1, 2])", "np.convolve is a library"),
    ],
)
def test_ways_round_the_list_end_at_run_time(tmp_path: Path, code: str, said: str) -> None:
    assert said in _restricted_run(tmp_path, code)


def test_an_entry_calls_its_own_methods_by_their_names(tmp_path: Path) -> None:
    code = (
        "import numpy as np\nclass Base:\n    outer = staticmethod(np.add)\n"
        "    def dot(self, a, b): return self.outer(a, b)\n"
        "    def matmul(self, a, b): return self.dot(a, b)\n"
        "class Entry(Base):\n    one = Base().matmul(np.ones(2), 1)\n"
        "    def dot(self, a, b): return 2 * a\n"
        "class Entry(Entry):\n    one = Entry.one + Entry().matmul(np.ones(2), 1)\n"
    )
    assert _restricted_run(tmp_path, code) == "[4.0, 4.0]"


def _restricted_run(folder: Path, code: str) -> str:
    """What an entry's class has as `one`, or the error: in a process of its own, which stays with
    what was hidden in it."""
    (folder / "entry.py").write_text(code)
    probe = (
        "import sys\nfrom pathlib import Path\nfrom tito.compete import worker\n"
        "worker._hide_libraries()\nfound = worker._restricted(Path(sys.argv[1]))\n"
        "print(found['Entry'].one.tolist())"
    )
    command = [sys.executable, "-c", probe, str(folder / "entry.py")]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    return (done.stdout or done.stderr).strip()
