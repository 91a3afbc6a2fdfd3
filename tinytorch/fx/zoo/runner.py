"""Many models, each in a process of its own; a line of JSON for each, so that a run can go on.

The file is a log: the last line of a model counts. A model whose line has all the stages that are
asked for is not run again; one that lacks some goes through those only.
"""

from __future__ import annotations

import hashlib
import json
import multiprocessing
import platform
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from dataclasses import dataclass, field, replace
from functools import cache
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import tinytorch
from tinytorch.errors import TinyTorchError
from tinytorch.fx.zoo import child
from tinytorch.fx.zoo.child import OVER, Limits
from tinytorch.fx.zoo.verdict import CRASH, GOOD, MEMORY, NONE, TIMEOUT, Verdict

#: Limits are of CPU time; a stage that waits is killed after so many times its limit, and grace.
SLOWER, GRACE_SECONDS = 10.0, 30.0
LIBRARIES = ("torch", "transformers", "timm", "torchvision", "numpy")
OPTIONAL = ("transformers", "timm", "torchvision")  # each with models of its own
PRELOADED = ["tinytorch.fx.zoo.child", "transformers"]


class ResultsError(TinyTorchError, ValueError):
    """A file that holds the results of another set of versions."""


@dataclass
class Record:
    """The stages and results of one architecture.

    Attributes:
        name: in the catalogue.
        skipped: why it was left out, if it was.
        model: its class, parameters and inputs.
        stages: by name, what `Verdict.to_dict` says.
        codes: of which sources of TinyTorch they are (`code_version`), in order.
    """

    name: str
    skipped: str = ""
    model: dict[str, Any] = field(default_factory=dict)
    stages: dict[str, dict[str, Any]] = field(default_factory=dict)
    codes: list[str] = field(default_factory=list)

    def lacks(self, stages: Iterable[str]) -> list[str]:
        """The stages that it has not gone through."""
        return [] if self.skipped else [s for s in stages if s not in self.stages]

    def without_failures(self) -> Record:
        """What of it stays when what did not work is tried again."""
        right = {s: v for s, v in self.stages.items() if v["verdict"] in (*GOOD, NONE)}
        return replace(self, skipped="", stages=right)

    def to_dict(self) -> dict[str, Any]:
        """A line of the file."""
        return {k: v for k, v in vars(self).items() if v}


@cache
def code_version() -> str:
    """A digest of the sources of the package: equal results are expected of equal sources."""
    root = Path(tinytorch.__file__).parent
    digest = hashlib.sha256()
    for path in sorted(root.rglob("*.py")):
        digest.update(path.relative_to(root).as_posix().encode() + b"\0" + path.read_bytes())
    return digest.hexdigest()[:8]


def versions() -> dict[str, str]:
    """The versions of what the results depend on; "absent" for what is not installed."""
    found = {"python": platform.python_version()}
    for name in LIBRARIES:
        try:
            found[name] = version(name)
        except PackageNotFoundError:
            found[name] = "absent"
    return found


def read(path: Path) -> dict[str, Record]:
    """The records of a file, by name; none where there is no file.

    Raises:
        ResultsError: they were made with other versions.
    """
    if not path.exists():
        return {}
    records: dict[str, Record] = {}
    for line in path.read_text().splitlines():
        try:
            found = json.loads(line)
        except json.JSONDecodeError:  # the end of a file whose writer was killed
            continue
        if "versions" in found:
            if not _compatible(found["versions"]):
                raise ResultsError(
                    f"{path} was made with {found['versions']}, and this is {versions()}: "
                    "give another file with --out"
                )
            continue
        records[found["name"]] = Record(**found)
    return records


def _compatible(earlier: dict[str, str]) -> bool:
    """Whether results of these versions are those of the installed ones: a library that was absent
    then or is now has no part in the models that ran without it."""
    now = versions()
    return earlier.keys() == now.keys() and all(
        earlier[name] == now[name] or (name in OPTIONAL and "absent" in (earlier[name], now[name]))
        for name in now
    )


def recorded_versions(path: Path) -> dict[str, str]:
    """The versions of a file: of each library what it was in the run that had it."""
    found = versions() if not path.exists() else {}
    for line in path.read_text().splitlines() if path.exists() else ():
        if line.startswith('{"versions"'):
            said = json.loads(line)["versions"]
            found |= {k: v for k, v in said.items() if v != "absent" or k not in found}
    return found


def run(
    names: Sequence[str],
    stages: Sequence[str],
    path: Path,
    limits: Limits,
    progress: Callable[[int, int, Record], None] = lambda done, of, record: None,
    jobs: int = 1,
    retry: bool = False,
    renew: bool = False,
) -> dict[str, Record]:
    """Put architectures through stages, and append what is found to a file, model by model.

    Args:
        jobs: how many models at a time.
        retry: build again those that were left out, and go again through stages that were not
            right: refused, timed out, crashed.
        renew: go again through all stages where the results are of other sources of TinyTorch.

    Returns:
        The records of `names`, with what the file had before.

    Raises:
        ResultsError: the file was made with other versions.
    """
    records = read(path)
    for name in [n for n in names if n in records]:
        if renew and records[name].codes != [code_version()]:
            del records[name]
        elif retry:
            records[name] = records[name].without_failures()
    path.parent.mkdir(parents=True, exist_ok=True)
    if not path.exists():
        path.write_text(json.dumps({"versions": versions()}) + "\n")
    elif any(recorded_versions(path)[k] != v != "absent" for k, v in versions().items()):
        with path.open("a") as file:
            file.write(json.dumps({"versions": versions()}) + "\n")

    def examined(name: str) -> Record:
        record = records.get(name) or Record(name)
        if missing := record.lacks(stages):
            for key, value in in_child(name, missing, limits):
                _enter(record, key, value)
            record.codes = sorted({*record.codes, code_version()})
        return record

    known = {name for name, record in records.items() if not record.lacks(stages)}
    for done, record in enumerate(_finished(examined, names, jobs), 1):
        records[record.name] = record
        if record.name not in known:
            with path.open("a") as file:
                file.write(json.dumps(record.to_dict()) + "\n")
        progress(done, len(names), record)
    return {name: records[name] for name in names}


def _finished(
    examined: Callable[[str], Record], names: Sequence[str], jobs: int
) -> Iterator[Record]:
    """Records as they come; where the caller stops, no more are begun."""
    if jobs == 1:
        yield from map(examined, names)
        return
    with ThreadPoolExecutor(jobs) as pool:  # of threads that wait for processes
        coming = [pool.submit(examined, name) for name in names]
        try:
            for future in as_completed(coming):
                yield future.result()
        finally:
            pool.shutdown(cancel_futures=True)


def _enter(record: Record, key: str, value: Any) -> None:
    if key in ("skipped", "model"):
        setattr(record, key, value)
    else:
        record.stages[key] = value


def in_child(name: str, stages: Sequence[str], limits: Limits) -> Iterator[tuple[str, Any]]:
    """The results that `child.examine` sends from a process of its own; a stage in which it dies is
    said so.

    The stages after one that ends its process go on in a new one: what comes first is of no
    consequence for what comes later.
    """
    left = list(stages)
    seconds, built = limits.model_seconds, False
    while left:
        if seconds <= 0:
            yield from ((s, Verdict(TIMEOUT, OVER).to_dict()) for s in left)
            return
        before = list(left)
        for key, value in _in_one_child(name, left, replace(limits, model_seconds=seconds)):
            if key == "skipped" and built:  # it was built before
                yield from ((s, Verdict(CRASH, value).to_dict()) for s in left)
                return
            if key in left:
                left.remove(key)
                seconds -= value["seconds"]
            elif key == "skipped":
                left = []
            if key != "model" or not built:
                yield key, value
            built |= key == "model"
        assert left != before, "each process ends a stage or says why it cannot begin"


def _in_one_child(name: str, stages: Sequence[str], limits: Limits) -> Iterator[tuple[str, Any]]:
    """As many of the stages as one process reaches.

    The processes are forked from one that has imported everything, which takes most of the time.
    """
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(PRELOADED)
    ours, theirs = context.Pipe(duplex=False)
    process = context.Process(target=child.main, args=(name, list(stages), limits, theirs))
    process.start()
    theirs.close()
    patience = SLOWER * limits.stage_seconds + GRACE_SECONDS
    left = list(stages)
    built = False
    try:
        while ours.poll(patience):
            key, value = ours.recv()
            if key == "done":
                return
            built |= key in ("model", "skipped")
            left = [s for s in left if s != key]
            yield key, value
        dead = Verdict(TIMEOUT, f"said nothing for {patience:.0f} s and was killed")
    except EOFError:
        process.join()
        dead = _of_exit(process.exitcode or 0)
    finally:
        process.kill()
        process.join()
        ours.close()
    if not built:
        yield "skipped", f"{dead.detail}, before the model was built"
    elif left:
        yield left[0], dead.to_dict()


def _of_exit(code: int) -> Verdict:
    if code == -9:
        return Verdict(MEMORY, "its process was killed, most likely for its memory")
    return Verdict(CRASH, f"its process ended with {f'signal {-code}' if code < 0 else code}")
