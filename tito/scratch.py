"""Folders for a while that hold so much that removing them takes a moment."""

from __future__ import annotations

import tempfile


class Scratch(tempfile.TemporaryDirectory[str]):
    """A temporary folder that is removed, also where Ctrl-C comes while it is being removed."""

    def cleanup(self) -> None:
        """Remove it."""
        try:
            super().cleanup()
        except KeyboardInterrupt:
            super().cleanup()
            raise
