"""A student in a workspace, with the two small lessons of tests/tito/workspace."""

from tests.tito.workspace.conftest import repository, student

__all__ = ["repository", "student"]
