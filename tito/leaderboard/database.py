"""The leaderboard's database: a file of SQLite, or PostgreSQL by its URL."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from alembic import command
from alembic.config import Config
from alembic.util import CommandError
from sqlalchemy import Engine, create_engine, event, func, select
from sqlalchemy.exc import ArgumentError, NoSuchModuleError
from sqlalchemy.orm import Session

MIGRATIONS = Path(__file__).with_name("migrations")
BUSY_SECONDS = 30.0
POOL = 20
HOW = "give a file's path, or a URL that begins with postgresql+psycopg://"
MIGRATING = 0x7469746F  # the number of an advisory lock of PostgreSQL


class DatabaseError(Exception):
    """It cannot be opened; the text says why."""


class Database:
    """Connections, and transactions that are whole or nothing.

    Args:
        url: as SQLAlchemy writes it; a path stands for a file of SQLite.

    Raises:
        DatabaseError: the URL is none, or names a database that is not supported.
    """

    def __init__(self, url: str) -> None:
        self.url = url if "://" in url else f"sqlite:///{Path(url).resolve()}"
        try:
            self.engine = create_engine(
                self.url, pool_size=POOL, max_overflow=POOL, pool_pre_ping=True
            )
        except (ArgumentError, NoSuchModuleError, ModuleNotFoundError) as error:
            kind = url.partition("://")[0]  # a password may follow
            raise DatabaseError(
                f"{kind!r} is no database that can be opened ({error}): {HOW}"
            ) from None
        except TypeError:  # it has no pool of connections
            raise DatabaseError(f"what is in memory is lost at the end: {HOW}") from None
        if self.engine.dialect.name not in ("sqlite", "postgresql"):
            raise DatabaseError(f"{self.engine.dialect.name} is not supported: {HOW}")
        if self.engine.dialect.name == "sqlite":
            _prepare_sqlite(self.engine)
        else:  # whatever the server's default: who has waited for a row sees what is there then
            self.engine = self.engine.execution_options(isolation_level="READ COMMITTED")

    def migrate(self) -> None:
        """Create the tables, or bring those of an older version up to date.

        Raises:
            DatabaseError: they are of a newer version, or another program's.
        """
        config = Config()
        config.set_main_option("script_location", str(MIGRATIONS))
        with self.engine.execution_options(writes=True).begin() as connection:
            if self.engine.dialect.name == "postgresql":  # or two that start at once both create
                connection.execute(select(func.pg_advisory_xact_lock(MIGRATING)))
            config.attributes["connection"] = connection
            try:
                command.upgrade(config, "head")
            except CommandError as error:
                raise DatabaseError(
                    f"its tables are a newer TinyTorch's, or another program's: {error}"
                ) from None

    @contextmanager
    def read(self) -> Iterator[Session]:
        """A transaction that only looks."""
        with Session(self.engine) as session:
            yield session

    @contextmanager
    def write(self) -> Iterator[Session]:
        """A transaction that is committed at the end, or not at all."""
        bind = self.engine.execution_options(writes=True)
        with Session(bind, expire_on_commit=False) as session, session.begin():
            yield session

    def close(self) -> None:
        """Give all connections back."""
        self.engine.dispose()


def _prepare_sqlite(engine: Engine) -> None:
    """A writer takes the lock at its first statement: two cannot both read, and then both write."""

    @event.listens_for(engine, "connect")
    def connect(connection: sqlite3.Connection, _: Any) -> None:
        connection.isolation_level = None  # the driver's own BEGIN comes too late
        for setting in (
            "journal_mode = WAL",
            "synchronous = FULL",
            "foreign_keys = ON",
            f"busy_timeout = {int(BUSY_SECONDS * 1000)}",
        ):
            connection.execute(f"PRAGMA {setting}")

    @event.listens_for(engine, "begin")
    def begin(connection: Any) -> None:
        writes = connection.get_execution_options().get("writes")
        connection.exec_driver_sql("BEGIN IMMEDIATE" if writes else "BEGIN")
