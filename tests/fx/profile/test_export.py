"""Profiles as files."""

from __future__ import annotations

import csv
import json
from html.parser import HTMLParser
from itertools import pairwise
from pathlib import Path

import pytest

from tests.system_tools import require_tool
from tinytorch.fx.profile.export import (
    trace_events,
    write_chrome_trace,
    write_csv,
    write_json,
    write_parquet,
)
from tinytorch.fx.profile.plots import plot_inactive, plot_memory, plot_nodes
from tinytorch.fx.profile.profile import WRITERS, Profile
from tinytorch.fx.profile.report import layout, render, write_html
from tinytorch.fx.profile.rows import (
    ACTIVATION_COLUMNS,
    CATEGORIES,
    NODE_COLUMNS,
    ActivationProfile,
    NodeProfile,
)

MODULES = ("", "net.0", "net.0.act", "net.1", "")


def node(rank: int, name: str, phase: str, kind: str, inputs: tuple[str, ...]) -> NodeProfile:
    seconds = 1e-3 * rank if phase else 0.0
    return NodeProfile(rank, name, f"aten.{name}", phase, kind, seconds, 10, 20, 8, 100 + rank,
                       101 + rank, inputs, "x = </script> & 1", MODULES[rank])  # fmt: skip


@pytest.fixture
def profile() -> Profile:
    nodes = [
        node(0, "w", "", "parameter", ()),
        node(1, "mm", "forward", "activation", ("w",)),
        node(2, "loss", "forward", "other", ("mm",)),
        node(3, "mm_1", "backward", "gradient", ("mm", "w")),
        node(4, "output", "", "other", ("loss", "mm_1")),
    ]
    activation = ActivationProfile("mm", 8, 1, 2, 3, 3, 2e-3, 1e-9, 1e-3, 16)
    memory = {c: [20 + n.rank // 5 for n in nodes] for c in CATEGORIES}
    return Profile("a <step>", "cpu", nodes, [activation], memory, 1e9, 6e-3, 60, "dispatch")


def test_csv(profile: Profile, tmp_path: Path) -> None:
    write_csv(profile, tmp_path / "p.csv")
    with (tmp_path / "p.csv").open(newline="") as file:
        rows = list(csv.DictReader(file))
    assert tuple(rows[0]) == (*NODE_COLUMNS, *ACTIVATION_COLUMNS)
    assert [r["name"] for r in rows] == ["w", "mm", "loss", "mm_1", "output"]
    assert rows[1]["recompute_ratio"] == "8000.0"
    assert rows[2]["recompute_ratio"] == ""
    assert rows[3]["inputs"] == "mm w"


@pytest.mark.slow
def test_parquet(profile: Profile, tmp_path: Path) -> None:
    parquet = pytest.importorskip("pyarrow.parquet")
    write_parquet(profile, tmp_path / "p.parquet")
    assert parquet.read_table(tmp_path / "p.parquet").to_pylist() == profile.node_rows()


def test_json(profile: Profile, tmp_path: Path) -> None:
    write_json(profile, tmp_path / "p.json")
    read = json.loads((tmp_path / "p.json").read_text())
    assert read["predicted_peak"] == 104
    assert read["measured_peak"] == 105
    assert read["phases"] == {"forward": [1, 3], "backward": [3, 4]}
    assert read["activations"][0]["inactive_seconds"] == 2e-3
    assert len(read["nodes"]) == 5


def test_chrome_trace(profile: Profile, tmp_path: Path) -> None:
    write_chrome_trace(profile, tmp_path / "t.json")
    assert json.loads((tmp_path / "t.json").read_text()) == {"traceEvents": trace_events(profile)}
    spans = [e for e in trace_events(profile) if e["ph"] == "X"]
    assert [e["name"] for e in spans] == ["mm", "loss", "mm_1"]
    for before, after in pairwise(spans):
        assert after["ts"] == before["ts"] + before["dur"]
    counters = [e for e in trace_events(profile) if e["ph"] == "C"]
    assert len(counters) == 5
    assert set(counters[0]["args"]) == set(CATEGORIES)


def test_plots(profile: Profile, tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    plot_memory(profile, tmp_path / "memory.svg", limit=100)
    plot_nodes(profile, tmp_path / "nodes.svg")
    plot_inactive(profile, tmp_path / "inactive.svg")
    memory = (tmp_path / "memory.svg").read_text()
    assert memory.count("<path") > 10
    assert (tmp_path / "nodes.svg").stat().st_size > 5_000
    assert (tmp_path / "inactive.svg").stat().st_size > 5_000


@pytest.mark.parametrize("suffix", WRITERS)
def test_written_by_suffix(profile: Profile, tmp_path: Path, suffix: str) -> None:
    pytest.importorskip("pyarrow")
    pytest.importorskip("matplotlib")
    profile.write(tmp_path / f"p{suffix}")
    assert (tmp_path / f"p{suffix}").stat().st_size > 300


def test_the_limit_is_drawn_where_memory_is(profile: Profile, tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    for suffix in (".html", ".svg", ".csv"):
        profile.write(tmp_path / f"p{suffix}", 103)
    assert '"limit":103' in (tmp_path / "p.html").read_text()
    assert "<!-- limit -->" in (tmp_path / "p.svg").read_text()


def test_unknown_suffix(profile: Profile, tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"p.xlsx' ends in none of .csv, .parquet"):
        profile.write(tmp_path / "p.xlsx")


def test_table(profile: Profile) -> None:
    lines = profile.table(limit=2).splitlines()
    assert [line.split()[0] for line in lines[-2:]] == ["mm_1", "loss"]


class Page(HTMLParser):
    """Collects what a page refers to, and its data."""

    def __init__(self) -> None:
        super().__init__()
        self.links: list[str] = []
        self.data = ""
        self._in_data = False
        self.tags: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        self.links += [v or "" for k, v in attrs if k in ("src", "href")]
        self._in_data = ("id", "data") in attrs

    def handle_endtag(self, tag: str) -> None:
        self._in_data = False

    def handle_data(self, data: str) -> None:
        if self._in_data:
            self.data += data


def test_the_report_stands_alone(profile: Profile, tmp_path: Path) -> None:
    write_html(profile, tmp_path / "r.html", limit=103)
    text = (tmp_path / "r.html").read_text()
    assert text == render(profile, 103)
    page = Page()
    page.feed(text)
    assert page.links == []
    assert "@" not in text.replace("@media", "")
    assert "http" not in text.replace("http://www.w3.org/2000/svg", "")
    assert page.tags.count("script") == 2  # the data and the code; no line of code ended one
    data = json.loads(page.data)
    assert data["limit"] == 103
    assert [n["name"] for n in data["nodes"]] == [n.name for n in profile.nodes]
    assert data["nodes"][3]["from"] == [1, 0]
    assert data["nodes"][0]["line"] == "x = </script> & 1"
    assert [n["module"] for n in data["nodes"]] == list(MODULES)
    assert "prefers-color-scheme: dark" in text
    assert "a &lt;step&gt;" in text


def test_layout(profile: Profile) -> None:
    places = layout(profile)
    assert len(set(places)) == len(places)
    rows = {n.name: row for n, (_, row) in zip(profile.nodes, places, strict=True)}
    assert rows["w"] < rows["mm"] < rows["loss"]
    assert rows["mm"] < rows["mm_1"] < rows["output"]


@pytest.mark.slow
def test_the_report_in_a_browser(profile: Profile, tmp_path: Path) -> None:
    playwright = pytest.importorskip("playwright.sync_api")
    browser_path = require_tool("chromium")
    write_html(profile, tmp_path / "r.html", limit=103)
    errors: list[str] = []
    requests: list[str] = []
    with playwright.sync_playwright() as driver:
        browser = driver.chromium.launch(executable_path=browser_path, args=["--no-sandbox"])
        page = browser.new_page()
        page.on("pageerror", lambda e: errors.append(str(e)))
        page.on("request", lambda r: requests.append(r.url))
        page.goto((tmp_path / "r.html").as_uri())
        assert page.locator("#graph rect").count() == 5
        page.fill("#search", "mm")
        assert page.inner_text("#hits").strip() == "2 found;"
        before = page.get_attribute("#scene", "transform")
        page.click("#next")
        assert page.get_attribute("#scene", "transform") != before
        assert page.locator("#activations tr").count() == 2
        texts = page.locator("#memory text").all_text_contents()
        assert {"0 MiB", "forward", "backward"} <= set(texts)
        assert "limit 103 B" in texts
        assert "execution rank" in texts
        assert page.locator("#time text").all_text_contents()[0].endswith(" ms")
        cells = page.locator("#nodes tbody tr td:first-child")
        assert cells.all_text_contents() == ["mm_1", "loss", "mm"]  # the slowest first
        page.click("#nodes th >> text=node")
        assert cells.all_text_contents() == ["loss", "mm", "mm_1"]
        page.click("#nodes th >> text=node")
        assert cells.all_text_contents() == ["mm_1", "mm", "loss"]
        assert page.locator("#nodes tbody tr").first.locator("td").nth(6).inner_text() == "3 ms"
        modules = page.locator("#modules tbody tr td:first-child")
        assert [t.strip("\u25be\u25b8") for t in modules.all_inner_texts()] == ["(model)", "net"]
        page.click("[aria-label='unfold net']")
        assert modules.count() == 4
        page.click("#fold")
        assert modules.count() == 2
        browser.close()
    assert errors == []
    assert all(url.startswith("file:") for url in requests)
