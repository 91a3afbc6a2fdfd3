"""Test cells rewritten: what is sent, what stays, and which expected values are the reference's."""

from __future__ import annotations

import pytest

from tito.course.exam.instrument import Instrumented, InstrumentError, Source, instrument, loaded

IMPORTS = "import numpy as np\nfrom tinytorch.functions import exp\n"
SOLUTION = "def f(x):\n    inner = x\n    return inner\n\nclass Layer:\n    pass\n"


def cell(text: str, solution: str = SOLUTION) -> Instrumented:
    """A test cell below the given and the student's cells."""
    return instrument(
        [
            Source("given", "given", IMPORTS),
            Source("exercise", "solution", solution),
            Source("test", "test", "from tito.checks import check, close, equal, raises\n" + text),
        ]
    )[0]


def sent(text: str, **options: object) -> str:
    """The lines of the student's version below its import."""
    return "\n".join(cell(text).for_student(**options).split("\n")[1:])  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("check", "line"),
    [
        ("equal(f(2), 4)", "__tito__.got(0, f(2))"),
        ("equal(expected=4, got=f(2), hint='h')", "__tito__.got(0, f(2))"),
        ("close(f(2), np.exp(2), rtol=1e-3)", "__tito__.got(0, f(2))"),
        ("equal(f(2), f(3))", "__tito__.both(0, f(2), f(3))"),
        ("check(f(2) > 1, 'must be')", "__tito__.truth(0, f(2) > 1)"),
        ("assert f(2) > 1, 'must be'", "__tito__.truth(0, f(2) > 1)"),
        ("raises(ValueError, f, 2, match='no', dim=1)", "__tito__.outcome(0, f, 2, dim=1)"),
        ("raises(ValueError, lambda: f(2))", "__tito__.outcome(0, lambda: f(2))"),
    ],
)
def test_only_what_the_students_code_makes_is_sent(check: str, line: str) -> None:
    assert sent(check) == line


def test_the_reference_runs_the_whole_check() -> None:
    text = cell("equal(f(2), 4, hint='h')\nassert f(2)").for_reference()
    assert "__tito__.key(0, 'equal', f(2), 4, hint='h')" in text
    assert "__tito__.key(1, 'check', f(2), '')" in text


@pytest.mark.parametrize(
    ("lines", "modes"),
    [
        ("x = np.ones(3)\nequal(f(x), x * 2)", ["fixed"]),
        ("y = f(1)\nequal(f(2), y)", ["free"]),
        ("layer = Layer()\nw = layer.weight\nequal(f(2), w @ w)", ["free"]),
        ("found = []\nfound.append(f(1))\nequal(f(2), found[0])", ["free"]),
        ("for k in range(3):\n    equal(f(k), 2 * k)", ["fixed"]),
        ("for k in f(3):\n    equal(f(k), 2 * k)", ["free"]),
        ("equal(f(2), [exp(a) for a in range(3)])", ["fixed"]),
        ("equal(f(2), [a for a in f(3)])", ["free"]),
        ("def want(a):\n    return a + 1\nequal(f(2), want(3))", ["fixed"]),
        ("def want(a):\n    return f(a)\nequal(f(2), want(3))", ["free"]),
        ("equal(f(2), unknown)", ["free"]),
        ("inner = 3\nequal(f(2), inner)", ["fixed"]),
        ("if (n := f(1)):\n    equal(f(2), n)", ["free"]),
        # numbers from a generator that the student's code may have drawn from
        ("x = tinytorch.randn(3)\nequal(f(2), x)", ["fixed"]),
        ("a = f(1)\nx = tinytorch.randn(3)\nequal(f(2), x)", ["free"]),
        ("a = f(1)\nx = tinytorch.randn(3, generator=g())\ndel a", None),
        ("a = f(1)\ntinytorch.manual_seed(0)\nx = tinytorch.randn(3)\nequal(f(2), x)", ["fixed"]),
        ("a = f(1)\nx = np.random.default_rng(0).normal()\nequal(f(2), x)", ["free"]),
    ],
)
def test_an_expected_value_is_the_references_unless_it_depends(
    lines: str, modes: list[str] | None
) -> None:
    if modes is None:
        with pytest.raises(InstrumentError, match="makes no check"):
            cell(lines)
    else:
        assert [site.mode for site in cell(lines).sites] == modes


def test_each_test_cell_starts_afresh() -> None:
    sources = ["x = f(1)\nequal(f(2), x)", "x = 3\nequal(f(2), x)"]
    cells = [
        Source(str(i), "test", "from tito.checks import equal\n" + s) for i, s in enumerate(sources)
    ]
    found = instrument([Source("exercise", "solution", SOLUTION), *cells])
    assert [each.sites[0].mode for each in found] == ["free", "fixed"]


def test_what_only_the_expected_value_needed_goes_with_it() -> None:
    text = "x = 3\nwanted = x * 2\nmore = wanted + 1\nequal(f(x), more)"
    assert sent(text, needed=set()) == "x = 3\n__tito__.got(0, f(x))"
    assert "wanted = x * 2" in sent(text, needed={"wanted"})
    assert "more = wanted + 1" in sent(text)


def test_objects_that_are_no_data_are_compared_where_they_are() -> None:
    assert (
        sent("equal(f(2), np.sum)", local=frozenset([0]))
        == "__tito__.local(0, 'equal', f(2), np.sum)"
    )


@pytest.mark.parametrize(
    "name", ["import tito.checks\ntito.checks.", "from tito import checks\nchecks."]
)
def test_checks_are_known_by_their_module_as_well(name: str) -> None:
    assert cell(f"{name}equal(f(2), 4)").sites[0].check == "equal"


def test_a_cell_that_checks_nothing_is_refused_by_name() -> None:
    with pytest.raises(InstrumentError, match="test cell 'test' makes no check"):
        cell("print(f(2))")
    with pytest.raises(InstrumentError, match=r"line 2: equal needs .* written out"):
        cell("equal(*pair)")


def test_a_check_that_is_not_known_is_refused() -> None:
    with pytest.raises(InstrumentError, match=r"tito\.checks\.faster cannot be graded; known are"):
        cell("from tito.checks import faster\nfaster(f, 2)")


def test_loaded_are_the_names_that_are_read() -> None:
    assert loaded("a = b + c.d\ne(f=1)") == {"b", "c", "e"}
