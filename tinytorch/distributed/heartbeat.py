"""Which rank has gone? Each rank counts up a number in the common store while it lives."""

from __future__ import annotations

import atexit
import threading
import time
from datetime import timedelta
from typing import Any

INTERVAL = 0.5  # seconds between two beats
PATIENCE = 3.0  # seconds without a beat after which a rank counts as gone


class Heartbeat:
    """Beats for this rank, and says which other ranks do not.

    gloo notices that a connection is closed, and says an address; after the first such error the
    ranks leave one after another, and the last ones would be told of the wrong one. So the first
    that sees a rank without beats writes its name down for the others.

    Args:
        host, port: of the store that the group was made with.
        rank, world_size: of this process, and of the group.
    """

    def __init__(self, host: str, port: int, rank: int, world_size: int) -> None:
        from torch.distributed import TCPStore  # type: ignore[attr-defined]

        self.rank, self.world_size = rank, world_size
        self._store: Any = TCPStore(
            host, port, is_master=False, wait_for_workers=False, timeout=timedelta(seconds=10)
        )
        self._ended = threading.Event()
        self._store.add(self._key(rank), 1)
        self._thread = threading.Thread(target=self._run, name="heartbeat", daemon=True)
        self._thread.start()
        # a thread that is within the store when the interpreter goes away ends the process: abort()
        atexit.register(self.stop)

    def stop(self) -> None:
        """Beat no longer."""
        atexit.unregister(self.stop)
        self._ended.set()
        self._thread.join(timeout=PATIENCE)

    def blame(self) -> str:
        """The ranks that have gone, in words; takes up to `PATIENCE` seconds."""
        try:
            gone = self._gone()
        except RuntimeError:
            return "the store of the group cannot be reached: the process that holds it has gone"
        if not gone:
            return "every rank is alive; do all of them call the same collectives in one order?"
        names = ", ".join(map(str, gone))
        return f"rank {names} has gone" if len(gone) == 1 else f"ranks {names} have gone"

    def _gone(self) -> list[int]:
        """Ranks that were found without beats, by another rank or now by this one."""
        end, before = time.monotonic() + PATIENCE, self._beats()
        while time.monotonic() < end:
            if self._store.check(["gone"]):
                break
            time.sleep(INTERVAL / 5)
        else:
            now = self._beats()
            silent = [r for r in range(self.world_size) if now[r] == before[r] and r != self.rank]
            if not silent:
                return []
            self._store.compare_set("gone", "", ",".join(map(str, silent)))
        return [int(r) for r in self._store.get("gone").decode().split(",")]

    def _beats(self) -> list[int]:
        return [self._store.add(self._key(rank), 0) for rank in range(self.world_size)]

    def _run(self) -> None:
        while not self._ended.wait(INTERVAL):
            try:
                self._store.add(self._key(self.rank), 1)
            except RuntimeError:
                return  # without a store there is nobody to beat for

    @staticmethod
    def _key(rank: int) -> str:
        return f"beat/{rank}"
