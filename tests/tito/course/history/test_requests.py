"""Regrade requests: asked, answered in a table, shown to the student."""

from __future__ import annotations

import csv
import io

import pytest

from tests.tito.course.conftest import ASSIGNMENT
from tito.course.config import Course, CourseError
from tito.course.feedback import feedback
from tito.course.history.audit import entries
from tito.course.history.requests import answer, ask, from_csv, requests, to_csv
from tito.course.states import UNREADABLE, State
from tito.course.tables import database


def test_answers_come_back_in_the_column_that_was_empty(course: Course) -> None:
    with database(course) as engine:
        ask(engine, ASSIGNMENT, "ada", "=why?", "clamp-values")
        ask(engine, ASSIGNMENT, "bob", "and me?")
        answer(engine, 2, "no")
        table = list(csv.DictReader(io.StringIO(to_csv(requests(engine, unanswered=True)))))
        assert [(row["id"], row["text"], row["answer"]) for row in table] == [("1", "'=why?", "")]
        text = to_csv(requests(engine)).replace("'=why?,,", "'=why?,three points more,")
        assert [r.id for r in from_csv(course, engine, text.encode(), "r.csv")] == [1]
        assert from_csv(course, engine, text.encode(), "r.csv") == []  # once is enough
        found = requests(engine)
        assert [(r.text, r.answer) for r in found] == [
            ("=why?", "three points more"), ("and me?", "no"),
        ]  # fmt: skip
        assert found[0].answered_by
        answer(engine, 2, "well, yes")
        assert requests(engine)[1].answer == "no\nwell, yes"
        assert [e.action for e in entries(engine)] == ["request"] * 2 + ["answer"] * 3


def test_a_table_from_a_form_is_new_requests(course: Course) -> None:
    head = b"student,assignment,text,test\n"
    data = head + b'ada,small,"why, though",\nbob,small,me too,clamp-values\n'
    with database(course) as engine:
        from_csv(course, engine, data, "form.csv")
        found = [(r.student, r.text, r.test) for r in requests(engine)]
    assert found == [("ada", "why, though", ""), ("bob", "me too", "clamp-values")]


def test_a_wrong_table_changes_nothing(course: Course) -> None:
    with database(course) as engine:
        ask(engine, ASSIGNMENT, "ada", "why?")
        for data, said in [
            (b"id,answer\n1,yes\n7,no\n", "no request '7'"),
            ("id,answer\n1,yes\n²,no\n".encode(), "no request '²'"),
            (b"id,answer\n1,yes\n,no\n", "needs student, assignment and text"),
            (b"name,text\nada,why\n", "no column 'student'"),
            (b"student,assignment,text\nada,small,why\nada,smal,why\n", "'smal' is not generated"),
        ]:
            with pytest.raises(CourseError, match=said):
                from_csv(course, engine, data, "r.csv")
        assert [each.answer for each in requests(engine)] == [""]
        with pytest.raises(CourseError, match="no request 9"):
            answer(engine, 9, "yes")
        with pytest.raises(CourseError, match="is empty"):
            answer(engine, 1, " ")


def test_the_students_page_has_request_and_answer(course: Course) -> None:
    with database(course) as engine:
        ask(engine, ASSIGNMENT, "ada", "is <b>this</b> right?")
        answer(engine, 1, "a & b")
        asked = requests(engine)
    state = State(ASSIGNMENT, "ada", ASSIGNMENT, UNREADABLE, "", "no JSON")
    page = feedback(course, state, None, asked)
    assert page is not None
    text = page.read_text("utf-8")
    assert "is &lt;b&gt;this&lt;/b&gt; right?</dt><dd>a &amp; b</dd>" in text
