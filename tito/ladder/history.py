"""What was measured on the ladder before: a line of JSON for each time, in .tito/ladder.jsonl."""

from __future__ import annotations

import json
import os
from contextlib import suppress
from pathlib import Path
from typing import Any

from tito.workspace.folder import MARK, Workspace

SEPARATELY = ("wall", "cpu")  # the single rounds, which are not kept


def path_of(workspace: Workspace) -> Path:
    """Where the history is."""
    return workspace.root / MARK / "ladder.jsonl"


def add(workspace: Workspace, result: dict[str, Any]) -> None:
    """Keep a result."""
    tiers = [{k: v for k, v in tier.items() if k not in SEPARATELY} for tier in result["tiers"]]
    line = json.dumps({**result, "tiers": tiers}).encode() + b"\n"
    with path_of(workspace).open("a+b") as stream:
        if stream.tell():
            stream.seek(-1, os.SEEK_END)
            line = line if stream.read() == b"\n" else b"\n" + line  # a kill has cut one off
        stream.write(line)


def load(workspace: Workspace, step: str) -> list[dict[str, Any]]:
    """The results for a step, oldest first; a line that was not written to its end is left out."""
    found = []
    with suppress(FileNotFoundError):
        for line in path_of(workspace).read_text(encoding="utf-8").splitlines():
            with suppress(ValueError):
                found.append(json.loads(line))
    return [result for result in found if result.get("step") == step]
