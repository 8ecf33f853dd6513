"""The replication stream as the bridge's loop sees it: frames in, confirmed positions out.

It confirms nothing by itself, because only the loop knows, after a Kafka commit, what may be confirmed. It remembers
the last confirmed position, and repeats it when a sign of life is due.
"""

from __future__ import annotations

import time

from cdc.base.lsn import LSN
from cdc.base.waits import WAITS
from cdc.bridge.capture.copy_both import CopyBoth
from cdc.bridge.capture.streamed import StreamedTransactions
from cdc.bridge.decode.walsender import standby_status

FEEDBACK_INTERVAL_S = 1.0
"""Well below any sensible wal_sender_timeout. The last sign of life is also all that ``cdc status`` knows of a bridge
whose port it cannot ask. Each one asks the server for an answer if nothing has come since the one before, because a
walsender says nothing while the database is idle. So the bridge notices a server that stands still this much later.
"""

_SOURCE_REMEDY = (
    "look at that process of the server: is it stopped, or busy with a big transaction? It also waits when "
    "synchronized_standby_slots names a standby that lags"
)


class WalStream:
    """A started ``CopyBoth`` with its feedback.

    Args:
        session: a session that is already streaming.
        confirmed: the position up to which everything is safe in Kafka.
        streaming: whether it streams large transactions while they run; they are kept on disk until they end.
    """

    def __init__(self, session: CopyBoth, confirmed: LSN, *, streaming: bool = False) -> None:
        self._session = session
        self._confirmed = confirmed
        self._received = confirmed
        self._last_feedback = 0.0
        self._asked: int | None = None
        self._streamed = StreamedTransactions(self._heard, self.feedback_if_due) if streaming else None
        self.read = self._streamed.read if self._streamed is not None else self._heard
        self.wait = session.wait

    @property
    def confirmed(self) -> LSN:
        """The last position that was reported to the server as flushed: the slot's ``confirmed_flush_lsn``."""
        return self._confirmed

    def confirm(self, lsn: LSN) -> None:
        """Tell the server that everything before ``lsn`` is safe, so that it may recycle the WAL."""
        self._confirmed = max(self._confirmed, lsn)
        self._see_whether_it_answers()
        self.feedback()

    def feedback(self, received: LSN | None = None, *, reply: bool = False) -> None:
        """Send the confirmed position again as a sign of life; ``received`` is a position that the server reported."""
        self._received = max(self._received, self._confirmed, received or self._received)
        now_us = time.time_ns() // 1000
        self._session.send(standby_status(self._received, self._confirmed, self._confirmed, now_us, reply=reply))
        self._last_feedback = time.monotonic()

    def feedback_if_due(self) -> None:
        """Send a sign of life if the last one is too old, and ask for an answer unless we wait for one already."""
        self._see_whether_it_answers()
        if time.monotonic() - self._last_feedback > FEEDBACK_INTERVAL_S:
            is_asking = self._asked is not None
            self.feedback(reply=not is_asking)
            if not is_asking and not self._session.wait(0):
                what = f"PostgreSQL to answer on the replication stream (its process {self._session.backend_pid})"
                self._asked = WAITS.begin("source", what, _SOURCE_REMEDY)

    def _heard(self, max_frames: int) -> list[bytes]:
        frames = self._session.read(max_frames)
        if frames and self._asked is not None:
            self._end_asking()
        return frames

    def _see_whether_it_answers(self) -> None:
        """Look for an answer in the socket: while Kafka or a table makes us wait, nobody reads from it."""
        if self._asked is not None and self._session.wait(0):
            self._end_asking()

    def _end_asking(self) -> None:
        asked, self._asked = self._asked, None
        if asked is not None:
            WAITS.end(asked)

    def close(self) -> None:
        """End the session."""
        self._end_asking()
        if self._streamed is not None:
            self._streamed.close()
        self._session.close()
