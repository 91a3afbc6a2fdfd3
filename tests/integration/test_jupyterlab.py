"""A lesson in real JupyterLab, as a student has it: opened, run and saved in a browser."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Locator, Page, expect, sync_playwright

from tests.integration.test_student import ROOT, Student, right_answers
from tests.system_tools import require_tool
from tito.lessons.build import Course
from tito.lessons.model import Lesson

pytestmark = pytest.mark.slow

SECONDS = 120  # for whatever is waited for: the machine may be busy
MILLISECONDS = 1000 * SECONDS  # Playwright's unit
SERVER = {"ip": "127.0.0.1", "port": 0, "open_browser": False, "allow_root": True}
SETTINGS = {
    "apputils-extension/notification": {"fetchNews": "false"},  # or it asks
    "docmanager-extension/plugin": {"autosave": False},  # what is saved, the test has saved
    "notebook-extension/tracker": {"windowingMode": "none"},  # cells out of sight are there too
}
FLAGS = [
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-gpu",
    "--disable-quic",
    "--disable-sync",
    "--no-first-run",
]
WHERE = {
    "cell_type": "code",
    "id": "where",
    "metadata": {},
    "source": "import tinytorch\n\nprint(tinytorch.__file__)",
    "execution_count": None,
    "outputs": [],
}


@dataclass(frozen=True)
class Notebook:
    """A notebook that is open in JupyterLab."""

    page: Page

    @property
    def cells(self) -> Locator:
        return self.page.locator(".jp-Notebook .jp-CodeCell")

    @property
    def counts(self) -> Locator:
        """What is beside the cells: [3]: when one has run, [*]: when it is going to."""
        return self.cells.locator(".jp-InputPrompt")

    def wait_for_kernel(self) -> None:
        """Until it is there and has nothing to do."""
        status = self.page.locator("#jp-main-statusbar")
        expect(status).to_contain_text(re.compile(r"Python 3[^|]*\| Idle"), timeout=MILLISECONDS)

    def run_all(self) -> None:
        """Run all cells, up to the first that fails."""
        self.choose("Run", "Run All Cells")
        expect(self.counts.first).to_have_text("[1]:", timeout=MILLISECONDS)
        expect(self.counts.filter(has_text="*")).to_have_count(0, timeout=MILLISECONDS)
        self.wait_for_kernel()

    def save(self) -> None:
        with self.page.expect_response(_is_save) as response:
            self.choose("File", "Save Notebook")
        assert response.value.ok, response.value.text()

    def choose(self, menu: str, entry: str) -> None:
        """Click on an entry of a menu."""
        self.page.get_by_role("menuitem", name=menu, exact=True).click()
        self.page.locator(".lm-Menu").get_by_text(entry, exact=True).click()


def _is_save(response: Any) -> bool:
    return response.request.method == "PUT" and "/api/contents/" in response.url


def errors(place: Locator) -> Locator:
    """The outputs that are shown in red: of exceptions, and on stderr."""
    kinds = ("error", "stderr")
    return place.locator(
        ", ".join(f'[data-mime-type="application/vnd.jupyter.{kind}"]' for kind in kinds)
    )


@contextmanager
def opened(student: Student, lesson: Lesson, folder: Path) -> Iterator[Notebook]:
    """A lesson in a browser, as `tito module open` opens it.

    Args:
        folder: a new one, for all that JupyterLab and the browser keep.
    """
    chromium = require_tool("chromium")
    home = {**os.environ, "HOME": str(folder)}
    with (
        jupyterlab(student, lesson, folder / "jupyter", home) as address,
        sync_playwright() as playwright,
        playwright.chromium.launch_persistent_context(
            folder / "chromium", executable_path=chromium, args=FLAGS, env=home
        ) as browser,
    ):
        page = browser.pages[0]
        page.set_default_timeout(MILLISECONDS)
        page.goto(address)
        notebook = Notebook(page)
        notebook.wait_for_kernel()
        yield notebook


@contextmanager
def jupyterlab(
    student: Student, lesson: Lesson, folder: Path, environment: dict[str, str]
) -> Iterator[str]:
    """The address of a lesson in a JupyterLab of its own."""
    config, runtime, log = folder / "config", folder / "runtime", folder / "log"
    settings = {
        f"lab/user-settings/@jupyterlab/{name}.jupyterlab-settings": value
        for name, value in SETTINGS.items()
    }
    for name, value in {"jupyter_server_config.json": {"ServerApp": SERVER}, **settings}.items():
        path = config / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(json.dumps(value))
    with log.open("wb") as output:
        process = subprocess.Popen(
            [sys.executable, "-m", "tito", "module", "open", lesson.slug],
            cwd=student.root,
            env={
                **environment,
                "IPYTHONDIR": str(folder / "ipython"),
                "JUPYTER_CONFIG_DIR": str(config),
                "JUPYTER_DATA_DIR": str(folder / "data"),
                "JUPYTER_RUNTIME_DIR": str(runtime),
                "JUPYTER_TOKEN": "a-token-of-the-test",
            },
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=output,
            start_new_session=True,
        )
    try:
        server = wait_for_server(process, runtime, log)
        yield f"{server['url']}lab/tree/{lesson.folder}.ipynb?token={server['token']}"
    finally:
        stop(process, runtime)


def running_server(runtime: Path) -> dict[str, Any] | None:
    """What a server says of itself when it is ready; None before."""
    for path in runtime.glob("jpserver-*.json"):
        with suppress(ValueError):  # it is being written
            return dict(json.loads(path.read_text()))
    return None


def wait_for_server(process: subprocess.Popen[bytes], runtime: Path, log: Path) -> dict[str, Any]:
    end = time.monotonic() + SECONDS
    while process.poll() is None and time.monotonic() < end:
        if (server := running_server(runtime)) is not None:
            return server
        time.sleep(0.1)
    pytest.fail(f"JupyterLab did not start:\n{log.read_text()}")


def stop(process: subprocess.Popen[bytes], runtime: Path) -> None:
    """End the server, which ends its kernels; `tito` ends with it."""
    if process.poll() is None and (server := running_server(runtime)) is not None:
        os.kill(server["pid"], signal.SIGTERM)
        with suppress(subprocess.TimeoutExpired):
            process.wait(SECONDS)
    if process.poll() is None:
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()


@pytest.fixture(scope="module")
def course() -> Course:
    return Course.load(ROOT)


@pytest.fixture(scope="module")
def lesson(course: Course) -> Lesson:
    found = course.find("tensor")
    assert found is not None
    return found


@pytest.fixture
def student(tmp_path: Path) -> Student:
    student = Student(tmp_path / "mine")
    student.tito("init", str(student.root), cwd=tmp_path)
    return student


def code_cells(path: Path) -> list[dict[str, Any]]:
    """The code cells of a notebook file."""
    return [cell for cell in json.loads(path.read_text())["cells"] if cell["cell_type"] == "code"]


def is_red(output: dict[str, Any]) -> bool:
    return output["output_type"] == "error" or output.get("name") == "stderr"


def test_the_solved_lesson_runs_with_no_error_but_of_the_bug_to_find(
    student: Student, course: Course, lesson: Lesson, tmp_path: Path
) -> None:
    student.write(lesson, right_answers(course, lesson))
    path = student.root / f"{lesson.folder}.ipynb"
    file = json.loads(path.read_text())
    path.write_text(json.dumps({**file, "cells": [*file["cells"], WHERE]}))
    numbers = list(range(1, len(code_cells(path)) + 1))
    bugs = [
        i
        for i, cell in enumerate(code_cells(path))
        if "raises-exception" in cell["metadata"].get("tags", [])
    ]
    with opened(student, lesson, tmp_path / "home") as notebook:
        notebook.run_all()
        red = errors(notebook.page.locator("body")).all_text_contents()
        assert len(red) == len(bugs) and all("CheckError" in text for text in red), red
        assert notebook.counts.all_text_contents() == [f"[{number}]:" for number in numbers]
        own = str(student.root / "tinytorch" / "__init__.py")
        assert notebook.cells.last.locator(".jp-OutputArea-output").text_content() == f"{own}\n"
        notebook.save()

    cells = code_cells(path)
    shown = [i for i, cell in enumerate(cells) for output in cell["outputs"] if is_red(output)]
    assert shown == bugs
    assert [cell["execution_count"] for cell in cells] == numbers
    assert "".join(cells[-1]["outputs"][0]["text"]) == f"{own}\n"


def test_the_unsolved_lesson_stops_at_its_first_test(
    student: Student, lesson: Lesson, tmp_path: Path
) -> None:
    path = student.root / f"{lesson.folder}.ipynb"
    tests = [cell["metadata"].get("nbgrader", {}).get("grade") for cell in code_cells(path)]
    first = tests.index(True)
    counts = [i + 1 if i <= first else None for i in range(len(tests))]
    with opened(student, lesson, tmp_path / "home") as notebook:
        notebook.run_all()
        shown = [f"[{number or ' '}]:" for number in counts]
        assert notebook.counts.all_text_contents() == shown
        assert errors(notebook.page.locator("body")).count() == 1
        assert "NotImplementedError" in (errors(notebook.cells.nth(first)).text_content() or "")
        notebook.save()

    cells = code_cells(path)
    assert [cell["execution_count"] for cell in cells] == counts
    red = [
        (i, output) for i, cell in enumerate(cells) for output in cell["outputs"] if is_red(output)
    ]
    assert [(i, output.get("ename")) for i, output in red] == [(first, "NotImplementedError")]
