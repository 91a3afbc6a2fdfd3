"""Fingerprints: what is renamed or laid out anew is the same, what is moved is still found."""

from __future__ import annotations

from hypothesis import given, strategies as st

from tito.course.similar.tokens import Token, tokens
from tito.course.similar.winnow import Span, fingerprints

SOLUTION = """
def normalize(values, dim):
    '''Bring to unit length.'''
    total = 0.0
    for value in values:
        total += value * value
    if total == 0:
        return list(values)
    return [value / total ** 0.5 for value in values]
"""
RENAMED = """
def normalize(xs: list[float], dim: int) -> list[float]:
    # sum of squares
    s = 0.0
    for x in xs:
        s += (x * x)

    if s == 0: return list(xs)
    return [x / s ** 0.5
            for x in xs]
"""


def test_names_comments_annotations_and_layout_do_not_count() -> None:
    texts = [[token.text for token in tokens(source)] for source in (SOLUTION, RENAMED)]
    assert texts[0] == texts[1]
    assert fingerprints(tokens(SOLUTION)).keys() == fingerprints(tokens(RENAMED)).keys()
    assert texts[0] == [token.text for token in tokens(f"{SOLUTION}\n%timeit normalize([1], 0)")]


def test_what_is_computed_counts() -> None:
    first = {token.text for token in tokens("np.sum(x, axis=0)")}
    assert first == {"Expr", "Call", "Attribute sum", "Name", "keyword axis", "int 0"}
    assert tokens("x + 1") != tokens("x + 2")
    assert tokens("x + 1") != tokens("x - 1")
    assert [t.text for t in tokens("x = 5")] == [t.text for t in tokens("y = 700")]


def test_what_is_no_python_has_no_tokens() -> None:
    assert tokens("def f(:\n") == []
    assert tokens("x = " + "(" * 5000) == []
    assert tokens("-" * 30_000 + "1") == []
    assert fingerprints([]) == {}


def test_a_fingerprint_knows_its_lines() -> None:
    found = fingerprints([Token(str(i), i) for i in range(1, 21)], span=4, window=3)
    places = [place for all_places in found.values() for place in all_places]
    assert all(place.last - place.first == 3 for place in places)
    assert len(places) >= 5
    assert fingerprints([Token("a", 3), Token("b", 4)]).popitem()[1] == [Span(3, 4)]


letters = st.lists(st.sampled_from("abc"), max_size=30)


runs = st.lists(st.sampled_from("abc"), min_size=8, max_size=20)


@given(letters, letters, letters, letters, runs)
def test_a_shared_run_is_found_wherever_it_is(a, b, c, d, run) -> None:
    """The guarantee of the paper: a run of k + w - 1 tokens has a fingerprint in common."""
    texts = ([*a, *run, *b], [*c, *run, *d])
    first, second = (fingerprints([Token(x, 1) for x in text], 5, 4) for text in texts)
    assert first.keys() & second.keys()
