"""A whole contest in Chromium: people join and submit, a runner measures, the event closes.

Its screenshots are in `screenshots/` of the test's temporary folder, or in the folder that
`TINYTORCH_SCREENSHOTS` names.
"""

from __future__ import annotations

import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from tests.system_tools import needs_sandbox, postgres_server, require_tool
from tito.compete.event import load_event

playwright = pytest.importorskip("playwright.sync_api")
axe = pytest.importorskip("axe_playwright_python.sync_playwright")

MEASURING = 300_000  # ms: measuring takes its time, and machines are busy
CLICK = 120_000
FLAGS = ["--no-sandbox", "--disable-dev-shm-usage"]


@dataclass
class Server:
    """`tito leaderboard serve` in a process of its own, which can be killed and started again."""

    folder: Path
    url: str
    port: int
    process: subprocess.Popen[str] | None = None
    greeting: str = ""

    @property
    def address(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def start(self) -> None:
        command = [sys.executable, "-m", "tito", "leaderboard", "serve", "--database", self.url,
                   "--port", str(self.port)]  # fmt: skip
        with open(self.folder / "server.log", "a", encoding="utf-8") as log:
            self.process = subprocess.Popen(
                command, cwd=self.folder, stdout=subprocess.PIPE, stderr=log, text=True
            )
        assert self.process.stdout is not None
        self.greeting = self.process.stdout.readline().strip()
        assert self.greeting, (self.folder / "server.log").read_text()
        while self.process.poll() is None:  # it greets a moment before it listens
            with socket.socket() as probe:
                if not probe.connect_ex(("127.0.0.1", self.port)):
                    return
            time.sleep(0.02)
        raise AssertionError((self.folder / "server.log").read_text())

    def kill(self) -> None:
        assert self.process is not None
        self.process.send_signal(signal.SIGKILL)
        self.process.wait()
        assert self.process.stdout is not None
        self.process.stdout.close()


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


@contextmanager
def serving(folder: Path, kind: str) -> Iterator[Server]:
    with ExitStack() as stack:
        url = str(folder / "board.db")
        if kind == "postgresql":
            url = stack.enter_context(postgres_server()).url
        server = Server(folder, url, free_port())
        server.start()
        stack.callback(server.kill)
        yield server


@dataclass
class Visitor:
    """Somebody's browser, and where its pictures go."""

    page: Any
    server: Server
    pictures: Path

    def open(self, path: str) -> None:
        self.page.goto(f"{self.server.address}{path}")

    def join(self, link: str, name: str) -> str:
        """By a link; the token that the page shows."""
        self.page.goto(link)
        self.page.get_by_label("Pseudonym").fill(name)
        self.page.get_by_role("button", name="Join").click()
        return str(self.page.locator("#token").inner_text())

    def submit(self, path: Path) -> None:
        self.open("/events/1")
        self.page.set_input_files("input[type=file]", path)
        self.page.get_by_role("button", name="Submit").click()
        self.page.wait_for_url(re.compile(r"/submissions/\d+"))

    def check(self, name: str) -> None:
        """Take a picture, and hold the page to the rules of accessibility."""
        self.page.screenshot(path=self.pictures / f"{name}.png", full_page=True)
        found = axe.Axe().run(self.page)
        assert found.violations_count == 0, f"{name}: {found.generate_report()}"


@contextmanager
def browsing(server: Server, pictures: Path) -> Iterator[Callable[..., Visitor]]:
    chromium = require_tool("chromium")
    with playwright.sync_playwright() as driver:
        browser = driver.chromium.launch(executable_path=chromium, args=FLAGS)

        def visitor(**options: Any) -> Visitor:
            page = browser.new_context(**options).new_page()
            page.set_default_timeout(CLICK)
            page.on("request", lambda request: asked.append(request.url))
            return Visitor(page, server, pictures)

        asked: list[str] = []
        yield visitor
        browser.close()
    ours = (server.address, "data:")
    assert [url for url in asked if not url.startswith(ours)] == []


def invitation(teacher: Visitor, button: str) -> str:
    teacher.open("/instructor")
    teacher.page.get_by_role("button", name=button).click()
    return str(teacher.page.locator("#link").inner_text())


def small_event(tmp_path: Path) -> Path:
    """Elementwise with a case and a few rounds: measured in seconds, and noisy or not."""
    folder = tmp_path / "small"
    shutil.copytree(load_event("elementwise").folder, folder)
    text = (folder / "event.toml").read_text()
    first, _, _ = text.partition("[[cases]]")[2].partition("[[cases]]")
    text = re.sub(r"rounds = \d+", "rounds = 2", text.partition("[[cases]]")[0])
    text = text.replace("[limits]", "[limits]\nshared_mib = 8")  # all of it is touched first
    (folder / "event.toml").write_text(f"{text}[[cases]]{first}")
    return folder


@pytest.mark.slow(seconds=90)
@needs_sandbox
@pytest.mark.parametrize(
    "kind", [pytest.param("sqlite", marks=pytest.mark.exhaustive), "postgresql"]
)
def test_a_contest(kind: str, tmp_path: Path) -> None:
    """The server is killed once in the middle, and nothing is lost."""
    pictures = Path(os.environ.get("TINYTORCH_SCREENSHOTS", tmp_path / "screenshots")) / kind
    pictures.mkdir(parents=True, exist_ok=True)
    expect = playwright.expect
    expect.set_options(timeout=CLICK)
    folder = small_event(tmp_path)
    starter = folder / "starter.py"
    with serving(tmp_path, kind) as server, browsing(server, pictures) as visitor:
        teacher = visitor()
        teacher.join(server.greeting.split(": ", 1)[1], "the teacher")
        teacher.open("/instructor")
        teacher.page.get_by_label("New class").fill("systems 2026")
        teacher.page.get_by_role("button", name="Create class").click()
        subprocess.run(
            [sys.executable, "-m", "tito", "leaderboard", "event", folder, "--class",
             "systems 2026", "--name", "small", "--launches", "2", "--database", server.url],
            check=True, capture_output=True,
        )  # fmt: skip
        teacher.page.get_by_label("Name, in addresses").fill("fast")
        teacher.page.get_by_label("What").select_option("elementwise")
        teacher.page.get_by_role("button", name="Open", exact=True).click()
        expect(teacher.page.get_by_role("link", name="fast", exact=True)).to_be_visible()
        teacher.check("1 the instructor's page")
        link = invitation(teacher, "Make a link for systems 2026")
        runner_link = invitation(teacher, "Invite a runner")

        ada = visitor(color_scheme="dark")
        bob = visitor(viewport={"width": 390, "height": 844})
        for who, name in ((ada, "ada"), (bob, "bob")):
            who.join(link, name)
        token = tmp_path / "runner.token"
        token.write_text(visitor().join(runner_link, "bench"))

        ada.submit(starter)
        copy = tmp_path / "of_bob.py"
        copy.write_text(starter.read_text() + "\n# by bob\n")
        bob.submit(copy)
        expect(bob.page.locator("#state")).to_contain_text("waiting, 1 before it")
        ada.check("2 an entry that waits, dark")

        server.kill()
        time.sleep(1)
        server.start()
        runner = subprocess.Popen(
            [sys.executable, "-m", "tito", "leaderboard", "runner", "--server", server.address,
             "--token-file", token],
            stdout=subprocess.PIPE, text=True,
        )  # fmt: skip
        try:
            # Nobody loads a page again: htmx asks until it is done.
            for who in (ada, bob):
                final = re.compile("ok: measured|: too noisy")  # not "noisy: measured again"
                expect(who.page.locator("#state")).to_contain_text(final, timeout=MEASURING)
            ada.check("3 an entry that was measured, dark")
            bob.check("4 an entry on a telephone")
            if "too noisy" not in ada.page.locator("#state").inner_text():
                ada.open("/events/1")
                expect(ada.page.locator("#board")).to_contain_text("ada")
            ada.check("5 the board")

            teacher.open("/submissions/2")
            teacher.page.get_by_label("Reason").fill("the same code")
            teacher.page.get_by_role("button", name="Disqualify").click()
            expect(teacher.page.get_by_role("alert")).to_contain_text("the same code")
            bob.open("/submissions/2")
            expect(bob.page.get_by_role("alert")).to_contain_text("Disqualified: the same code")

            teacher.open("/instructor")
            teacher.page.get_by_role("button", name="Close small").click()
            bob.open("/events/1")
            for _ in range(300):
                bob.open("/events/1")
                if bob.page.locator(".state").first.inner_text() == "closed":
                    break
                time.sleep(1)
            expect(bob.page.locator(".state").first).to_have_text("closed")
            bob.open("/submissions/1")
            expect(bob.page.get_by_role("region", name="Code")).to_be_visible()
            bob.check("6 the code is shown")
            teacher.open("/instructor/audit")
            expect(teacher.page.locator("table")).to_contain_text("disqualify")
            teacher.check("7 the audit log")
        finally:
            runner.send_signal(signal.SIGINT)
            runner.communicate(timeout=1800)
    assert len(list(pictures.glob("*.png"))) == 7


@pytest.mark.slow
def test_keyboard_and_every_other_page(tmp_path: Path) -> None:
    with serving(tmp_path, "sqlite") as server, browsing(server, tmp_path) as visitor:
        teacher = visitor()
        teacher.join(server.greeting.split(": ", 1)[1], "the teacher")
        for i, path in enumerate(("/", "/rules", "/runners", "/account", "/mine", "/join",
                                  "/sign-in", "/nowhere", "/instructor/people/1")):  # fmt: skip
            teacher.open(path)
            teacher.check(f"page {i}")
        teacher.open("/account")
        teacher.page.keyboard.press("Tab")
        assert teacher.page.evaluate("document.activeElement.className") == "skip"
        teacher.page.keyboard.press("Enter")
        assert teacher.page.evaluate("document.activeElement.id") == "content"
