"""The field's words: no private name for what compiler and systems books have a word for."""

from __future__ import annotations

import ast
import io
import re
import tokenize
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
ROOMS = ("tinytorch", "tito", "benchmarks", "milestones", "modules", "examples", "docs", "tests")

# A part of an identifier, between underscores or capitals -> what to write.
NAMES = {
    "alone": "serial, only, unaliased",
    "apart": "disjoint, unaliased, distance",
    "bend": "nonlinearity, curvature",
    "born": "made, defined",
    "crew": "thread_pool",
    "dies": "last_use",
    "door": "dispatch, apply",
    "forget": "discard, evict, invalidate, eliminate_dead_stores",
    "forgets": "discard, evict, invalidate, eliminate_dead_stores",
    "kin": "the names of the ops",
    "patient": "timeout_s, or what is waited for",
    "race": "compare, autotune",
    "raced": "compared, autotuned",
    "rung": "tier, backend",
    "rungs": "tiers, backends",
    "stands": "is, replaces",
    "takes": "accepts, can_fuse",
    "team": "thread_pool",
    "witness": "warmed_up, or what is measured",
}
# A phrase in a comment, a docstring or a page -> what to write.
PHRASES = {
    r"\bstand(s|ing)? (in|at|behind|beside|before|between|nowhere|here|there)\b": "is in, is at",
    r"\bas (it|they) stands?\b": "as it is, as written, unchanged",
    r"\bwhat stands (here|there)\b": "This module defines ...",
    r"\band its kin\b": "the names, as in: exp, expm1 and sigmoid",
    r"\bmust have been told\b": "is an argument",
    r"\b(the|a|each|every|lowest|second) rungs?\b": "tier, backend",
    r"\bbegan_well\b": "warmed_up",
    r"\bwho waits spins\b": "a waiting thread spins",
}


def _files(*suffixes: str) -> list[Path]:
    found = [path for room in ROOMS for path in (ROOT / room).rglob("*") if path.suffix in suffixes]
    pages = [p for p in ROOT.glob("*.md") if p.suffix in suffixes]
    return [p for p in sorted(found + pages) if p != Path(__file__)]


def parts_of(name: str) -> set[str]:
    """The words of an identifier, in lower case.

    >>> sorted(parts_of("_runTwoAlone_f32"))
    ['alone', 'f', 'run', 'two']
    """
    return {word.lower() for word in re.findall(r"[A-Z]?[a-z]+|[A-Z]+(?![a-z])", name)}


def names_in(text: str) -> Iterator[tuple[int, str]]:
    """The line and the name of each function, class, argument and attribute that code defines."""
    for node in ast.walk(ast.parse(text)):
        match node:
            case ast.FunctionDef(name=name) | ast.AsyncFunctionDef(name=name):
                if not name.startswith("test_"):  # a sentence
                    yield node.lineno, name
            case ast.ClassDef(name=name):
                yield node.lineno, name
            case ast.arg(arg=name) | ast.Attribute(attr=name, ctx=ast.Store()):
                yield node.lineno, name
            case ast.Name(id=name, ctx=ast.Store()):
                yield node.lineno, name


def prose_in(text: str) -> str:
    """The comments and strings of code."""
    tokens = tokenize.generate_tokens(io.StringIO(text).readline)
    kinds = (tokenize.COMMENT, tokenize.STRING)
    return "\n".join(token.string for token in tokens if token.type in kinds)


def phrases_in(prose: str) -> Iterator[str]:
    """What is wrong with the phrases of a text."""
    joined = re.sub(r"\s+#?\s*", " ", prose)
    for pattern, better in PHRASES.items():
        for found in re.finditer(pattern, joined, re.IGNORECASE):
            yield f"{found[0]!r}: write {better}"


def test_private_words_are_found() -> None:
    code = "def _run_alone(rung):\n    # What stands here is short\n    x.forgets = 1\n"
    assert [name for _, name in names_in(code)] == ["_run_alone", "rung", "forgets"]
    assert all(parts_of(name) & NAMES.keys() for _, name in names_in(code))
    assert list(phrases_in(prose_in(code))) != []
    assert list(phrases_in("a stand-in stands for the exp and\n  its kin")) != []
    assert not list(phrases_in("a stand-in stands for it; the wheel stands still"))


@pytest.mark.parametrize("room", ["tinytorch", "tito"])
def test_names_are_those_of_the_field(room: str) -> None:
    found = [
        f"{path.relative_to(ROOT)}:{line}: {name}: write {NAMES[word]}"
        for path in (ROOT / room).rglob("*.py")
        for line, name in names_in(path.read_text(encoding="utf-8"))
        for word in sorted(parts_of(name) & NAMES.keys())
    ]
    assert not found, "\n".join(found)


@pytest.mark.slow
def test_phrases_are_plain_english() -> None:
    found = [
        f"{path.relative_to(ROOT)}: {problem}"
        for path in _files(".py", ".md")
        for text in [path.read_text(encoding="utf-8")]
        for problem in phrases_in(prose_in(text) if path.suffix == ".py" else text)
    ]
    assert not found, "\n".join(found)
