"""Opening, migrating, and what two transactions may do at once."""

from __future__ import annotations

import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any

import pytest
from alembic.autogenerate import compare_metadata
from alembic.migration import MigrationContext
from sqlalchemy import select, text
from sqlalchemy.exc import IntegrityError

from tito.compete.event import BUILT_IN
from tito.leaderboard import database as databases, events, people
from tito.leaderboard.database import Database, DatabaseError
from tito.leaderboard.tables import Base, Classroom, Person, Token


def test_the_migrations_make_the_tables(either: Database) -> None:
    """Nobody can change a table and forget its migration."""
    with either.engine.connect() as connection:
        context = MigrationContext.configure(connection, opts={"compare_type": True})
        assert compare_metadata(context, Base.metadata) == []
    either.migrate()  # and a second start does nothing


def test_two_servers_may_start_at_once(postgres_url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Both find no tables; the second waits for the first, and does not create them as well."""
    first, watcher = Database(postgres_url), Database(postgres_url)
    migrate = (
        "import sys\nfrom tito.leaderboard.database import Database as D\nD(sys.argv[1]).migrate()"
    )
    upgrade = databases.command.upgrade
    others: list[subprocess.Popen[bytes]] = []

    def upgrade_beside_another(*arguments: Any) -> None:
        upgrade(*arguments)  # not committed yet
        others.append(subprocess.Popen([sys.executable, "-c", migrate, postgres_url]))
        waiting = text("SELECT count(*) FROM pg_stat_activity WHERE wait_event_type = 'Lock'")
        while others[0].poll() is None:
            with watcher.engine.connect() as connection:
                if connection.scalar(waiting):
                    return
            time.sleep(0.05)

    monkeypatch.setattr(databases.command, "upgrade", upgrade_beside_another)
    try:
        first.migrate()
        assert others[0].wait() == 0
    finally:
        with first.engine.begin() as connection:
            connection.exec_driver_sql("DROP SCHEMA public CASCADE")
            connection.exec_driver_sql("CREATE SCHEMA public")
        first.close()
        watcher.close()


def test_references_are_held(either: Database) -> None:
    with pytest.raises(IntegrityError), either.write() as session:
        session.add(Token(person_id=99, hash="x", label=""))


def test_a_value_that_is_not_allowed_is_refused_by_the_database(either: Database) -> None:
    with pytest.raises(IntegrityError), either.write() as session:
        session.add(Person(pseudonym="eve", role="root"))


def test_a_transaction_is_whole_or_nothing(either: Database) -> None:
    with pytest.raises(ZeroDivisionError), either.write() as session:
        people.add_classroom(session, "a class")
        _ = 1 / 0
    with either.read() as session:
        assert session.scalars(select(Classroom)).all() == []


def test_an_event_with_a_long_title_is_opened(either: Database, tmp_path: Path) -> None:
    for file in BUILT_IN.joinpath("matmul").glob("*.*"):
        (tmp_path / file.name).write_text(file.read_text().replace("Products", 300 * "P"))
    with either.write() as session:
        room = people.add_classroom(session, "a class")
        assert events.add_event(session, None, room, "own", str(tmp_path)).title == 200 * "P"


def test_writers_wait_for_each_other(either: Database) -> None:
    """Reading and then writing what was read loses nothing."""
    with either.write() as session:
        secret = people.invite(session, "student", None, uses=8)
    joined: list[str] = []

    def one(number: int) -> None:
        try:
            with either.write() as session:
                people.join(session, secret, f"student {number}")
            joined.append("yes")
        except people.PeopleError:
            joined.append("no")

    threads = [threading.Thread(target=one, args=(i,)) for i in range(12)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(joined) == ["no"] * 4 + ["yes"] * 8


@pytest.mark.parametrize("url", [
    "mysql://x/y", "nothing://x", "postgresql+absent://x", "postgres://me:password@x/y", "sqlite://",
])  # fmt: skip
def test_another_database_is_refused_in_a_sentence(url: str) -> None:
    said = r"is not supported|no database that can be opened|in memory is lost"
    with pytest.raises(DatabaseError, match=said) as refused:
        Database(url)
    assert "begins with postgresql+psycopg://" in str(refused.value)
    assert "password" not in str(refused.value)


def test_tables_of_a_newer_version_are_left_alone(either: Database) -> None:
    with either.engine.begin() as connection:
        connection.exec_driver_sql("UPDATE alembic_version SET version_num = '9999'")
    with pytest.raises(DatabaseError, match=r"a newer TinyTorch's, or another program's: .*9999"):
        either.migrate()


def test_a_path_is_a_file_of_sqlite(tmp_path: Path) -> None:
    database = Database(str(tmp_path / "x.db"))
    database.migrate()
    database.close()
    assert (tmp_path / "x.db").read_bytes().startswith(b"SQLite format 3")
