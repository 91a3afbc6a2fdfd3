"""The first tables."""

import sqlalchemy as sa
from alembic import op

revision, down_revision = "0001", None


def upgrade() -> None:
    op.create_table(
        "classroom",
        sa.Column("id", sa.Integer(), nullable=False),
        sa.Column("name", sa.String(length=80), nullable=False),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_classroom")),
        sa.UniqueConstraint("name", name=op.f("uq_classroom_name")),
    )
    op.create_table(
        "code",
        sa.Column("sha256", sa.String(length=64), nullable=False),
        sa.Column("text", sa.Text(), nullable=False),
        sa.PrimaryKeyConstraint("sha256", name=op.f("pk_code")),
    )
    op.create_table(
        "event",
        sa.Column("id", sa.Integer(), nullable=False),
        sa.Column("classroom_id", sa.Integer(), nullable=False),
        sa.Column("name", sa.String(length=60), nullable=False),
        sa.Column("title", sa.String(length=200), nullable=False),
        sa.Column("division", sa.String(length=12), nullable=False),
        sa.Column("state", sa.String(length=12), nullable=False),
        sa.Column("deadline", sa.Double(), nullable=True),
        sa.Column("quota", sa.Integer(), nullable=False),
        sa.Column("launches", sa.Integer(), nullable=False),
        sa.Column("beside", sa.JSON(), nullable=False),
        sa.Column("created", sa.Double(), nullable=False),
        sa.CheckConstraint(
            "state IN ('open', 'frozen', 'closing', 'closed')", name=op.f("ck_event_state")
        ),
        sa.ForeignKeyConstraint(
            ["classroom_id"], ["classroom.id"], name=op.f("fk_event_classroom_id")
        ),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_event")),
        sa.UniqueConstraint("classroom_id", "name", name=op.f("uq_event_classroom_id")),
    )
    op.create_table(
        "invitation",
        sa.Column("id", sa.Integer(), nullable=False),
        sa.Column("hash", sa.String(length=64), nullable=False),
        sa.Column("role", sa.String(length=12), nullable=False),
        sa.Column("classroom_id", sa.Integer(), nullable=True),
        sa.Column("uses_left", sa.Integer(), nullable=False),
        sa.Column("expires", sa.Double(), nullable=False),
        sa.CheckConstraint(
            "role IN ('student', 'instructor', 'runner', 'house')", name=op.f("ck_invitation_role")
        ),
        sa.ForeignKeyConstraint(
            ["classroom_id"], ["classroom.id"], name=op.f("fk_invitation_classroom_id")
        ),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_invitation")),
        sa.UniqueConstraint("hash", name=op.f("uq_invitation_hash")),
    )
    op.create_table(
        "person",
        sa.Column("id", sa.Integer(), nullable=False),
        sa.Column("pseudonym", sa.String(length=40), nullable=False),
        sa.Column("role", sa.String(length=12), nullable=False),
        sa.Column("classroom_id", sa.Integer(), nullable=True),
        sa.Column("created", sa.Double(), nullable=False),
        sa.Column("seen", sa.Double(), nullable=True),
        sa.Column("about", sa.JSON(), nullable=False),
        sa.CheckConstraint(
            "role IN ('student', 'instructor', 'runner', 'house')", name=op.f("ck_person_role")
        ),
        sa.ForeignKeyConstraint(
            ["classroom_id"], ["classroom.id"], name=op.f("fk_person_classroom_id")
        ),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_person")),
        sa.UniqueConstraint("pseudonym", name=op.f("uq_person_pseudonym")),
    )
    op.create_table(
        "audit",
        sa.Column("id", sa.Integer(), nullable=False),
        sa.Column("at", sa.Double(), nullable=False),
        sa.Column("actor_id", sa.Integer(), nullable=True),
        sa.Column("action", sa.String(length=60), nullable=False),
        sa.Column("subject", sa.String(length=120), nullable=False),
        sa.Column("details", sa.Text(), nullable=False),
        sa.ForeignKeyConstraint(["actor_id"], ["person.id"], name=op.f("fk_audit_actor_id")),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_audit")),
    )
    op.create_table(
        "event_version",
        sa.Column("id", sa.Integer(), nullable=False),
        sa.Column("event_id", sa.Integer(), nullable=False),
        sa.Column("digest", sa.String(length=64), nullable=False),
        sa.Column("files", sa.JSON(), nullable=False),
        sa.Column("created", sa.Double(), nullable=False),
        sa.ForeignKeyConstraint(["event_id"], ["event.id"], name=op.f("fk_event_version_event_id")),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_event_version")),
    )
    op.create_index(op.f("ix_event_version_event_id"), "event_version", ["event_id"], unique=False)
    op.create_table(
        "session",
        sa.Column("id", sa.Integer(), nullable=False),
        sa.Column("person_id", sa.Integer(), nullable=False),
        sa.Column("hash", sa.String(length=64), nullable=False),
        sa.Column("csrf", sa.String(length=64), nullable=False),
        sa.Column("expires", sa.Double(), nullable=False),
        sa.ForeignKeyConstraint(["person_id"], ["person.id"], name=op.f("fk_session_person_id")),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_session")),
        sa.UniqueConstraint("hash", name=op.f("uq_session_hash")),
    )
    op.create_index(op.f("ix_session_person_id"), "session", ["person_id"], unique=False)
    op.create_table(
        "submission",
        sa.Column("id", sa.Integer(), nullable=False),
        sa.Column("event_id", sa.Integer(), nullable=False),
        sa.Column("person_id", sa.Integer(), nullable=False),
        sa.Column("code_sha256", sa.String(length=64), nullable=True),
        sa.Column("class_name", sa.String(length=200), nullable=False),
        sa.Column("baseline", sa.String(length=20), nullable=True),
        sa.Column("created", sa.Double(), nullable=False),
        sa.Column("hidden", sa.Boolean(), nullable=False),
        sa.Column("disqualified", sa.Text(), nullable=True),
        sa.ForeignKeyConstraint(
            ["code_sha256"], ["code.sha256"], name=op.f("fk_submission_code_sha256")
        ),
        sa.ForeignKeyConstraint(["event_id"], ["event.id"], name=op.f("fk_submission_event_id")),
        sa.ForeignKeyConstraint(["person_id"], ["person.id"], name=op.f("fk_submission_person_id")),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_submission")),
    )
    op.create_index(op.f("ix_submission_event_id"), "submission", ["event_id"], unique=False)
    op.create_index(op.f("ix_submission_person_id"), "submission", ["person_id"], unique=False)
    op.create_table(
        "token",
        sa.Column("id", sa.Integer(), nullable=False),
        sa.Column("person_id", sa.Integer(), nullable=False),
        sa.Column("hash", sa.String(length=64), nullable=False),
        sa.Column("label", sa.String(length=80), nullable=False),
        sa.Column("created", sa.Double(), nullable=False),
        sa.Column("revoked", sa.Double(), nullable=True),
        sa.ForeignKeyConstraint(["person_id"], ["person.id"], name=op.f("fk_token_person_id")),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_token")),
        sa.UniqueConstraint("hash", name=op.f("uq_token_hash")),
    )
    op.create_index(op.f("ix_token_person_id"), "token", ["person_id"], unique=False)
    op.create_table(
        "job",
        sa.Column("id", sa.Integer(), nullable=False),
        sa.Column("kind", sa.String(length=12), nullable=False),
        sa.Column("version_id", sa.Integer(), nullable=False),
        sa.Column("state", sa.String(length=12), nullable=False),
        sa.Column("attempts", sa.Integer(), nullable=False),
        sa.Column("progress", sa.Double(), nullable=False),
        sa.Column("lease", sa.String(length=64), nullable=True),
        sa.Column("lease_until", sa.Double(), nullable=True),
        sa.Column("runner_id", sa.Integer(), nullable=True),
        sa.Column("asked_by", sa.Integer(), nullable=True),
        sa.Column("created", sa.Double(), nullable=False),
        sa.Column("started", sa.Double(), nullable=True),
        sa.Column("finished", sa.Double(), nullable=True),
        sa.Column("note", sa.Text(), nullable=False),
        sa.CheckConstraint("kind IN ('measure', 'duel', 'final')", name=op.f("ck_job_kind")),
        sa.CheckConstraint("state IN ('waiting', 'running', 'done')", name=op.f("ck_job_state")),
        sa.ForeignKeyConstraint(["asked_by"], ["person.id"], name=op.f("fk_job_asked_by")),
        sa.ForeignKeyConstraint(["runner_id"], ["person.id"], name=op.f("fk_job_runner_id")),
        sa.ForeignKeyConstraint(
            ["version_id"], ["event_version.id"], name=op.f("fk_job_version_id")
        ),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_job")),
    )
    op.create_index("ix_job_queue", "job", ["state", "id"], unique=False)
    op.create_table(
        "job_entry",
        sa.Column("job_id", sa.Integer(), nullable=False),
        sa.Column("submission_id", sa.Integer(), nullable=False),
        sa.Column("position", sa.Integer(), nullable=False),
        sa.ForeignKeyConstraint(["job_id"], ["job.id"], name=op.f("fk_job_entry_job_id")),
        sa.ForeignKeyConstraint(
            ["submission_id"], ["submission.id"], name=op.f("fk_job_entry_submission_id")
        ),
        sa.PrimaryKeyConstraint("job_id", "submission_id", name=op.f("pk_job_entry")),
    )
    op.create_index(
        op.f("ix_job_entry_submission_id"), "job_entry", ["submission_id"], unique=False
    )
    op.create_table(
        "run",
        sa.Column("id", sa.Integer(), nullable=False),
        sa.Column("job_id", sa.Integer(), nullable=False),
        sa.Column("runner_id", sa.Integer(), nullable=False),
        sa.Column("machine_class", sa.String(length=300), nullable=False),
        sa.Column("machine", sa.JSON(), nullable=False),
        sa.Column("created", sa.Double(), nullable=False),
        sa.ForeignKeyConstraint(["job_id"], ["job.id"], name=op.f("fk_run_job_id")),
        sa.ForeignKeyConstraint(["runner_id"], ["person.id"], name=op.f("fk_run_runner_id")),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_run")),
    )
    op.create_index(op.f("ix_run_job_id"), "run", ["job_id"], unique=False)
    op.create_index(op.f("ix_run_machine_class"), "run", ["machine_class"], unique=False)
    op.create_table(
        "outcome",
        sa.Column("id", sa.Integer(), nullable=False),
        sa.Column("run_id", sa.Integer(), nullable=False),
        sa.Column("submission_id", sa.Integer(), nullable=True),
        sa.Column("contestant", sa.String(length=80), nullable=False),
        sa.Column("verdict", sa.String(length=20), nullable=False),
        sa.Column("text", sa.Text(), nullable=False),
        sa.Column("score", sa.Double(), nullable=True),
        sa.Column("low", sa.Double(), nullable=True),
        sa.Column("high", sa.Double(), nullable=True),
        sa.Column("compile_seconds", sa.Double(), nullable=True),
        sa.ForeignKeyConstraint(["run_id"], ["run.id"], name=op.f("fk_outcome_run_id")),
        sa.ForeignKeyConstraint(
            ["submission_id"], ["submission.id"], name=op.f("fk_outcome_submission_id")
        ),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_outcome")),
    )
    op.create_index(op.f("ix_outcome_run_id"), "outcome", ["run_id"], unique=False)
    op.create_index(op.f("ix_outcome_submission_id"), "outcome", ["submission_id"], unique=False)
    op.create_table(
        "measurement",
        sa.Column("id", sa.Integer(), nullable=False),
        sa.Column("outcome_id", sa.Integer(), nullable=False),
        sa.Column("case", sa.String(length=80), nullable=False),
        sa.Column("ratio", sa.Double(), nullable=False),
        sa.Column("low", sa.Double(), nullable=False),
        sa.Column("high", sa.Double(), nullable=False),
        sa.Column("milliseconds", sa.Double(), nullable=False),
        sa.Column("gflops", sa.Double(), nullable=False),
        sa.Column("seconds", sa.JSON(), nullable=False),
        sa.ForeignKeyConstraint(
            ["outcome_id"], ["outcome.id"], name=op.f("fk_measurement_outcome_id")
        ),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_measurement")),
    )
    op.create_index(op.f("ix_measurement_outcome_id"), "measurement", ["outcome_id"], unique=False)
