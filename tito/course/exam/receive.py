"""Messages from a process that is not trusted: bounded in size, in number of items and in time.

Each byte is looked at a fixed number of times, whatever is sent: lines that are no messages are
dropped as they come, and a message that is too large, or has too many parts, ends the reading.
"""

from __future__ import annotations

import json
import os
import select
from collections import deque
from typing import Any

MOST_BYTES = 128 << 20  # that one process may send
MESSAGE_BYTES = 24 << 20  # an array of 16 MiB in base64, and what is around it
MESSAGE_ITEMS = 500_000  # in one message: 100,000 numbers as values are 300,000
DEEPEST = 100  # lists in lists
CHUNK_BYTES = 1 << 20


class FloodError(Exception):
    """The process has sent more than the grader takes."""


class Lines:
    """The messages that come down a pipe, one a line, each behind the nonce.

    Args:
        total_bytes: that are read in all; None for no end.
    """

    def __init__(self, descriptor: int, nonce: str, total_bytes: int | None = MOST_BYTES) -> None:
        self.descriptor = descriptor
        self.start = f"{nonce} ".encode()
        self.bytes_left = float("inf") if total_bytes is None else total_bytes
        self.waiting: deque[bytes] = deque()
        self.partial: list[bytes] = []
        self.partial_bytes = 0

    def next(self, seconds: float) -> dict[str, Any] | None:
        """The next message; None if none has come by then, or what came is none.

        Raises:
            FloodError: it sends too much.
            EOFError: the pipe is closed.
        """
        if not self.waiting:
            readable, _, _ = select.select([self.descriptor], [], [], seconds)
            if readable:
                self._read()
        return parsed(self.waiting.popleft()[len(self.start) :]) if self.waiting else None

    def _read(self) -> None:
        data = os.read(self.descriptor, CHUNK_BYTES)
        if not data:
            raise EOFError
        self.bytes_left -= len(data)
        first, *more = data.split(b"\n")
        self.partial.append(first)
        self.partial_bytes += len(first)
        if self.bytes_left < 0 or self.partial_bytes > MESSAGE_BYTES:
            raise FloodError("it sent more than the grader takes")
        if more:
            whole = b"".join(self.partial)
            self.partial, self.partial_bytes = [more[-1]], len(more[-1])
            self.waiting += [x for x in (whole, *more[:-1]) if x.startswith(self.start)]


def parsed(text: bytes) -> dict[str, Any] | None:
    """A message; None if it is no JSON object.

    Raises:
        FloodError: it has too many parts, or too many inside of each other.
    """
    if text.count(b",") + text.count(b"[") + text.count(b"{") > MESSAGE_ITEMS:
        raise FloodError(f"it sent a value of more than {MESSAGE_ITEMS:,} parts")
    try:
        message = json.loads(text)
        if b"\\u" in text:  # halves of characters, which no file can hold
            message = json.loads(json.dumps(message, ensure_ascii=False).encode(errors="replace"))
    except ValueError:
        return None
    except RecursionError:
        raise FloodError("it sent a value that is too deep") from None
    if not isinstance(message, dict):
        return None
    if depth(message) > DEEPEST:
        raise FloodError(f"it sent a value of more than {DEEPEST} levels")
    return message


def depth(value: Any) -> int:
    """How many lists and objects are inside of each other in parsed JSON; a loop, not a call."""
    level, deep = [value], 0
    while level := [each for each in level if isinstance(each, (list, dict))]:
        deep += 1
        inside = (each.values() if isinstance(each, dict) else each for each in level)
        level = [part for parts in inside for part in parts]
    return deep
