"""What only IPython understands, and Python that looks like it."""

from __future__ import annotations

import time

import pytest

from tito.lessons.magic import plain


@pytest.mark.parametrize(
    ("source", "left"),
    [
        ("%matplotlib inline\nx = 1", "pass\nx = 1"),
        ("def f():\n    %time g()\n    !ls\n    return 1\n%timeit f()", None),
        ("x = 1\nlen?\nx.real??\n?len\nfiles = !ls\nt = %timeit -o f()", None),
        ("%%time\nx = 1", "pass\nx = 1"),
        ("\n%%timeit -n 3\nx = 1\n%time x", "\npass\nx = 1\npass"),
        ("%%bash\nls", ""),
        ("def f():\r\n    %time 1\r\n    return 1\r\n", "def f():\n    pass\n    return 1\n"),
        ("%%html\n<b>", ""),
        ("%time f(\ndef g(:\n", "pass\ndef g(:\n"),
    ],
)
def test_lines_of_ipython_are_left_out(source: str, left: str | None) -> None:
    found = plain(source)
    if left is not None:
        assert found == left
    else:
        compile(found, "cell", "exec")
        assert found.count("\n") == source.count("\n") and "pass" in found


@pytest.mark.parametrize(
    "source", ["x = (5\n     % 3)", "y = a if b else 'what?'", "x = 1 +\n", "x = '\x00'", "(" * 500]
)
def test_python_stays_as_it_is(source: str) -> None:
    assert plain(source) == source


def test_a_cell_that_is_long_does_not_hold_up_the_grader() -> None:
    began = time.thread_time()
    plain("%x\n" * 16_000)
    plain("%x\n" * 1_000_000)
    assert time.thread_time() - began < 20
