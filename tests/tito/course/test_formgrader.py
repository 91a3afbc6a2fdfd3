"""nbgrader's formgrader, as documented: it shows the course, and runs nothing of a student's."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path
from urllib.error import URLError
from urllib.request import Request, urlopen

import pytest

from tests.tito.course.conftest import ASSIGNMENT, give
from tito.course.config import Course

pytestmark = pytest.mark.slow
SECONDS = 120


def ask(port: int, path: str, method: str = "GET") -> str:
    url = f"http://127.0.0.1:{port}/formgrader{path}"
    request = Request(url, method=method, headers={"Authorization": "token secret"})
    with urlopen(request, timeout=SECONDS) as answer:
        return answer.read().decode()


def test_it_shows_the_course_and_refuses_to_run_it(course: Course, tmp_path: Path) -> None:
    give(course, "ada", submitted="2026-10-01 11:00", double_values=2)
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    line = "from tito.cli import app; app()", "course", "formgrader", "--no-browser"
    server = subprocess.Popen(
        [sys.executable, "-c", *line, "--port", str(port), "--course", str(course.root)],
        env={**os.environ, "JUPYTER_TOKEN": "secret", "HOME": str(tmp_path)},
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    )
    try:
        deadline = time.monotonic() + SECONDS
        while True:
            try:
                known = json.loads(ask(port, "/api/assignments"))
                break
            except (URLError, ConnectionError):
                assert server.poll() is None
                assert time.monotonic() < deadline
                time.sleep(0.2)
        assert [(a["name"], a["max_score"]) for a in known] == [(ASSIGNMENT, 10)]
        assert "gradebook" in ask(port, "/gradebook")
        refused = {
            f"/api/submission/{ASSIGNMENT}/ada/autograde": "tito course grade small",
            f"/api/assignment/{ASSIGNMENT}/generate_feedback": "tito course feedback small",
            f"/api/assignment/{ASSIGNMENT}/ada/generate_feedback": "tito course feedback small",
        }
        for path, said in refused.items():
            answer = json.loads(ask(port, path, "POST"))
            assert not answer["success"]
            assert said in answer["error"]
    finally:
        os.killpg(server.pid, signal.SIGKILL)
        server.wait()
