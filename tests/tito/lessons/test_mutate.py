"""Which changes are made to a solution, and which never are."""

from __future__ import annotations

import ast

import pytest

from tito.lessons.mutate import mutants_of


def changes(body: str, head: str = "def f(x, y=1, *, dim=0):") -> list[str]:
    """What is changed in a function, without its name."""
    lines = "".join(f"    {line}\n" for line in body.split("\n"))
    cell = f"{head}\n    ### BEGIN SOLUTION\n{lines}    ### END SOLUTION"
    mutants = mutants_of("e", cell)
    assert len({m.source for m in mutants}) == len({m.change for m in mutants}) == len(mutants)
    for mutant in mutants:
        ast.parse(mutant.source)
    return [m.change.removeprefix("f: ") for m in mutants if "early return" not in m.change]


@pytest.mark.parametrize(
    ("body", "expected"),
    [
        ("x < y", ["x < y -> nothing", "x < y -> x <= y", "x < y -> x >= y"]),
        ("return x == y", ["x == y -> x != y"]),
        ("return x - y", ["x - y -> x + y", "x - y -> y - x"]),
        ("return x + y", ["x + y -> x - y"]),
        ("return x @ y", ["x @ y -> x * y", "x @ y -> y @ x"]),
        ("return x * 2.0", ["x * 2.0 -> x / 2.0", "x * 2.0 -> x * 4.0", "x * 2.0 -> x * -2.0"]),
        ("return x[-1]", ["x[-1] -> x[0]", "x[-1] -> x[-2]"]),
        ("return not y", ["not y -> y"]),
        ("return x and y", ["x and y -> x or y", "x and y -> y"]),
        ("return y if x else 0",
         ["y if x else 0 -> y", "y if x else 0 -> 0",
          "y if x else 0 -> y if x else 1", "y if x else 0 -> y if x else -1"]),
        ("return y.detach()", ["y.detach() -> y"]),
        ("return x.sum(dim, keepdim=True)",
         ["x.sum(dim, keepdim=True) -> x.sum(dim)", "x.sum(dim, keepdim=True) -> dim",
          "x.sum(dim, keepdim=True) -> x.sum(dim, keepdim=False)"]),
        ("return g(x, y)", ["g(x, y) -> g(y, x)"]),
        ("return apply(ops.div, x, y)",
         ["apply(ops.div, x, y) -> apply(ops.div, y, x)"]),
        ("return [v for v in x if v]",
         ["[v for v in x if v] -> [v for v in x]"]),
        ("if x:\n    return y\nreturn x", ["if x: -> if True:", "if x: -> if False:",
                                           "return y -> nothing"]),
        ("if x:\n    raise ValueError(f'{x} is {y - 1}')\nreturn y",
         ["if x: -> if True:", "if x: -> if False:",
          "raise ValueError(f'{x} is {y - 1}') -> nothing"]),
        ("while x:\n    continue", ["while x: -> once", "while x: -> nothing",
                                    "continue -> break", "continue -> nothing"]),
        ("x += y", ["x += y -> nothing", "x += y -> x -= y", "x += y -> x = y"]),
        ("x.grad = y", ["x.grad = y -> nothing"]),
        ("z = y", []),
        ("x = y", ["x = y -> nothing"]),
        ("with no_grad():\n    g(x)", ["with no_grad(): -> only its body", "g(x) -> nothing",
                                      "g(x) -> x"]),
        ("try:\n    g()\nfinally:\n    h()",
         ["try: -> only its body", "g() -> nothing", "h() -> nothing"]),
    ],
)  # fmt: skip
def test_changes(body: str, expected: list[str]) -> None:
    assert changes(body) == expected


@pytest.mark.parametrize(
    "body",
    [
        "return max(x, y)",
        "return apply(ops.add, x, y)",
        "assert x == 1",
        "return zip(x, y, strict=True)",
        "return f'{x + 1}'",
    ],
)
def test_what_is_as_right_or_no_matter_stays(body: str) -> None:
    left = [c for c in changes(body) if not c.startswith("zip(x, y, strict=True) -> zip(y, x")]
    assert left == []


def test_only_what_a_student_writes_is_changed() -> None:
    cell = (
        "class A(Base):\n    def f(self, x, n=3):\n        '''n + 1'''\n"
        "        ### BEGIN SOLUTION\n        return x\n        ### END SOLUTION\n\n"
        "    def __repr__(self):\n        return 1 + 2"
    )
    assert mutants_of("e", cell) == []
    cell = cell.replace("return x", "return x + n")
    found = mutants_of("e", cell)
    assert [m.change for m in found] == ["A.f: early return of x", "A.f: x + n -> x - n"]
    assert "return 1 + 2" in found[1].source and "return x - n" in found[1].source


def test_gradient_lines_and_equal_changes_have_names() -> None:
    cell = "### BEGIN SOLUTION\ngradient('mul', a=lambda g, b: g * b, b=lambda g, a: g * a)\n"
    found = [m.change for m in mutants_of("e", f"{cell}### END SOLUTION")]
    assert 'gradient("mul"): g * b -> g / b' in found
    assert 'gradient("mul"): g * a -> g / a' in found
    assert changes("g(x)\ng(x)") == [
        "g(x) -> nothing", "g(x) -> x", "g(x) -> nothing (2)", "g(x) -> x (2)"
    ]  # fmt: skip
