"""Messages from a process that is not trusted: what is no message costs next to nothing."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Callable, Iterator
from threading import Thread
from typing import Any

import pytest

from tito.course.exam import receive
from tito.course.exam.receive import FloodError, Lines, depth, parsed


@pytest.fixture
def pipe() -> Iterator[tuple[Lines, Callable[[bytes], None]]]:
    reading, writing = os.pipe()

    def write(data: bytes) -> None:
        while data:
            data = data[os.write(writing, data) :]

    yield Lines(reading, "nonce"), write
    os.close(reading)
    os.close(writing)


def test_messages_come_whole_however_they_are_cut(pipe: Any) -> None:
    lines, write = pipe
    write(b'noise\nnonce {"a": 1}\nno')
    assert lines.next(1) == {"a": 1}
    assert lines.next(0) is None
    write(b'nce {"b": [2')
    assert lines.next(1) is None
    write(b'3]}\nnonce {"c": 4}\n')
    assert [lines.next(1), lines.next(1)] == [{"b": [23]}, {"c": 4}]


def test_a_flood_of_newlines_is_read_in_time_linear_in_its_length(pipe: Any) -> None:
    lines, write = pipe
    flood = b"\n" * (8 << 20) + b'nonce {"after": 1}\n'
    writer = Thread(target=write, args=(flood,))
    start = time.process_time()
    writer.start()
    while (message := lines.next(1)) is None:
        pass
    writer.join()
    assert message == {"after": 1}
    assert time.process_time() - start < 120  # a copy of the rest for each line takes hours


def test_a_line_without_an_end_is_not_kept(pipe: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    lines, write = pipe
    monkeypatch.setattr(receive, "MESSAGE_BYTES", 1000)
    write(b"x" * 2000)
    with pytest.raises(FloodError, match="more than the grader takes"):
        lines.next(1)


@pytest.mark.parametrize("text", [b"", b"{", b"[1]", b"3", b'{"a": \xff}', b"9" * 5000])
def test_what_is_no_message(text: bytes) -> None:
    assert parsed(text) is None


def test_messages_of_too_many_parts_or_levels() -> None:
    with pytest.raises(FloodError, match="more than 500,000 parts"):
        parsed(json.dumps({"got": [0] * 500_001}).encode())
    deep: Any = []
    for _ in range(200):
        deep = [deep]
    assert depth(deep) == 201
    with pytest.raises(FloodError, match="more than 100 levels"):
        parsed(json.dumps({"got": deep}).encode())
    with pytest.raises(FloodError, match="too deep"):
        parsed(b'{"got": ' + b"[" * 100_000)


def test_halves_of_characters_become_question_marks() -> None:
    assert parsed(b'{"text": "a\\ud800b"}') == {"text": "a?b"}
