"""The replication stream as the bridge sees it: frames in, confirmed positions out.

The single read loop's lower half. It answers nothing by itself: what may be confirmed is known only to the bridge,
after a Kafka commit. It remembers the last confirmed position and repeats it when the server asks for a sign of life.
"""

from __future__ import annotations

import time

from cdc.capture.copy_both import CopyBoth
from cdc.capture.streamed import StreamedTransactions
from cdc.decode.walsender import standby_status
from cdc.lsn import LSN

_FEEDBACK_INTERVAL_S = 10.0
"""Well below wal_sender_timeout's default of 60 s and any sensible setting of it."""


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
        self._streamed = StreamedTransactions(session.read, self.feedback_if_due) if streaming else None
        self.read = self._streamed.read if self._streamed is not None else session.read
        self.wait = session.wait

    @property
    def confirmed(self) -> LSN:
        """The last position told to the server as flushed: the slot's ``confirmed_flush_lsn``."""
        return self._confirmed

    def confirm(self, lsn: LSN) -> None:
        """Tell the server that everything before ``lsn`` is safe, so that it may recycle the WAL."""
        self._confirmed = max(self._confirmed, lsn)
        self.feedback()

    def feedback(self, received: LSN | None = None) -> None:
        """Send the confirmed position again, as a sign of life; ``received`` is the server's own position."""
        self._received = max(self._received, self._confirmed, received or self._received)
        self._session.send(standby_status(self._received, self._confirmed, self._confirmed, time.time_ns() // 1000))
        self._last_feedback = time.monotonic()

    def feedback_if_due(self) -> None:
        """Send a sign of life when the last one is a while ago."""
        if time.monotonic() - self._last_feedback > _FEEDBACK_INTERVAL_S:
            self.feedback()

    def close(self) -> None:
        """End the session."""
        if self._streamed is not None:
            self._streamed.close()
        self._session.close()
