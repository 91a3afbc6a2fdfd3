"""Grade an assignment: every submission, many at once, to the end, whatever is in them."""

from __future__ import annotations

import base64
import hashlib
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

import tinytorch
from tito.course import states
from tito.course.config import LOG, Course, CourseError, quiet
from tito.course.exam.job import Job, Transcript
from tito.course.exam.judge import Verdict
from tito.course.exam.jury import Jury
from tito.course.exam.key import Key, make_key
from tito.course.exam.pool import Pool
from tito.course.history import attempts, audit
from tito.course.notebook import (
    UnreadableError,
    course_cells,
    grade_id,
    hidden_tests,
    missing_exercises,
    read_notebook,
    restore,
)
from tito.course.record import Assignment, units, with_outputs, without_examples
from tito.course.replaced import Answer, answers, replaced
from tito.course.states import State, States
from tito.course.students.marks import settle
from tito.course.tables import database
from tito.lessons.source import Package

FILES_BYTES = 10 << 20  # of what lies beside a notebook, together


@dataclass(frozen=True)
class Submission:
    """A notebook that a student handed in."""

    student: str
    notebook: str
    path: Path


@dataclass(frozen=True)
class Exam:
    """A notebook of the course: the source, its answer key, and a digest of both."""

    source: Any
    key: Key
    digest: str


def exam(course: Course, path: Path, *, assignment: str, confined: bool) -> Exam:
    """The notebook in `source/`, with its key.

    Raises:
        InstrumentError: the reference does not pass its own tests.
        InfrastructureError: there is no sandbox.
    """
    source = read_notebook(path)
    budget = course.budget_for(assignment)
    key = make_key(course_cells(source), hidden_tests(source), budget=budget, confined=confined)
    also = repr((tinytorch.__version__, asdict(budget)))
    digest = hashlib.sha256(path.read_bytes() + also.encode()).hexdigest()
    return Exam(source, key, digest)


@dataclass
class _Prepared:
    """A submission on its way: what runs, and what was heard of it.

    Attributes:
        verdicts: by test; one that passed stays.
        left: exercises that are still to be run on their own.
    """

    submission: Submission
    digest: str
    node: Any
    job: Job
    answers: list[Answer]
    result: Transcript | Exception = field(default_factory=Transcript)
    verdicts: dict[str, Verdict] = field(default_factory=dict)
    left: set[str] = field(default_factory=set)

    def failed(self, tests: Sequence[str]) -> bool:
        return any(not self.verdicts[t].passed for t in tests if t in self.verdicts)


class Grader:
    """Grades one assignment.

    Args:
        confined: False runs submissions without a sandbox; the states say so.
        force: grade again what is graded already.
    """

    def __init__(
        self,
        course: Course,
        assignment: str,
        *,
        confined: bool = True,
        force: bool = False,
        students: Sequence[str] = (),
    ) -> None:
        self.course = course
        self.assignment = Assignment(course, assignment)
        self.name = assignment
        self.confined = confined
        self.force = force
        self.students = set(students)
        self.prepared: dict[tuple[str, str], _Prepared] = {}
        self.kept: dict[tuple[str, str], str] = {}  # digests of what is being graded
        self.package = Package(Path(tinytorch.__file__).resolve().parents[1])

    def run(self, pool: Pool, on_progress: Callable[[State | None, int], None]) -> list[State]:
        """Grade all that is to be graded.

        Args:
            on_progress: told the number of submissions, then every state as it is reached.

        Returns:
            The states of this run; those that were graded before are not among them.

        Raises:
            CourseError: there is nothing to grade, or no database.
            InstrumentError: the reference does not pass its own tests.
        """
        self.exams = {
            path.stem: exam(self.course, path, assignment=self.name, confined=self.confined)
            for path in self._sources()
        }
        with database(self.course) as self.engine:
            self.states = States(self.engine)
            todo = list(self._todo())
            on_progress(None, len(todo))
            reached = []
            if todo:
                audit.note(self.engine, "grade", self.name, submissions=len(todo), force=self.force)
            with Jury(confined=self.confined) as self.jury:
                for state in self._graded(pool, todo):
                    self._remember(state)
                    self.states.put(state)
                    on_progress(state, len(todo))
                    reached.append(state)
            if todo:
                count = dict(Counter(state.state for state in reached))
                audit.note(self.engine, "graded", self.name, states=count)
        settle(self.course)
        return reached

    def _keep(self, submission: Submission) -> None:
        """Keep the file as an attempt, whoever has put it there."""
        path = submission.path
        if path.is_symlink() or not path.is_file():
            return
        content, time = path.read_bytes(), attempts.handed_in(path.parent, path)
        attempts.keep(
            self.course, self.engine, self.name, submission.student, path.name, content, time
        )
        digest = attempts.digest_of(content)
        self.kept[submission.student, submission.notebook] = digest

    def _remember(self, state: State) -> None:
        """Add what the attempt got to its results."""
        digest = self.kept.pop((state.student, state.notebook), None)
        if digest is None or not state.done:
            return
        with quiet(), self.course.gradebook() as gradebook:
            found = gradebook.find_submission_notebook(state.notebook, self.name, state.student)
            tests = {g.cell.name: (float(g.score), float(g.max_score)) for g in found.grades}
        attempts.graded(
            self.engine, self.name, state.student, state.notebook, digest, state.state, tests
        )

    def _sources(self) -> list[Path]:
        """The instructor's notebooks, which have to be those that the gradebook knows."""
        paths = sorted(self.course.folder("source", ".", self.name).glob("*.ipynb"))
        with quiet(), self.course.gradebook() as gradebook:
            known = {
                notebook.name: {cell.name: cell.source for cell in notebook.source_cells}
                for each in gradebook.assignments
                if each.name == self.name
                for notebook in each.notebooks
            }
        if not paths or set(known) != {path.stem for path in paths}:
            raise self.course.not_generated(self.name)
        for path in paths:
            tests = {c.id: c.text for c in course_cells(read_notebook(path)) if c.kind == "test"}
            if any(known[path.stem].get(name) != text for name, text in tests.items()):
                raise CourseError(
                    f"{path} has changed since the assignment was made: "
                    f"tito course generate {self.name}"
                )
        return paths

    def submissions(self) -> list[Submission]:
        """What lies in `submitted/`: the notebooks of this assignment that the course knows."""
        found = []
        for folder in sorted(self.course.root.glob(f"submitted/*/{self.name}")):
            student = folder.parent.name
            if self.students and student not in self.students:
                continue
            found += [
                Submission(student, name, folder / f"{name}.ipynb")
                for name in self.exams
                if (folder / f"{name}.ipynb").exists()
            ]
        missing = self.students - {s.student for s in found}
        if missing:
            raise CourseError(f"nothing was submitted for {self.name} by {', '.join(missing)}")
        return found

    def _todo(self) -> Iterator[tuple[Submission, str]]:
        """What is not graded yet, or has changed since."""
        known = self.states.all(self.name)
        for submission in self.submissions():
            digest = self._digest(submission)
            state = known.get((self.name, submission.student, submission.notebook))
            if self.force or state is None or not state.done or state.digest != digest:
                yield submission, digest

    def _digest(self, submission: Submission) -> str:
        made = hashlib.sha256(self.exams[submission.notebook].digest.encode())
        for path in sorted(submission.path.parent.rglob("*")):
            if path.is_file() and not path.is_symlink():
                made.update(path.name.encode() + b"\0" + path.read_bytes())
        return made.hexdigest()

    def _graded(self, pool: Pool, todo: Sequence[tuple[Submission, str]]) -> Iterator[State]:
        early: list[State] = []
        again: list[tuple[tuple[str, str], str]] = []
        for name, result in pool.run(self._jobs(todo, early)):
            yield from _taken(early)
            wanted = self._judge_first_run(self.prepared[name], result)
            again += [(name, exercise) for exercise in wanted]
            if not wanted:
                yield self._finish(self.prepared.pop(name))
        yield from _taken(early)
        for (name, exercise), result in pool.run(self._single(again)):
            prepared = self.prepared[name]
            prepared.left.discard(exercise)
            self._judge_second_run(prepared, exercise, result)
            if not prepared.left:
                yield self._finish(self.prepared.pop(name))

    def _judge_first_run(self, prepared: _Prepared, result: Transcript | Exception) -> list[str]:
        """Judge what was heard; the exercises that may have failed for the faults of others.

        Those are run again, in a package in which only their own definitions are the student's.
        """
        prepared.result = result
        self._judge(prepared, result, [test.id for test in prepared.job.tests])
        wrong = [a for a in prepared.answers if prepared.failed(self._tests_of(prepared, a.id))]
        if isinstance(prepared.result, Exception) or len(wrong) < 2:
            return []
        prepared.left = {a.id for a in wrong if a.written}
        return [a.id for a in wrong if a.written]

    def _judge_second_run(
        self, prepared: _Prepared, exercise: str, result: Transcript | Exception
    ) -> None:
        if isinstance(result, Exception) or isinstance(prepared.result, Exception):
            prepared.result = result if isinstance(result, Exception) else prepared.result
            return
        before = dict(prepared.verdicts)
        self._judge(prepared, result, self._tests_of(prepared, exercise))
        prepared.verdicts |= {name: v for name, v in before.items() if v.passed}
        for unit, cell in result.cells.items():
            prepared.result.cells.setdefault(unit, cell)
        prepared.result.seconds += result.seconds
        prepared.result.attempts += result.attempts

    def _judge(
        self, prepared: _Prepared, result: Transcript | Exception, names: Sequence[str]
    ) -> None:
        """Add the verdicts on tests."""
        if isinstance(result, Exception):
            return
        try:
            tests = self.exams[prepared.submission.notebook].key.tests
            for name in names:
                verdict = self.jury.judge(
                    tests[name], result.tests.get(name), result.ended.get(name)
                )
                prepared.verdicts[name] = verdict
        except Exception as error:  # the judge's fault is not the student's
            LOG.debug("judging %s", prepared.submission, exc_info=True)
            prepared.result = error
        result.tests.clear()  # it may be large

    def _tests_of(self, prepared: _Prepared, exercise: str) -> list[str]:
        """The test cells of an exercise, by the metadata of the course's notebook."""
        cells = self.exams[prepared.submission.notebook].source.cells
        return [
            str(grade_id(cell))
            for cell in cells
            if cell.metadata.get("tinytorch", {}).get("for") == exercise
        ]

    def _single(
        self, wanted: Sequence[tuple[tuple[str, str], str]]
    ) -> Iterator[tuple[tuple[tuple[str, str], str], Job]]:
        for name, exercise in wanted:
            prepared = self.prepared[name]
            tests = self._tests_of(prepared, exercise)
            job = prepared.job
            questions = tuple(t for t in job.tests if t.id in tests)
            package = replaced(prepared.answers, self.package, only=[exercise])
            cells = without_examples(job.units)
            yield (name, exercise), replace(job, units=cells, tests=questions, package=package)

    def _jobs(
        self, todo: Sequence[tuple[Submission, str]], early: list[State]
    ) -> Iterator[tuple[tuple[str, str], Job]]:
        """A job for each submission; what has none is put into `early` with its state."""
        for submission, digest in todo:
            try:
                self._keep(submission)
                prepared = self._prepare(submission, digest)
            except UnreadableError as error:
                early.append(self._unreadable(submission, digest, str(error)))
            except Exception as error:  # one bad notebook never stops the batch
                LOG.debug("preparing %s", submission, exc_info=True)
                early.append(self._failed(submission, digest, error))
            else:
                self.states.put(self._state(submission, states.RUNNING, digest))
                self.prepared[submission.student, submission.notebook] = prepared
                yield (submission.student, submission.notebook), prepared.job

    def _prepare(self, submission: Submission, digest: str) -> _Prepared:
        mine = self.exams[submission.notebook]
        if any(path.is_symlink() for path in submission.path.parent.rglob("*")):
            raise UnreadableError("there is a link among the files; only files are taken")
        restored = restore(read_notebook(submission.path), mine.source)
        node = self.assignment.sanitize(submission.student, submission.notebook, restored)
        mine_in_it = answers(node, mine.source)
        job = Job(
            units=units(node, mine.source, mine.key.tests),
            tests=mine.key.to_run(),
            budget=self.course.budget_for(self.name),
            confined=self.confined,
            files=self._files(submission),
            package=replaced(mine_in_it, self.package),
        )
        return _Prepared(submission, digest, node, job, mine_in_it)

    def _files(self, submission: Submission) -> dict[str, str]:
        """What lies beside the notebook; where the course has a file of that name, the course's."""
        folders = (submission.path.parent, self.course.folder("source", ".", self.name))
        files = {
            path.name: path
            for folder in folders
            for path in sorted(folder.glob("*"))
            if path.is_file() and path.suffix != ".ipynb" and path.name != "timestamp.txt"
        }
        if sum(path.stat().st_size for path in files.values()) > FILES_BYTES:
            raise UnreadableError(f"the files beside it are over {FILES_BYTES >> 20} MiB")
        return {n: base64.b64encode(p.read_bytes()).decode() for n, p in files.items()}

    def _finish(self, prepared: _Prepared) -> State:
        """Record the grade; what fails here is no fault of the student."""
        submission, digest, result = prepared.submission, prepared.digest, prepared.result
        if not isinstance(result, Transcript):
            return self._failed(submission, digest, result)
        try:
            graded = with_outputs(prepared.node, result, prepared.verdicts)
            self.assignment.record(submission.student, submission.notebook, submission.path, graded)
        except Exception as error:
            LOG.debug("recording %s", submission, exc_info=True)
            return self._failed(submission, digest, error)
        missing = missing_exercises(prepared.node, self.exams[submission.notebook].source)
        said = [f"it has no cell of {', '.join(missing)}"] if missing else []
        return replace(
            self._state(submission, states.GRADED, digest),
            detail="; ".join([*said, *dict.fromkeys(result.ended.values())]),
            level=result.level,
            seconds=result.seconds,
            attempts=result.attempts,
        )

    def _unreadable(self, submission: Submission, digest: str, reason: str) -> State:
        try:
            self.assignment.record_unreadable(submission.student, submission.notebook)
        except Exception as error:
            return self._failed(submission, digest, error)
        return replace(self._state(submission, states.UNREADABLE, digest), detail=reason)

    def _failed(self, submission: Submission, digest: str, error: Exception) -> State:
        detail = f"{type(error).__name__}: {error}"
        return replace(self._state(submission, states.FAILED, digest), detail=detail)

    def _state(self, submission: Submission, state: str, digest: str) -> State:
        return State(self.name, submission.student, submission.notebook, state, digest)


def _taken(states: list[State]) -> Iterator[State]:
    while states:
        yield states.pop(0)
