from __future__ import annotations

import hashlib
import re
import threading
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, field, replace
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from tinytorch.data.download import RemoteFile, fetch
from tinytorch.errors import DataError

CONTENT = bytes(range(256)) * 1000


@dataclass
class Server:
    """What a path answers with: a body, and the length it claims to have."""

    url: str
    bodies: dict[str, tuple[bytes, int]] = field(default_factory=dict)
    asked: list[str] = field(default_factory=list)

    def serves(self, path: str, body: bytes, claimed: int | None = None) -> str:
        self.bodies[path] = body, len(body) if claimed is None else claimed
        return self.url + path


@pytest.fixture
def server() -> Iterator[Server]:
    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            state.asked.append(self.path)
            if self.path not in state.bodies:
                self.send_error(404)
                return
            body, claimed = state.bodies[self.path]
            self.send_response(200)
            self.send_header("Content-Length", str(claimed))
            self.end_headers()
            with suppress(ConnectionError):  # the client hangs up when it has seen enough
                self.wfile.write(body)

        def log_message(self, format: str, *args: object) -> None:
            pass  # not on the terminal of the tests

    http = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    state = Server(f"http://127.0.0.1:{http.server_port}")
    thread = threading.Thread(target=http.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    yield state
    http.shutdown()
    thread.join()
    http.server_close()


def remote(*urls: str, content: bytes = CONTENT) -> RemoteFile:
    return RemoteFile("data.bin", urls, len(content), hashlib.sha256(content).hexdigest())


def test_a_file_is_downloaded_once(server: Server, tmp_path: Path) -> None:
    file = remote(server.serves("/data.bin", CONTENT))
    path = fetch(file, tmp_path / "new" / "folder", "bytes")
    assert path == tmp_path / "new" / "folder" / "data.bin"
    assert path.read_bytes() == CONTENT
    assert fetch(file, tmp_path / "new" / "folder", "bytes") == path
    assert server.asked == ["/data.bin"]


def test_the_next_mirror_is_tried(server: Server, tmp_path: Path) -> None:
    file = remote(server.url + "/gone", server.serves("/data.bin", CONTENT))
    assert fetch(file, tmp_path, "bytes").read_bytes() == CONTENT
    assert server.asked == ["/gone", "/data.bin"]


@pytest.mark.parametrize(
    ("body", "claimed", "found"),
    [
        (CONTENT[:-1], None, f"found {len(CONTENT) - 1} bytes"),
        (CONTENT[:5000], len(CONTENT), "found 5000 bytes"),
        (CONTENT[:-1] + b"\0", None, f"found {len(CONTENT)} bytes"),
        (CONTENT * 100, None, "found "),
        (b"", None, "found 0 bytes"),
    ],
    ids=["short", "broken-off", "one-byte-wrong", "too-long", "empty"],
)
def test_a_wrong_download_leaves_nothing(
    body: bytes, claimed: int | None, found: str, server: Server, tmp_path: Path
) -> None:
    url = server.serves("/data.bin", body, claimed)
    file = remote(url)
    expected = f"{url}: expected {len(CONTENT)} bytes with sha256 {file.sha256}, {found}"
    with pytest.raises(DataError, match=re.escape(expected)):
        fetch(file, tmp_path, "bytes")
    assert list(tmp_path.iterdir()) == []


def test_an_endless_answer_is_cut_off(server: Server, tmp_path: Path) -> None:
    file = remote(server.serves("/data.bin", CONTENT * 100), content=CONTENT)
    with pytest.raises(DataError) as caught:
        fetch(file, tmp_path, "bytes")
    size = re.search(r"found (\d+) bytes", str(caught.value))
    assert size is not None
    assert len(CONTENT) < int(size[1]) < 2 * len(CONTENT)


def test_without_a_network_the_error_says_what_to_do(server: Server, tmp_path: Path) -> None:
    file = remote(server.url + "/a", server.url + "/b")
    text = (
        f"cannot download data.bin ({server.url}/a: HTTP Error 404: Not Found; "
        f"{server.url}/b: HTTP Error 404: Not Found). Without a network, put the file at "
        f"{tmp_path / 'data.bin'} by hand, or use datasets.digits()"
    )
    with pytest.raises(DataError, match=re.escape(text)):
        fetch(file, tmp_path, "bytes")
    with pytest.raises(DataError, match="Connection refused"):
        fetch(remote("http://127.0.0.1:9/x"), tmp_path, "bytes")


def test_a_damaged_file_in_the_cache_is_reported_and_kept(tmp_path: Path) -> None:
    path = tmp_path / "data.bin"
    path.write_bytes(CONTENT[:100])
    text = f"{path} (remove it to download it again): expected {len(CONTENT)} bytes"
    with pytest.raises(DataError, match=re.escape(text)):
        fetch(remote(), tmp_path, "bytes")
    assert path.read_bytes() == CONTENT[:100]


def test_two_fetches_at_once(server: Server, tmp_path: Path) -> None:
    file = remote(server.serves("/data.bin", CONTENT))
    results: list[bytes] = []
    threads = [
        threading.Thread(target=lambda: results.append(fetch(file, tmp_path, "x").read_bytes()))
        for _ in range(4)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert results == [CONTENT] * 4
    assert [path.name for path in tmp_path.iterdir()] == ["data.bin"]


def test_without_a_root_the_file_is_looked_for_in_the_cache(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("TINYTORCH_CACHE_DIR", str(tmp_path))
    (tmp_path / "bytes").mkdir()
    (tmp_path / "bytes" / "data.bin").write_bytes(CONTENT)
    assert fetch(remote(), None, "bytes") == tmp_path / "bytes" / "data.bin"


def test_a_download_is_announced_and_its_progress_shown_on_a_terminal_only(
    server: Server,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    file = remote(server.serves("/data.bin", CONTENT))
    fetch(file, tmp_path, "bytes")
    line = f"tinytorch: downloading data.bin (0.3 MB) from {file.urls[0]}\n"
    assert capsys.readouterr() == ("", line)
    fetch(file, tmp_path, "bytes")
    assert capsys.readouterr() == ("", "")
    monkeypatch.setattr("sys.stderr.isatty", lambda: True)
    fetch(replace(file, name="again.bin"), tmp_path, "bytes")
    assert capsys.readouterr().err.count("again.bin") > 1
