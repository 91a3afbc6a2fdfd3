"""How Alembic gets at the database: by the connection that `Database.migrate` hands over."""

from alembic import context

from tito.leaderboard.tables import Base

context.configure(
    connection=context.config.attributes["connection"],
    target_metadata=Base.metadata,
    render_as_batch=True,
    compare_type=True,
)
with context.begin_transaction():
    context.run_migrations()
