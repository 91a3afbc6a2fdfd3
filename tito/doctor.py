"""`tito doctor`: is everything here that TinyTorch needs, and what would make it faster?

Each part is looked at in a process of its own, so that one that crashes is reported, not followed.
"""

from __future__ import annotations

import json
import os
import platform
import re
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from importlib import metadata
from typing import Annotated, Any

import typer

from tito import console, scripts
from tito.usage import cores

LEAST_PYTHON = (3, 11)
PROBE_SECONDS = 120  # the first use of the optimized backend compiles its kernels


@dataclass(frozen=True)
class Check:
    """What one look found.

    Attributes:
        status: "ok"; "missing", for something optional; "broken", for something that must work.
        advice: what to do, if not ok.
    """

    part: str
    name: str
    status: str
    detail: str
    advice: str = ""


class ProbeError(Exception):
    """A probe failed; the text is its last line, or the signal that ended it."""


def probe(code: str, *arguments: str) -> Any:
    """Run Python code in a fresh process; the value is the JSON that it prints last.

    Raises:
        ProbeError: it raised an error, crashed, or did not finish.
    """
    search = os.pathsep.join(filter(None, [str(scripts.ROOT), os.environ.get("PYTHONPATH")]))
    try:
        finished = subprocess.run(
            [sys.executable, "-c", code, *arguments],
            env={**os.environ, "PYTHONPATH": search},
            capture_output=True,
            text=True,
            timeout=PROBE_SECONDS,
        )
    except subprocess.TimeoutExpired:
        raise ProbeError(f"did not finish within {PROBE_SECONDS} s") from None
    if finished.returncode < 0:
        raise ProbeError(f"crashed with {signal.Signals(-finished.returncode).name}")
    lines = (finished.stderr if finished.returncode else finished.stdout).strip().splitlines()
    if finished.returncode or not lines:
        raise ProbeError(lines[-1] if lines else f"exited with {finished.returncode}")
    return json.loads(lines[-1])


def check_python() -> Iterator[Check]:
    """The interpreter and the machine."""
    version = platform.python_version()
    least = ".".join(map(str, LEAST_PYTHON))
    if sys.version_info < LEAST_PYTHON:
        yield Check("system", "python", "broken", version, f"install Python {least} or newer")
    else:
        yield Check("system", "python", "ok", f"{version} at {sys.executable}")
    machine = f"{platform.system()} {platform.machine()}, {cores()} cores for this process"
    yield Check("system", "machine", "ok", machine)


NUMPY_PROBE = """
import json, numpy as np
config = np.show_config(mode="dicts")
assert (np.ones((8, 8), np.float32) @ np.ones((8, 8), np.float32) == 8).all()
blas, simd = config["Build Dependencies"]["blas"], config["SIMD Extensions"]
print(json.dumps({
    "version": np.__version__,
    "blas": f"{blas['name']} {blas['version']}",
    "simd": " ".join(simd["baseline"] + simd["found"]),
}))
"""


def check_numpy() -> Iterator[Check]:
    """NumPy, the one hard dependency; its BLAS, and the vector instructions that it found."""
    try:
        found = probe(NUMPY_PROBE)
    except ProbeError as error:
        advice = "pip install --force-reinstall 'numpy>=2'"
        yield Check("system", "numpy", "broken", str(error), advice)
        return
    yield Check("system", "numpy", "ok", found["version"])
    yield Check("system", "BLAS of numpy", "ok", found["blas"])
    yield Check("system", "CPU features", "ok", found["simd"])


def check_tinytorch() -> Iterator[Check]:
    """The package itself, and whether it is installed or merely found here."""
    try:
        found = probe(
            "import json, tinytorch; print(json.dumps([tinytorch.__version__, tinytorch.__file__]))"
        )
    except ProbeError as error:
        yield Check("system", "tinytorch", "broken", str(error), "pip install -e '.[dev]'")
        return
    yield Check("system", "tinytorch", "ok", f"{found[0]} at {found[1]}")


def requirements() -> dict[str, list[str]]:
    """Packages of each extra, from the metadata of the installed TinyTorch; {} if not installed."""
    try:
        lines = metadata.requires("tinytorch") or []
    except metadata.PackageNotFoundError:
        return {}
    extras: dict[str, list[str]] = {}
    for line in lines:
        name = re.match(r"[\w.-]+", line)
        extra = re.search(r"extra\s*==\s*['\"]([\w-]+)", line)
        if name and extra and name[0] != "tinytorch":
            extras.setdefault(extra[1], []).append(name[0])
    return extras


def check_extras() -> Iterator[Check]:
    """Optional packages by the extra that brings them."""
    extras = requirements()
    if not extras:
        yield Check(
            "extras", "tinytorch", "missing", "runs from its folder, not installed",
            "pip install -e '.[dev]'",
        )  # fmt: skip
    for extra, packages in extras.items():
        versions = {package: _version(package) for package in packages}
        absent = [package for package, version in versions.items() if version is None]
        present = ", ".join(f"{p} {v}" for p, v in versions.items() if v is not None)
        if absent:
            detail = f"{present + '; ' if present else ''}not installed: {', '.join(absent)}"
            advice = f"pip install 'tinytorch[{extra}]'"
            yield Check("extras", extra, "missing", detail, advice)
        else:
            yield Check("extras", extra, "ok", present)


def _version(package: str) -> str | None:
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return None


BACKEND_PROBE = """
import json, sys, numpy as np, tinytorch
try:
    backend = tinytorch.backends.find_backend(sys.argv[1])
except tinytorch.MissingExtraError as error:
    print(json.dumps(["missing", str(error)]))
    raise SystemExit
a, b = np.random.default_rng(0).standard_normal((2, 24, 24)).astype(np.float32)
with tinytorch.using_backend(backend):
    product = (tinytorch.from_numpy(a) @ tinytorch.from_numpy(b)).numpy()
worst = float(np.abs(product - a.astype("f8") @ b.astype("f8")).max())
assert worst < 1e-4, f"a 24x24 matrix product is off by {worst:.2g}"
print(json.dumps(["ok", f"{type(backend).__name__} loads and multiplies"]))
"""


def check_backends() -> Iterator[Check]:
    """Every registered backend loads and gets a matrix product right."""
    try:
        names = probe("import json, tinytorch; print(json.dumps(tinytorch.list_backends()))")
    except ProbeError:
        return  # check_tinytorch has said why
    for name in names:
        try:
            status, detail = probe(BACKEND_PROBE, name)
        except ProbeError as error:
            advice = "reinstall with pip install -e '.[dev]'; if it stays, report this line"
            yield Check("backends", name, "broken", str(error), advice)
            continue
        _, _, remedy = detail.partition(": ")
        yield Check("backends", name, status, detail, remedy if status == "missing" else "")


THREADS_PROBE = """
import json
from tinytorch.jit import threads
print(json.dumps([threads.select_layer(), threads.get_num_threads()]))
"""


def check_threads() -> Iterator[Check]:
    """The layer on which compiled kernels run in parallel."""
    if _version("numba") is None:
        return  # the extras and backends have said so
    try:
        layer, count = probe(THREADS_PROBE)
    except ProbeError as error:
        yield Check("threads", "layer", "broken", str(error), "pip install 'tinytorch[fast]'")
        return
    if layer == "workqueue" and cores() > 1:  # on one it is chosen (`jit.threads`)
        detail = f"workqueue, {count} threads; starting parallel work takes about 40 us"
        yield Check("threads", "layer", "missing", detail, "pip install tbb")
    else:
        yield Check("threads", "layer", "ok", f"{layer}, {count} threads")


VECTOR_PROBE = """
import json, time, numpy as np
from tinytorch.backends.optimized.gemm.matmul import matmul
from tinytorch.bench.peak import share_of_peak
from tinytorch.jit import cpu, threads
threads.set_num_threads(1)
a = np.ones((512, 512), np.float32)
share = share_of_peak(lambda: matmul(a, a), 2 * 512**3)
unit = cpu.host_vector_unit()
print(json.dumps([unit.name, 8 * unit.register_bytes, unit.registers, share]))
"""


def check_vector_unit() -> Iterator[Check]:
    """The registers that kernels are compiled for, and what a product makes of the peak."""
    if _version("numba") is None:
        return
    try:
        name, bits, registers, share = probe(VECTOR_PROBE)
    except ProbeError as error:
        yield Check("vectors", "unit", "broken", str(error), "pip install 'tinytorch[fast]'")
        return
    yield Check("vectors", "unit", "ok", f"{name}: {registers} registers of {bits} bits")
    yield Check("vectors", "512x512 product", "ok", f"{share:.0%} of the peak of one core")


LIBRARY_PROBE = """
import json
from tinytorch.backends.optimized.gemm import library
from tinytorch.backends.optimized.gemm.matmul import choices
products = [p for p in library.all_classes() if library.fits(p.threads)]
known = choices().known()
print(json.dumps([choices().name, library.MARGIN, [[str(p), known.get(str(p))] for p in products]]))
"""


def check_library() -> Iterator[Check]:
    """Which large products the BLAS of NumPy computes in place of the kernels."""
    if _version("numba") is None:
        return
    try:
        name, margin, products = probe(LIBRARY_PROBE)
    except ProbeError as error:
        yield Check("products", "library", "broken", str(error), "pip install 'tinytorch[fast]'")
        return
    if not products:
        yield Check("products", "library", "ok", "none whose product can be called: own kernels")
        return
    known = {product: times for product, times in products if times is not None}
    faster = [
        f"{product} ({own / library:.1f} times)"
        for product, (own, library) in known.items()
        if own > margin * library
    ]
    detail = f"{name}: faster in {len(faster)} of {len(known)} classes of large products"
    detail += f", which it computes: {'; '.join(faster)}" if faster else ""
    if len(known) < len(products):
        detail += f"; {len(products) - len(known)} not timed yet"
        advice = "tito cache warm times them; otherwise the first such product does"
        yield Check("products", "library", "missing", detail, advice)
    else:
        yield Check("products", "library", "ok", detail)


CHECKS: tuple[Callable[[], Iterator[Check]], ...] = (
    check_python,
    check_numpy,
    check_tinytorch,
    check_extras,
    check_backends,
    check_vector_unit,
    check_library,
    check_threads,
)


def doctor(
    as_json: Annotated[bool, typer.Option("--json", help="For a machine to read.")] = False,
) -> None:
    """Look at Python, packages, CPU and backends, and say what to do about what is wrong.

    Exits with 1 if something that TinyTorch needs is broken; what is merely missing does not count.
    """
    found: list[Check] = []
    with console.errors.status("") as status:  # it may compile; on a terminal alone
        for check in CHECKS:
            about, _, _ = (check.__doc__ or "").partition("\n")
            status.update(f"looking at: {about.rstrip('.')}")
            found += check()
    broken = [c for c in found if c.status == "broken"]
    if as_json:
        console.print_json({"healthy": not broken, "checks": [asdict(c) for c in found]})
    else:
        rows = [[c.part, c.name, c.status, c.detail] for c in found]
        console.print_rows(["part", "name", "status", "found"], rows)
        for c in found:
            if c.advice:
                console.out.print(
                    f"\n{c.part}, {c.name}: {c.advice}", highlight=False, markup=False
                )
        verdict = f"broken: {', '.join(c.name for c in broken)}" if broken else "all that is needed"
        console.out.print(f"\n{verdict}{'' if broken else ' works'}", highlight=False, markup=False)
    raise typer.Exit(1 if broken else 0)
