"""Decides what to do when the server cannot decode its own WAL: try it without streaming, and stop if that fails, too.

PostgreSQL 14 to 18 cannot send a large transaction while it runs (``source.streaming``) if that transaction altered a
table, took that back to a savepoint, and altered the table again: ``could not map filenumber … to relation OID``. The
same WAL can be decoded once the transaction has ended. A value that cannot become UTF-8 can never be decoded.

Nor does the server say, while a transaction runs, which subtransaction a logical message belongs to. So nobody can tell
which messages are taken back with a savepoint (``streamed``), and streaming is given up at once.
"""

from __future__ import annotations

import time
from typing import Final

import structlog

from cdc.base.errors import CdcError, SourceRefused, SourceUndecodable
from cdc.contract.record import Progress

ATTEMPTS: Final = 5
"""How often to try from one position before a person must help. A catalog entry just dropped fails once or twice."""
PATIENCE_S: Final = 10.0
"""The time from the first attempt to the last, at least: attempts follow one another within half a second."""

log = structlog.get_logger("cdc.bridge")


class Decoding:
    """Counts failures over the attempts of one process.

    It remembers them in memory only: a new process begins as configured, and finds out again in a few attempts.

    Args:
        slot: the bridge's slot.
        streaming: whether large transactions are to be sent while they run.
    """

    def __init__(self, slot: str, *, streaming: bool) -> None:
        self._slot = slot
        self.streaming = streaming
        self._from: tuple[object, ...] | None = None
        self._failures = 0
        self._since = 0.0

    def failed(self, error: SourceUndecodable, resume: Progress) -> CdcError:
        """Returns what to raise when a session that began at ``resume`` fails; ``error`` itself means to try again."""
        place = (resume.lsn, resume.partial)
        if place != self._from:
            self._from, self._failures, self._since = place, 0, time.monotonic()
        self._failures += 1
        if self.streaming and (self._failures > 1 or error.is_of_streaming):
            self.streaming, self._from = False, None
            log.warning(
                "the server cannot decode large transactions while they run: from here on it sends them when they end",
                error=error.message,
                remedy="source.streaming: false keeps it that way; a restart of the bridge tries streaming again",
            )
        elif self._failures >= ATTEMPTS and time.monotonic() - self._since >= PATIENCE_S:
            return SourceRefused(
                f"PostgreSQL failed {self._failures} times to decode its WAL from {resume.lsn} on: {error.message}",
                remedy=f"{_BY_VALUE if error.is_of_a_value else _BY_SERVER}; when nothing helps, set "
                "source.on_gap: rebackfill, drop the slot (SELECT "
                f"pg_drop_replication_slot('{self._slot}');) and start the bridge: it publishes every table again",
            )
        return error


_BY_VALUE: Final = "the WAL keeps the value that the message names: correct the row first"
_BY_SERVER: Final = "look into the server's log, and update PostgreSQL to its newest minor version"
