"""Pseudonyms that a reader takes for one are refused."""

from __future__ import annotations

import threading
from collections.abc import Iterator

import pytest

from tito.leaderboard import names, people
from tito.leaderboard.database import Database
from tito.leaderboard.names import look_alike, mixes_scripts


@pytest.mark.parametrize("other", [
    "Alice", "ALICE", "al ice", "al_ice", "al.i-ce", "\uff41lice", "a1ice", "AIice", "a\u0131ice",
    "\U0001d41alice",
])  # fmt: skip
def test_alice_is_one(other: str) -> None:
    assert look_alike("alice", other) and look_alike(other, "alice")


@pytest.mark.parametrize(("latin", "other"), [
    ("cop", "\u0441\u043e\u0440"), ("BOB", "\u0412\u041e\u0412"),
    ("NATA", "\u039d\u0391\u03a4\u0391"), ("aba", "\u03b1\u03b2\u03b1"),
    ("\u039d\u03b9\u03ba\u03bf\u03c2", "\u03bd\u03b9\u03ba\u03bf\u03c2"),
    ("arnold", "amold"), ("3abc", "\u0663abc"), ("Alice", "A\u0196ice"), ("bob", "\u0185o\u0185"),
    ("jane", "\u0237ane"), ("\u30ab\u30a8\u30eb", "\u529b\u5de5\u30eb"),
    ("\u3078\u3044\u308f", "\u30d8\u3044\u308f"), ("\u4e00\u30ed", "\u30fc\u53e3"),
])  # fmt: skip
def test_letters_of_other_scripts_that_look_latin(latin: str, other: str) -> None:
    assert look_alike(latin, other)


@pytest.mark.parametrize(("seen", "other"), [
    ("\uae40\ucca0\uc218", "\uae40\u1160\ucca0\uc218\uffa0"),
    ("\u0645\u062d\u0645\u062f", "\u0645\u062d\u0640\u0645\u062f"),
    ("", "\u3164\u115f\u1160"),
])  # fmt: skip
def test_letters_that_nobody_sees_are_left_out(seen: str, other: str) -> None:
    assert names.normalized(other) == seen


@pytest.mark.parametrize(("one", "another"), [
    ("team 1", "team 2"), ("student 1", "student 11"), ("mary", "marie"), ("jose", "jos\u00e9"),
    ("ada", "\u0430\u0434\u0430"),
])  # fmt: skip
def test_others_are_two(one: str, another: str) -> None:
    assert not look_alike(one, another)


@pytest.mark.parametrize("name", [
    "Ada 1815", "Jos\u00e9", "\u0141ukasz", "\u0416\u0430\u043d", "\u305f\u308d\u3046\u592a\u90ce",
    "\uae40\ucca0\uc218", "\u0e2a\u0e21", "\u0623\u062d\u0645\u062f", "x_1", "___",
])  # fmt: skip
def test_names_of_one_script(name: str) -> None:
    assert not mixes_scripts(name)


@pytest.mark.parametrize("name", [
    "\u0430lice", "\u03bfne", "ali\u0441e", "\u0251lice", "\u01c0da", "\u13a0bc",
    "\U00010428\U00010429",
])  # fmt: skip
def test_mixed_and_strange_scripts(name: str) -> None:
    assert mixes_scripts(name)


def test_the_shape_of_a_taken_name_is_computed_once(monkeypatch: pytest.MonkeyPatch) -> None:
    computed: list[str] = []
    monkeypatch.setattr(names, "normalized", lambda name: computed.append(name) or name)
    taken = [f"computed once {i}" for i in range(20)]
    for new in ("the first new name", "the second new name"):
        assert not any(look_alike(name, new) for name in taken)
    assert sorted(computed) == sorted([*taken, "the first new name", "the second new name"])


def test_who_joins_second_is_refused(either: Database) -> None:
    with either.write() as session:
        people.add_person(session, "Al  ice", "student", None)
    for name in ("alice", "Al ice", "a1ice"):
        with pytest.raises(people.PeopleError, match="is taken, or looks"), either.write() as s:
            people.add_person(s, name, "student", None)
    with pytest.raises(people.PeopleError, match="is taken, or looks"), either.write() as session:
        people.add_person(session, "The Server", "student", None)  # in the audit log it is nobody
    with pytest.raises(people.PeopleError, match="of several scripts"), either.write() as session:
        people.add_person(session, "\u0430lice", "student", None)


def test_two_join_at_once(either: Database) -> None:
    with either.write() as session:
        people.add_person(session, "teacher", "instructor", None)
        secrets = [people.invite(session, "student", None, uses=1) for _ in range(8)]
    joined: list[str] = []

    def one(secret: str, name: str) -> None:
        try:
            with either.write() as session:
                joined.append(people.join(session, secret, name).pseudonym)
        except people.PeopleError:
            pass

    given = ["alice", "Alice", "ALICE", "a1ice", "AIice", "al ice", "al_ice", "aLice"]
    threads = [threading.Thread(target=one, args=pair) for pair in zip(secrets, given, strict=True)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(joined) == 1


@pytest.fixture(params=["repeatable read", "serializable"])
def strict(request: pytest.FixtureRequest, postgres_url: str) -> Iterator[Database]:
    """A PostgreSQL whose transactions see by default what was there when they began."""
    level = request.param
    made = Database(postgres_url)
    with made.engine.begin() as connection:
        connection.exec_driver_sql(f"ALTER ROLE tito SET default_transaction_isolation = '{level}'")
    made.close()
    made.migrate()
    yield made
    with made.engine.begin() as connection:
        connection.exec_driver_sql("ALTER ROLE tito RESET default_transaction_isolation")
        connection.exec_driver_sql("DROP SCHEMA public CASCADE")
        connection.exec_driver_sql("CREATE SCHEMA public")
    made.close()


def test_two_join_at_once_whatever_the_isolation_that_is_the_default(strict: Database) -> None:
    test_two_join_at_once(strict)
