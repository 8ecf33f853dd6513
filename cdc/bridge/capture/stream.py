"""The replication stream as the bridge sees it: frames in, confirmed positions out.

The single read loop's lower half. It answers nothing by itself: what may be confirmed is known only to the bridge,
after a Kafka commit. It remembers the last confirmed position and repeats it when the server asks for a sign of life.
"""

from __future__ import annotations

import time

from cdc.base.lsn import LSN
from cdc.base.waits import WAITS
from cdc.bridge.capture.copy_both import CopyBoth
from cdc.bridge.capture.streamed import StreamedTransactions
from cdc.bridge.decode.walsender import standby_status

FEEDBACK_INTERVAL_S = 1.0
"""Well below any sensible wal_sender_timeout; and the last sign of life is what ``cdc status`` knows of a bridge whose
port it cannot ask. Each asks for one in return when nothing has come since the one before: a walsender has nothing to
say for as long as the database is at rest. So a server that stands still is noticed this much later than it might be.
"""

_SOURCE_REMEDY = (
    "look at that process of the server: is it stopped, and is it busy with a big transaction? It also waits when "
    "synchronized_standby_slots names a standby that lags"
)


class WalStream:
    """A started ``CopyBoth`` with its feedback.

    Args:
        session: already streaming.
        confirmed: the position that is safe in Kafka.
        streaming: the session was started with it: transactions still running are kept on disk until they end.
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
        """The last position told to the server as flushed: the slot's ``confirmed_flush_lsn``."""
        return self._confirmed

    def confirm(self, lsn: LSN) -> None:
        """Tell the server that everything before ``lsn`` is safe, so that it may recycle the WAL."""
        self._confirmed = max(self._confirmed, lsn)
        self._see_whether_it_answers()
        self.feedback()

    def feedback(self, received: LSN | None = None, *, reply: bool = False) -> None:
        """Send the confirmed position again, as a sign of life; ``received`` is the server's own position."""
        self._received = max(self._received, self._confirmed, received or self._received)
        now_us = time.time_ns() // 1000
        self._session.send(standby_status(self._received, self._confirmed, self._confirmed, now_us, reply=reply))
        self._last_feedback = time.monotonic()

    def feedback_if_due(self) -> None:
        """Send a sign of life when the last one is a while ago, and ask for one unless we wait for that already."""
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
        """While Kafka or a table keeps us waiting, nobody reads: an answer that lies in the socket is one, too."""
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
