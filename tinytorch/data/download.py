"""Files from the network: fetched once, checked, and kept; never half of one."""

from __future__ import annotations

import hashlib
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path

from tinytorch.errors import DataError
from tinytorch.files import atomic_write, cache_root

TIMEOUT_SECONDS = 30
CHUNK_BYTES = 1 << 16


@dataclass(frozen=True)
class RemoteFile:
    """A file that is known beforehand: its name, where it can be had, and what must arrive."""

    name: str
    urls: tuple[str, ...]
    size: int
    sha256: str


def fetch(file: RemoteFile, root: str | Path | None, dataset: str) -> Path:
    """The path of `file` on this machine, downloaded from the first URL that works.

    Args:
        file: what to fetch.
        root: the folder to keep it in; None means `cache_root() / dataset`.
        dataset: the dataset's name.

    Raises:
        DataError: no URL gave the file, or the one in the folder is not the expected one.
    """
    path = (Path(root) if root is not None else cache_root() / dataset) / file.name
    if path.exists():
        with path.open("rb") as stream:
            digest = hashlib.file_digest(stream, "sha256")
        _check(file, f"{path} (remove it to download it again)", path.stat().st_size, digest)
        return path
    failures = []
    for url in file.urls:
        try:
            _download(url, file, path)
            return path
        except (OSError, DataError) as error:
            failures.append(f"{url}: {error}")
    raise DataError(
        f"cannot download {file.name} ({'; '.join(failures)}). Without a network, put the file "
        f"at {path} by hand, or use datasets.digits(), which is part of TinyTorch"
    )


def _download(url: str, file: RemoteFile, path: Path) -> None:
    import http.client  # these two cost more to import than the rest of tinytorch.data
    import urllib.request

    digest, received = hashlib.sha256(), 0
    size = f"{file.size / 1e6:.1f} MB"
    print(f"tinytorch: downloading {file.name} ({size}) from {url}", file=sys.stderr, flush=True)
    try:
        with (
            urllib.request.urlopen(url, timeout=TIMEOUT_SECONDS) as response,
            atomic_write(path) as stream,
            _progress(file) as advance,
        ):
            # Not more than was promised: a wrong server must not fill the disk.
            while received <= file.size and (chunk := response.read(CHUNK_BYTES)):
                stream.write(chunk)
                digest.update(chunk)
                received += len(chunk)
                advance(len(chunk))
            _check(file, url, received, digest)
    except http.client.HTTPException as error:
        raise DataError(f"the server broke off: {error!r}") from error


def _check(file: RemoteFile, source: str, size: int, digest: hashlib._Hash) -> None:
    if (size, digest.hexdigest()) != (file.size, file.sha256):
        raise DataError(
            f"{source}: expected {file.size} bytes with sha256 {file.sha256}, found {size} bytes "
            f"with sha256 {digest.hexdigest()}"
        )


@contextmanager
def _progress(file: RemoteFile) -> Iterator[Callable[[int], None]]:
    """Calls that advance a progress bar; they do nothing off a terminal, or without rich."""
    if not (sys.stderr.isatty() and find_spec("rich")):
        yield lambda count: None
        return
    from rich.console import Console
    from rich.progress import DownloadColumn, Progress, TextColumn, TransferSpeedColumn

    columns = (TextColumn("{task.description}"), DownloadColumn(), TransferSpeedColumn())
    with Progress(*columns, console=Console(stderr=True)) as progress:
        task = progress.add_task(file.name, total=file.size)
        yield lambda count: progress.update(task, advance=count)
