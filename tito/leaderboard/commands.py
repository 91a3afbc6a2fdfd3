"""`tito leaderboard`: serve the pages, measure, sign in; `tito submit`: enter a file."""

from __future__ import annotations

import ipaddress
import signal
import socket
import sys
import threading
import time
from contextlib import ExitStack, closing
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from tito import console

if TYPE_CHECKING:
    from tito.leaderboard.client import Client
    from tito.leaderboard.database import Database

PORT = 8765
REFUSED, UNSCORED = 1, 3
WAIT_SECONDS = 1.0

app = typer.Typer(
    help="A class's leaderboard: pages and API, and the machines that measure.",
    epilog=(
        "Examples:\n\ntito leaderboard serve --demo\n\ntito leaderboard serve --database class.db"
        "\n\ntito leaderboard join http://127.0.0.1:8765"
        "\n\ntito leaderboard runner --server http://127.0.0.1:8765 --token-file runner.token"
    ),
    no_args_is_help=True,
    rich_markup_mode=None,
)

DATABASE = Annotated[
    str, typer.Option(help="A file for SQLite, or a URL: postgresql+psycopg://user@host/name.")
]
SERVER = Annotated[str | None, typer.Option(help="Address of the server.")]


def _need_extra() -> None:
    try:
        import alembic  # noqa: F401
        import fastapi  # noqa: F401
        import httpx  # noqa: F401
        import uvicorn  # noqa: F401
    except ModuleNotFoundError as error:
        sys.exit(f"{error.name} is not installed: pip install 'tinytorch[leaderboard]'")


def _open(url: str) -> closing[Database]:
    from sqlalchemy.exc import SQLAlchemyError

    from tito.leaderboard.database import Database, DatabaseError

    with ExitStack() as stack:
        try:
            database = stack.enter_context(closing(Database(url)))
            database.migrate()
        except DatabaseError as error:
            raise typer.BadParameter(str(error)) from None
        except SQLAlchemyError as error:
            typer.echo(f"the database does not answer: {error.__cause__ or error}", err=True)
            raise typer.Exit(UNSCORED) from None
        stack.pop_all()
    return closing(database)


@app.command(
    epilog=(
        "Examples:\n\ntito leaderboard serve\n\ntito leaderboard serve --demo\n\n"
        "tito leaderboard serve --public --host 0.0.0.0 --database postgresql+psycopg:///board"
    )
)
def serve(
    database: DATABASE = "leaderboard.db",
    host: Annotated[str, typer.Option(help="Where to listen.")] = "127.0.0.1",
    port: Annotated[int, typer.Option(min=0, max=65535)] = PORT,
    public: Annotated[
        bool, typer.Option("--public", help="Others reach it, through a proxy that speaks HTTPS.")
    ] = False,
    demo: Annotated[
        bool, typer.Option("--demo", help="Measure the backends that come with TinyTorch, here.")
    ] = False,
) -> None:
    """Serve the leaderboard. Without any configuration it is for this machine alone.

    The first start prints a link that makes you its instructor.
    """
    _need_extra()
    import logging

    import uvicorn

    from tinytorch.collector import collected_no_more

    with collected_no_more():  # a full collection would have visitors wait for 0.1 s
        from tito.leaderboard.web.app import create_app

    _check_host(host, public)
    with _open(database) as opened:
        logging.basicConfig(level=logging.INFO, format="%(asctime)s %(message)s")
        for name in ("uvicorn.error", "httpx", "alembic"):
            logging.getLogger(name).setLevel(logging.WARNING)
        bound = _bind(host, port)
        name = f"[{host}]" if ":" in host else host
        address = f"http://{name}:{bound[0].getsockname()[1]}"
        app = create_app(opened, https=public)
        _greet(opened, address)  # after what takes a while: people follow the link at once
        server = uvicorn.Server(
            uvicorn.Config(
                app,
                access_log=False,  # guard.AccessLog writes one without secrets
                log_config=None,
                proxy_headers=public,
                server_header=False,
            )
        )
        if demo:
            from tito.leaderboard import demo as demonstration

            token = demonstration.prepare(opened)
            runner = _demo_runner(address, token)
            threading.Thread(target=runner, daemon=True).start()
        server.run(sockets=bound)


def _bind(host: str, port: int) -> list[socket.socket]:
    """Take the port, before a link to it is printed; port 0 is one that is free."""
    bound: list[socket.socket] = []
    try:
        for family, *_, where in socket.getaddrinfo(host, port, type=socket.SOCK_STREAM):
            bound.append(socket.create_server((where[0], port), family=family))
            port = bound[0].getsockname()[1]
    except OSError as error:
        typer.echo(f"cannot listen on {host}, port {port}: {error.strerror}", err=True)
        raise typer.Exit(REFUSED) from None
    return bound


def _check_host(host: str, public: bool) -> None:
    if public:
        typer.echo(
            "public: this assumes that a reverse proxy in front of it speaks HTTPS, sets "
            "X-Forwarded-For itself, and lets nobody else reach this port (see "
            "docs/competition.md). Cookies are sent over HTTPS only.",
            err=True,
        )
        return
    try:
        is_local = host == "localhost" or ipaddress.ip_address(host).is_loopback
    except ValueError:
        is_local = False
    if not is_local:
        raise typer.BadParameter(
            f"{host} can be reached from other machines: add --public, and read what it assumes"
        )


def _greet(database: Database, address: str) -> None:
    """Print a link for the first instructor, as long as there is none."""
    from sqlalchemy import select

    from tito.leaderboard import people
    from tito.leaderboard.tables import Person

    with database.write() as session:
        if session.scalar(select(Person).where(Person.role == "instructor").limit(1)):
            print(f"the leaderboard is at {address}", flush=True)
            return
        secret = people.invite(session, "instructor", None, 1, seconds=people.FIRST_SECONDS)
    print(f"you become its instructor here, once: {address}/join#{secret}", flush=True)


def _demo_runner(address: str, token: str) -> Any:
    from tito.leaderboard import runner
    from tito.leaderboard.client import Client

    def run() -> None:
        runner.work(Client(address, token), lambda line: print(f"runner: {line}", flush=True))

    return run


@app.command(
    epilog=(
        "Examples:\n\ntito leaderboard runner --server https://board.example.org "
        "--token-file runner.token\n\ntito leaderboard runner --once"
    )
)
def runner(
    server: SERVER = None,
    token_file: Annotated[
        Path | None, typer.Option(help="The runner's token; else what `join` saved.")
    ] = None,
    once: Annotated[bool, typer.Option("--once", help="End when the queue is empty.")] = False,
    no_sandbox: Annotated[
        bool, typer.Option("--no-sandbox", help="Only where you trust every entry.")
    ] = False,
) -> None:
    """Measure what is in the queue, one entry at a time. Nothing else should run on the machine."""
    _need_extra()
    from tito.leaderboard import runner as runners
    from tito.leaderboard.client import ServerError, UnreachableError
    from tito.sandbox import NoSandboxError, Sandbox

    client = _client(server, token_file)
    before = signal.signal(signal.SIGTERM, signal.default_int_handler)  # as a service is stopped
    try:
        if not no_sandbox:
            Sandbox(confined=True, may_fork=False)  # says at once what is missing
        count = runners.work(
            client, lambda line: print(line, flush=True), confined=not no_sandbox, once=once
        )
    except KeyboardInterrupt:
        typer.echo("stopped; what was begun is back in the queue", err=True)
        raise typer.Exit(130) from None
    except (ServerError, UnreachableError, NoSandboxError) as error:
        typer.echo(str(error), err=True)
        raise typer.Exit(REFUSED) from None
    finally:
        signal.signal(signal.SIGTERM, before)
    print(f"{count} measured")


@app.command(epilog="Example: tito leaderboard join http://127.0.0.1:8765")
def join(server: Annotated[str, typer.Argument(help="Address of the server.")]) -> None:
    """Keep a server's address and your token, which its join page showed you."""
    _need_extra()
    from tito.leaderboard.client import VARIABLE, save_settings, settings_file

    address = server.partition("/join#")[0].rstrip("/")  # of a join link, too
    if not address.startswith(("http://", "https://")):
        raise typer.BadParameter(f"{server!r} is no address: write https://board.example.org")
    token = typer.prompt("token", hide_input=True)
    try:
        path = save_settings(address, token.strip())
    except OSError as error:
        typer.echo(
            f"{settings_file()} cannot be written: {error.strerror}; set {VARIABLE} and give "
            "--server instead, or XDG_CONFIG_HOME to another folder",
            err=True,
        )
        raise typer.Exit(REFUSED) from None
    print(f"saved for this user alone: {path}")


@app.command(
    epilog="Example: tito leaderboard event my-event/ --class 'systems 2026' --name fast-sort"
)
def event(
    folder: Annotated[Path, typer.Argument(help="event.toml, task.py, starter.py.")],
    classroom: Annotated[str, typer.Option("--class", help="Name of the class.")],
    name: Annotated[str, typer.Option(help="In addresses: a-z, 0-9 and -.")],
    database: DATABASE = "leaderboard.db",
    quota: Annotated[int, typer.Option(help="Entries of a person in 24 hours.")] = 20,
    launches: Annotated[int, typer.Option(help="Fresh processes of a measurement.")] = 8,
) -> None:
    """Open an event of your own: its code runs on the runners, so it comes from this machine."""
    _need_extra()
    from sqlalchemy import select

    from tito.compete.event import EventError
    from tito.leaderboard import events
    from tito.leaderboard.tables import Classroom

    try:
        with _open(database) as opened, opened.write() as session:
            room = session.scalar(select(Classroom).where(Classroom.name == classroom))
            if room is None:
                known = list(session.scalars(select(Classroom.name)))
                raise typer.BadParameter(console.unknown("class", classroom, known))
            made = events.add_event(
                session, None, room, name, str(folder), quota=quota, launches=launches
            )
            print(f"{made.name}: {made.title}, {made.division} division")
    except EventError as error:
        typer.echo(str(error), err=True)
        raise typer.Exit(REFUSED) from None


def submit(
    file: Annotated[Path, typer.Argument(help="One class in one file.")],
    event: Annotated[
        str | None, typer.Option(help="Name of the class's event; by default the file's header.")
    ] = None,
    server: SERVER = None,
    no_wait: Annotated[bool, typer.Option("--no-wait", help="Send it, and do not wait.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="For a machine to read.")] = False,
) -> None:
    """Enter a file in your class's competition, and wait until it is measured."""
    _need_extra()
    from tito.compete.entry import EntryError, read_entry
    from tito.leaderboard.client import ServerError, UnreachableError

    try:
        entry = read_entry(file)
        name = event or entry.event
        if name is None:
            raise EntryError(f"{file.name} does not say its event: give --event")
        client = _client(server, None)
        made = client.submit(name, file)
        try:
            told = made if no_wait else _wait(client, made["submission"])
        except KeyboardInterrupt:
            page = f"{client.server}/submissions/{made['submission']}"
            typer.echo(f"it is in the queue all the same: {page}", err=True)
            raise typer.Exit(130) from None
    except (EntryError, ServerError, UnreachableError) as error:
        typer.echo(str(error), err=True)
        raise typer.Exit(REFUSED) from None
    if as_json:
        console.print_json(told)
    else:
        _print(told, client.server)
    verdict = told.get("verdict")
    if not no_wait and verdict != "ok":
        raise typer.Exit(UNSCORED if verdict in ("noisy", "infrastructure") else REFUSED)


def _client(server: str | None, token_file: Path | None) -> Client:
    from tito.leaderboard.client import AGAIN, VARIABLE, Client, SettingsError, load_settings

    try:
        saved = load_settings()
        if token_file is not None:
            saved["token"] = token_file.read_bytes().decode("utf-8", "replace").strip()
    except SettingsError as error:
        raise typer.BadParameter(str(error)) from None
    except OSError as error:
        raise typer.BadParameter(f"{error.filename}: {error.strerror}") from None
    address = server or saved.get("server")
    if address is None or "token" not in saved:
        missing = "server" if address is None else "token"
        raise typer.BadParameter(
            f"no {missing} is known: {AGAIN}"
            + (f", or set {VARIABLE}" if missing == "token" else ", or give --server")
        )
    try:
        return Client(address, saved["token"])
    except SettingsError as error:
        raise typer.BadParameter(str(error)) from None


def _wait(client: Client, number: int) -> dict[str, Any]:
    """Until it is measured, with a progress bar; a server that is away is waited for."""
    from rich.progress import Progress

    from tito.leaderboard.client import UnreachableError

    with Progress(console=console.errors, transient=True) as progress:
        bar = progress.add_task(f"submission {number}", total=1.0)
        while True:
            try:
                told = client.submission(number)
            except UnreachableError as error:
                progress.update(bar, description=str(error))
                time.sleep(WAIT_SECONDS)
                continue
            if told["state"] == "done":
                return told
            text = f"{told['before']} before it" if told["state"] == "waiting" else "measuring"
            progress.update(bar, completed=told["progress"], description=text)
            time.sleep(WAIT_SECONDS)


def _print(told: dict[str, Any], server: str) -> None:
    page = f"{server}/submissions/{told['submission']}"
    if told.get("verdict") is None:
        print(f"submission {told['submission']}, {told['quota_left']} left today: {page}")
        return
    if told["verdict"] != "ok":
        typer.echo(f"{told['verdict']}: {told['text']}", err=True)
    if told.get("score") is not None:
        console.print_rows(
            ["case", "times numpy", "95 % interval", "ms"],
            [
                [c["case"], f"{c['ratio']:.3f}", f"{c['low']:.3f} to {c['high']:.3f}",
                 f"{c['milliseconds']:.2f}"]
                for c in told["cases"]
            ],
        )  # fmt: skip
        print(f"\nscore {told['score']:.3f}, {told['low']:.3f} to {told['high']:.3f}")
        print(f"on {told['machine']}")
    print(page)
