from __future__ import annotations

import io
import json
from collections.abc import Iterator

import pytest
from rich.console import Console
from typer.testing import CliRunner

from tito import console, doctor
from tito.cli import app
from tito.doctor import Check, ProbeError, probe

runner = CliRunner()


@pytest.fixture
def checks(monkeypatch: pytest.MonkeyPatch) -> list[Check]:
    """What the doctor finds, in place of a look at this machine."""
    found = [Check("system", "numpy", "ok", "2.0")]

    def look() -> Iterator[Check]:
        """A part of this machine."""
        yield from found

    monkeypatch.setattr(doctor, "CHECKS", (look,))
    return found


@pytest.mark.slow
def test_this_machine_is_looked_at_all_over() -> None:
    result = runner.invoke(app, ["doctor", "--json"])
    report = json.loads(result.output)
    found = {(c["part"], c["name"]): c for c in report["checks"]}
    for name in ("python", "machine", "numpy", "BLAS of numpy", "CPU features", "tinytorch"):
        assert found["system", name]["status"] == "ok"
    for backend in ("naive", "numpy"):
        assert found["backends", backend]["status"] == "ok"
    assert found["vectors", "512x512 product"]["detail"].endswith("% of the peak of one core")
    assert result.exit_code == (0 if report["healthy"] else 1)
    assert all(c["advice"] for c in report["checks"] if c["status"] != "ok")


def test_a_terminal_shows_what_is_looked_at(
    checks: list[Check], monkeypatch: pytest.MonkeyPatch
) -> None:
    assert runner.invoke(app, ["doctor"]).stderr == ""
    monkeypatch.setattr(console, "errors", Console(file=io.StringIO(), force_terminal=True))
    runner.invoke(app, ["doctor"])
    assert "looking at: A part of this machine" in console.errors.file.getvalue()


def test_what_is_missing_is_no_failure_but_gets_advice(checks: list[Check]) -> None:
    checks.append(Check("extras", "fast", "missing", "not installed: numba", "pip install numba"))
    result = runner.invoke(app, ["doctor"])
    assert result.exit_code == 0
    assert "extras, fast: pip install numba" in result.output
    assert "all that is needed works" in result.output


def test_what_is_broken_exits_with_1(checks: list[Check]) -> None:
    checks.append(Check("backends", "numpy", "broken", "crashed with SIGSEGV", "reinstall"))
    result = runner.invoke(app, ["doctor"])
    assert result.exit_code == 1
    assert "crashed with SIGSEGV" in result.output
    assert "broken: numpy" in result.output
    result = runner.invoke(app, ["doctor", "--json"])
    assert result.exit_code == 1
    assert json.loads(result.output)["healthy"] is False


def test_a_probe_returns_what_the_process_prints_last() -> None:
    assert probe("import sys; print('noise'); print('[1, \"' + sys.argv[1] + '\"]')", "two") == [
        1,
        "two",
    ]


@pytest.mark.parametrize(
    ("code", "text"),
    [
        ("raise ValueError('no good')", "ValueError: no good"),
        ("import os, signal; os.kill(os.getpid(), signal.SIGSEGV)", "crashed with SIGSEGV"),
        ("raise SystemExit(3)", "exited with 3"),
        ("pass", "exited with 0"),
    ],
)
def test_a_probe_that_fails_says_how(code: str, text: str) -> None:
    with pytest.raises(ProbeError, match=f"^{text}$"):
        probe(code)


def test_a_probe_that_hangs_is_ended(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(doctor, "PROBE_SECONDS", 0.2)
    with pytest.raises(ProbeError, match=r"did not finish within 0\.2 s"):
        probe("import time; time.sleep(30)")


@pytest.mark.slow
def test_a_backend_that_multiplies_wrongly_is_broken(monkeypatch: pytest.MonkeyPatch) -> None:
    spoilt = doctor.BACKEND_PROBE.replace("product - ", "1 + product - ")
    assert spoilt != doctor.BACKEND_PROBE
    monkeypatch.setattr(doctor, "BACKEND_PROBE", spoilt)
    found = {check.name: check for check in doctor.check_backends()}
    assert found["numpy"].status == "broken"
    assert found["numpy"].detail == "AssertionError: a 24x24 matrix product is off by 1"


def test_the_vector_unit_is_named_with_the_share_of_its_peak(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(doctor, "probe", lambda code: ["neon", 128, 32, 0.912])
    unit, product = doctor.check_vector_unit()
    assert unit.detail == "neon: 32 registers of 128 bits"
    assert product.detail == "91% of the peak of one core"


def test_a_vector_unit_that_fails_is_broken(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(doctor, "VECTOR_PROBE", "raise SystemExit('illegal')")
    (found,) = doctor.check_vector_unit()
    assert found.status == "broken" and found.detail == "illegal"


def test_extras_are_read_from_the_metadata(monkeypatch: pytest.MonkeyPatch) -> None:
    lines = [
        "numpy>=2.0",
        'numba>=0.61; extra == "fast"',
        "tbb>=2021.6; (platform_machine == 'x86_64') and extra == 'fast'",
        'no-such-package>=1; extra == "docs"',
        'tinytorch[cli]; extra == "docs"',
    ]
    monkeypatch.setattr(doctor.metadata, "requires", lambda _: lines)
    assert doctor.requirements() == {"fast": ["numba", "tbb"], "docs": ["no-such-package"]}
    found = {check.name: check for check in doctor.check_extras()}
    assert found["docs"].status == "missing"
    assert found["docs"].detail == "not installed: no-such-package"
    assert found["docs"].advice == "pip install 'tinytorch[docs]'"


def test_not_installed_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    def requires(name: str) -> list[str]:
        raise doctor.metadata.PackageNotFoundError(name)

    monkeypatch.setattr(doctor.metadata, "requires", requires)
    assert [c.detail for c in doctor.check_extras()] == ["runs from its folder, not installed"]
