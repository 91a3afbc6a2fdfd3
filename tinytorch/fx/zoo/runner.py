"""Many models, each in a process of its own; a line of JSON for each, so that a run can go on.

The file is a log: the last line of a model counts. A model whose line has all the stages that are
asked for is not run again; one that lacks some goes through those only.
"""

from __future__ import annotations

import json
import multiprocessing
import platform
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

from tinytorch.errors import TinyTorchError
from tinytorch.fx.zoo import child
from tinytorch.fx.zoo.child import Limits
from tinytorch.fx.zoo.verdict import CRASH, MEMORY, TIMEOUT, Verdict

GRACE_SECONDS = 30.0  # beyond a model's own limit, until its process is killed
LIBRARIES = ("torch", "transformers", "timm", "torchvision", "numpy")
PRELOADED = ["tinytorch.fx.zoo.child", "transformers"]


class ResultsError(TinyTorchError, ValueError):
    """A file that holds the results of another set of versions."""


@dataclass
class Record:
    """What is known of one architecture.

    Attributes:
        name: in the catalogue.
        skipped: why it was left out, if it was.
        model: its class, parameters and inputs.
        stages: by name, what `Verdict.to_dict` says.
    """

    name: str
    skipped: str = ""
    model: dict[str, Any] = field(default_factory=dict)
    stages: dict[str, dict[str, Any]] = field(default_factory=dict)

    def lacks(self, stages: Iterable[str]) -> list[str]:
        """Those of the stages that it has not gone through."""
        return [] if self.skipped else [s for s in stages if s not in self.stages]

    def to_dict(self) -> dict[str, Any]:
        """A line of the file."""
        return {k: v for k, v in vars(self).items() if v}


def versions() -> dict[str, str]:
    """Of what the results depend on; "absent" for what is not installed."""
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
            if found["versions"] != versions():
                raise ResultsError(
                    f"{path} was made with {found['versions']}, and this is {versions()}: "
                    "give another file with --out"
                )
            continue
        records[found["name"]] = Record(**found)
    return records


def run(
    names: Sequence[str],
    stages: Sequence[str],
    path: Path,
    limits: Limits,
    progress: Callable[[int, int, Record], None] = lambda done, of, record: None,
) -> dict[str, Record]:
    """Put architectures through stages, and append what is found to a file, model by model.

    Returns:
        The records of `names`, with what the file had before.

    Raises:
        ResultsError: the file was made with other versions.
    """
    records = read(path)
    path.parent.mkdir(parents=True, exist_ok=True)
    if not records:
        path.write_text(json.dumps({"versions": versions()}) + "\n")
    for done, name in enumerate(names, 1):
        record = records.setdefault(name, Record(name))
        missing = record.lacks(stages)
        if missing:
            for key, value in in_child(name, missing, limits):
                _enter(record, key, value)
            with path.open("a") as file:
                file.write(json.dumps(record.to_dict()) + "\n")
        progress(done, len(names), record)
    return {name: records[name] for name in names}


def _enter(record: Record, key: str, value: Any) -> None:
    if key in ("skipped", "model"):
        setattr(record, key, value)
    else:
        record.stages[key] = value


def in_child(name: str, stages: Sequence[str], limits: Limits) -> Iterator[tuple[str, Any]]:
    """What `child.examine` sends, from a process of its own; a stage in which it dies is said so.

    The processes are forked from one that has imported everything, which takes most of the time.
    """
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(PRELOADED)
    ours, theirs = context.Pipe(duplex=False)
    process = context.Process(target=child.main, args=(name, list(stages), limits, theirs))
    process.start()
    theirs.close()
    deadline = time.monotonic() + limits.model_seconds + limits.stage_seconds + GRACE_SECONDS
    left = list(stages)
    skipped = built = False
    try:
        while ours.poll(max(0.0, deadline - time.monotonic())):
            key, value = ours.recv()
            if key == "done":
                return
            skipped |= key == "skipped"
            built |= key == "model"
            left = [s for s in left if s != key]
            yield key, value
        dead = Verdict(TIMEOUT, "its process did not stop in time and was killed")
    except EOFError:
        process.join()
        dead = _of_exit(process.exitcode or 0)
    finally:
        process.kill()
        process.join()
        ours.close()
    if not skipped and not built:
        yield "skipped", f"{dead.detail}, before the model was built"
    elif not skipped:
        yield from ((stage, dead.to_dict()) for stage in left[:1])
        yield from ((s, Verdict(dead.verdict, f"after {left[0]}").to_dict()) for s in left[1:])


def _of_exit(code: int) -> Verdict:
    if code == -9:
        return Verdict(MEMORY, "its process was killed, most likely for its memory")
    return Verdict(CRASH, f"its process ended with {f'signal {-code}' if code < 0 else code}")
