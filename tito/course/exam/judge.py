"""Decide, outside of the student's process, whether what it claims is right."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

import numpy as np

import tinytorch.errors  # noqa: F401  (its classes are looked up by name)
from tito import checks
from tito.course.exam.instrument import Site
from tito.course.exam.values import ClassName, ValueFormatError, decode

Claim = Mapping[str, Any]
ERROR_CHARACTERS = 600
UNWRITTEN = "builtins.NotImplementedError"  # of a stub: it counts only where it is asked for


@dataclass(frozen=True)
class TestKey:
    """A test cell with what is right.

    Attributes:
        source: what is sent to the student's process.
        expected: what the reference sent, in order.
        seconds: that it may take, if the cell has a limit of its own.
    """

    __test__ = False

    id: str
    visible: bool
    source: str
    sites: tuple[Site, ...]
    local: frozenset[int] = frozenset()
    expected: tuple[Claim, ...] = field(default=(), repr=False)
    seconds: float | None = None

    def as_json(self) -> dict[str, Any]:
        return {**asdict(self), "local": sorted(self.local)}

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> TestKey:
        sites = tuple(Site(**site) for site in data["sites"])
        local, expected = frozenset(data["local"]), tuple(data["expected"])
        return cls(**{**data, "sites": sites, "local": local, "expected": expected})


@dataclass(frozen=True)
class Verdict:
    """Did a test cell pass; if not, what to tell the student."""

    passed: bool
    message: str = ""


def judge(key: TestKey, result: Mapping[str, Any] | None, ended: str | None = None) -> Verdict:
    """The verdict on a test cell.

    Args:
        result: {"claims", "error"}; None if the cell did not come to its end.
        ended: why it did not.
    """
    if result is None:
        return Verdict(False, ended or "the test did not run")
    try:
        return _judged(key, result)
    except Exception as error:  # what it sent can be anything
        return Verdict(False, f"what it sent is no answer: {type(error).__name__}")


def _judged(key: TestKey, result: Mapping[str, Any]) -> Verdict:
    claims = [c for c in result["claims"] if isinstance(c.get("site"), int)]
    for index, site in enumerate(key.sites):
        mine = [c for c in key.expected if c["site"] == index]
        theirs = [c for c in claims if c["site"] == index]
        message = _site(site, index in key.local, theirs, mine)
        if message is not None:
            return Verdict(False, message)
    if result["error"] is not None:
        return Verdict(False, _error(result["error"]))
    for index, site in enumerate(key.sites):
        missing = _missing(key, index, claims)
        if missing:
            return Verdict(False, f"{site.call}: {missing}")
    return Verdict(True)


def _site(
    site: Site, local: bool, claims: Sequence[Claim], expected: Sequence[Claim]
) -> str | None:
    """What is wrong at a site; None if all that was claimed there is right."""
    same = all(each == expected[0] for each in expected)
    for i, claim in enumerate(claims):
        key = _key_for(i, len(claims), expected, same)
        if key is None:
            return f"{site.call}: this was not asked for"
        try:
            message = _claim(site, local, claim, key)
        except (ValueFormatError, TypeError) as error:  # TypeError: `close` got no numbers
            message = f"{site.call}: {error}"
        if message is not None:
            return message
    return None


def _key_for(index: int, count: int, expected: Sequence[Claim], same: bool) -> Claim | None:
    """The turn of the reference that a claim belongs to.

    A loop over something of the student's may take another number of turns; that is no fault as
    long as every turn expects the same.
    """
    if count <= len(expected):
        return expected[index]
    return expected[0] if expected and same else None


def _missing(key: TestKey, index: int, claims: Sequence[Claim]) -> str | None:
    """Why the claims at a site are too few; None if they are not."""
    expected = [c for c in key.expected if c["site"] == index]
    count = sum(c["site"] == index for c in claims)
    repeated = key.sites[index].mode == "free" or all(c == expected[0] for c in expected)
    needed = min(len(expected), 1) if repeated else len(expected)
    return None if count >= needed else f"checked {count} times, expected {len(expected)}"


def _claim(site: Site, local: bool, claim: Claim, key: Claim) -> str | None:
    """What is wrong with one claim; None if it is right."""
    options = key.get("options", {})
    hint = str(options.get("hint", ""))
    if local:
        return None if claim["held"] is True else str(claim["message"])[:ERROR_CHARACTERS]
    if site.check == "check":
        got = decode(claim["got"])
        if got is True or (type(got) is np.bool_ and bool(got)):
            return None
        return _with_hint(key["message"] or f"{site.call} does not hold", hint)
    if site.check == "raises":
        return _raised(site, claim, key, hint)
    got, source = decode(claim["got"]), key if site.mode == "fixed" else claim
    expected = decode(source["expected"])
    if site.check == "close":
        near = {k: float(v) for k, v in options.items() if k in ("rtol", "atol")}
        return checks.distance(got, expected, hint=hint, call=site.call, **near)
    if type(got) is type(expected) is ClassName:
        return None if got == expected else f"{site.call}: expected {expected}, got {got}"
    return checks.difference(got, expected, hint=hint, call=site.call)


def _raised(site: Site, claim: Claim, key: Claim, hint: str) -> str | None:
    match = key["match"]
    if "returned" in claim:
        got = f"no error; it returned {decode(claim['returned'])!r:.300}"
    else:
        name, message = str(claim["raised"]), str(claim["message"])[: checks.LONGEST]
        is_unwritten = name == UNWRITTEN != key["raised"]
        if not is_unwritten and _is_error(name, key["raised"]) and match in message:
            return None
        got = f"{name.rpartition('.')[2]}: {message}"
    wanted = key["raised"].rpartition(".")[2] + (f" with {match!r} in its message" if match else "")
    return _with_hint(f"{site.call}\n  expected: {wanted}\n  got:      {got}", hint)


def _is_error(name: str, stated: str) -> bool:
    """`checks.is_error`, for classes by name: only those count that are found here as well."""
    raised, wanted = _library_class(name), _library_class(stated)
    if raised is None or wanted is None:
        return name == stated
    return checks.is_error(raised, wanted)


def _library_class(name: str) -> type[BaseException] | None:
    module, _, leaf = name.rpartition(".")
    if module.partition(".")[0] not in checks.LIBRARIES:
        return None
    found = vars(sys.modules[module]).get(leaf) if module in sys.modules else None
    return found if isinstance(found, type) and issubclass(found, BaseException) else None


def _with_hint(message: str, hint: str) -> str:
    return f"{message}\n  hint:     {hint}" if hint else message


def _error(error: Mapping[str, Any]) -> str:
    """An error as its last lines: where in the student's code, and what."""
    frames = [f for f in error.get("frames", ()) if "ipython-input" in str(f.get("file"))]
    where = f"\n  in {frames[-1]['function']}: {frames[-1]['code']}" if frames else ""
    return f"{error.get('type')}: {str(error.get('message'))[:ERROR_CHARACTERS]}{where}"
