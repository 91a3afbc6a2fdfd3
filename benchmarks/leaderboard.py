"""What the leaderboard's web process and database bear: page views and entries, on this machine.

    python benchmarks/leaderboard.py                          200 page views a second for 15 s
    python benchmarks/leaderboard.py --rate 50 --seconds 5    fewer
    python benchmarks/leaderboard.py --url postgresql+psycopg:///test     an empty database

The server is a process of its own, and so is what asks it: both are on the same cores, so a server
on a machine of its own bears more. Where others compute as well, delays are theirs too: the CPU
time of a view is the server's alone, and 1 / that is how many views a second a core bears.
Entries are queued first; boards and entries are read while they wait. A view is late from the
moment at which it was due, not from when it could be sent; one without an answer has failed.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import re
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import httpx

from tito.usage import usage

ENTRY = "# tito: event = matmul\nclass Mine:\n    def matmul(self, a, b):\n        return a  # {}\n"
PORT = 8791
QUOTA = 50
PATHS = ("/events/1", "/events/1/board", "/", "/mine", "/submissions/1")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--rate", type=float, default=200.0, help="page views a second")
    parser.add_argument("--seconds", type=float, default=15.0, help="for so long")
    parser.add_argument("--entries", type=int, default=300, help="that wait in the queue")
    parser.add_argument("--port", type=int, default=PORT)
    parser.add_argument("--url", help="of an empty database; by default a file of SQLite")
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    if options.entries < 1 or options.rate * options.seconds < 1:
        parser.error("there is nothing to count: give at least one entry and one page view")
    with tempfile.TemporaryDirectory() as folder:
        server, greeting = start(options.url or f"{folder}/board.db", options.port, folder)
        try:
            told = asyncio.run(
                load(
                    greeting, options.port, options.entries, options.rate, options.seconds,
                    lambda: usage(server.pid).cpu_seconds,
                )
            )  # fmt: skip
        finally:
            server.terminate()
            server.wait()
    if options.json:
        print(json.dumps(told, indent=2))
    else:
        for name, value in told.items():
            print(f"{name:24} {value:,.1f}" if isinstance(value, float) else f"{name:24} {value:,}")
    return int(told["entries lost"] > 0 or told["views failed"] > 0)


def start(url: str, port: int, folder: str) -> tuple[subprocess.Popen[str], str]:
    """The server, and the secret that makes an instructor."""
    command = [sys.executable, "-m", "tito", "leaderboard", "serve", "--database", url,
               "--port", str(port)]  # fmt: skip
    with open(Path(folder) / "log", "w", encoding="utf-8") as log:
        server = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=log, text=True)
    assert server.stdout is not None
    greeting = server.stdout.readline()
    if "#" not in greeting:
        server.kill()
        raise SystemExit(f"the server did not start, or its database is not empty: {greeting}")
    return server, greeting.strip().rpartition("#")[2]


async def load(
    secret: str,
    port: int,
    entries: int,
    rate: float,
    seconds: float,
    spent: Callable[[], float],
) -> dict[str, float | int]:
    """People join, submit, and look; `spent` is the server's CPU time."""
    address = f"http://127.0.0.1:{port}"
    limits = httpx.Limits(max_connections=64)
    async with httpx.AsyncClient(base_url=address, limits=limits, timeout=60.0) as teacher:
        await until_up(teacher)
        await join(teacher, secret, "teacher")
        csrf = await csrf_of(teacher)
        await teacher.post("/instructor/classes", data={"csrf": csrf, "name": "load"})
        event = {"csrf": csrf, "classroom": 1, "name": "load", "based_on": "matmul", "quota": QUOTA}
        await teacher.post("/instructor/events", data=event)
        students = -(-entries // QUOTA)
        invitation = {"csrf": csrf, "role": "student", "classroom": 1, "uses": students}
        page = (await teacher.post("/instructor/invitations", data=invitation)).text
        link = first(r'id="link">[^<]*#([^<]+)', page)
        began = time.perf_counter()
        counts = [min(QUOTA, entries - QUOTA * i) for i in range(students)]
        people = (submit(address, link, f"student {i}", count) for i, count in enumerate(counts))
        acknowledged = sum(await asyncio.gather(*people))
        submitting = time.perf_counter() - began
        before = spent()
        cookies = "; ".join(f"{name}={value}" for name, value in teacher.cookies.items())
        delays, failed = await views(port, cookies, rate, seconds)
        busy = spent() - before
        queue = (await teacher.get("/runners")).text
    kept = int(first(r"<h2>(\d+) in the queue", queue))
    delays.sort()
    return {
        "entries acknowledged": acknowledged,
        "entries lost": acknowledged - kept,
        "entries a second": acknowledged / submitting,
        "views": len(delays),
        "views failed": failed,
        "views a second": len(delays) / seconds,
        "CPU of a view, ms": 1e3 * busy / len(delays),
        "views a second of CPU": len(delays) / busy,
        "median, ms": 1e3 * statistics.median(delays),
        "p99, ms": 1e3 * delays[int(0.99 * (len(delays) - 1))],
        "worst, ms": 1e3 * delays[-1],
    }


async def submit(address: str, link: str, pseudonym: str, count: int) -> int:
    """A student joins and submits, waiting whenever that is asked for; how many were taken."""
    acknowledged = 0
    async with httpx.AsyncClient(base_url=address, timeout=60.0) as student:
        headers = {"Authorization": f"Bearer {await join(student, link, pseudonym)}"}
        for k in range(count):
            while True:
                answer = await student.post(
                    "/api/events/load/submissions", content=ENTRY.format(k), headers=headers
                )
                if answer.status_code != 429:
                    break
                await asyncio.sleep(float(answer.headers["retry-after"]))
            acknowledged += answer.status_code == 201
    return acknowledged


async def views(port: int, cookies: str, rate: float, seconds: float) -> tuple[list[float], int]:
    """Ask at a fixed rate, whatever the answers do."""
    delays: list[float] = []
    failed = 0
    idle: list[tuple[asyncio.StreamReader, asyncio.StreamWriter]] = []

    async def view(path: str, due: float) -> None:
        nonlocal failed
        try:
            connection = idle.pop() if idle else await asyncio.open_connection("127.0.0.1", port)
            failed += await status(*connection, path, cookies) != 200
            idle.append(connection)
        except (OSError, asyncio.IncompleteReadError):
            failed += 1
        delays.append(time.perf_counter() - due)

    began = time.perf_counter()
    tasks = []
    for i in range(int(rate * seconds)):
        due = began + i / rate
        await asyncio.sleep(max(0.0, due - time.perf_counter()))
        tasks.append(asyncio.create_task(view(PATHS[i % len(PATHS)], due)))
    await asyncio.gather(*tasks)
    for _, writer in idle:
        writer.close()
    return delays, failed


async def status(
    reader: asyncio.StreamReader, writer: asyncio.StreamWriter, path: str, cookies: str
) -> int:
    """Read a page, without what an HTTP client does beside: it is on the server's cores.

    The server gives each page a Content-Length and keeps the connection.
    """
    request = f"GET {path} HTTP/1.1\r\nHost: 127.0.0.1\r\nCookie: {cookies}\r\n\r\n"
    writer.write(request.encode("ascii"))
    head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1")
    await reader.readexactly(int(first(r"(?i)\ncontent-length: (\d+)", head)))
    return int(head.split(" ", 2)[1])


async def until_up(client: httpx.AsyncClient) -> None:
    for _ in range(100):
        try:
            await client.get("/rules")
            return
        except httpx.TransportError:
            await asyncio.sleep(0.2)
    raise SystemExit("the server does not answer")


async def join(client: httpx.AsyncClient, secret: str, pseudonym: str) -> str:
    answer = await client.post("/join", data={"secret": secret, "pseudonym": pseudonym})
    while answer.status_code == 429:
        await asyncio.sleep(float(answer.headers["retry-after"]))
        answer = await client.post("/join", data={"secret": secret, "pseudonym": pseudonym})
    return first(r'id="token">([^<]+)', answer.text)


async def csrf_of(client: httpx.AsyncClient) -> str:
    return first(r'name="csrf" value="([^"]+)"', (await client.get("/account")).text)


def first(pattern: str, text: str) -> str:
    found = re.search(pattern, text)
    if found is None:
        raise SystemExit(f"the server's page is not as expected: no {pattern}")
    return found[1]


if __name__ == "__main__":
    raise SystemExit(main())
