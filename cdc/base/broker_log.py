"""What librdkafka says of brokers that do not answer: once when they go, once a minute, once when they are back.

Each client has a connection to each broker and tells of each attempt to open it: ten lines a second for as long as a
broker is away. All clients of this process hand their lines to ``BROKER_LOG``.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable
from typing import Final

_INTERVAL_S: Final = 60.0
_OUTAGE: Final = {"FAIL", "ERROR", "REQTMOUT", "CONNWARN"}
"""librdkafka's marks of lines that say that a broker is away."""

_FOLLOWS: Final = {"GETPID", "COORDREQ", "TXNINIT"}
"""And of lines that an outage causes; without one they mean something else, such as a coordinator that just starts."""

_OUR_CHOICE: Final = "Configuration property enable.gapless.guarantee is experimental"
"""It is: and without it the client goes on behind a row that the brokers refused for good."""

_TAKEN_OVER: Final = ("fenced", "old epoch", "newer producer with the same transactionalId")
"""Of lines that say that another client took this one's place. Whoever uses the client is told so by its next call, and
says what it means: of a bridge that waits for its turn again, nothing that needs anybody."""

_PASSES: Final = "Coordinator load in progress"
"""Of a broker that has just become the one to ask; the client asks again by itself, within a second."""

BROKERS_AWAY: Final = (
    "cdc tries again by itself; if that does not help: is kafka.bootstrap right, and a broker up? "
    "Does security.protocol fit its listener?"
)
"""One text for all that an outage causes: an outage is told by its remedy, and once."""


class BrokerLog:
    """Stands in for the logger of each client.

    Args:
        log: where lines go.
        clock: seconds, never going back.
    """

    def __init__(self, log: logging.Logger, clock: Callable[[], float] = time.monotonic) -> None:
        self._log = log
        self._clock = clock
        self._lock = threading.Lock()
        self._since: float | None = None
        self._told_at: float | None = None
        self._is_told = False
        self._untold = 0

    def log(self, level: int, message: str, *details: object) -> None:
        """Called by the clients with mark, client name and text."""
        mark, text = (str(details[0]), str(details[-1])) if details else ("", "")
        if _OUR_CHOICE in text:
            return
        if _PASSES in text:
            self._log.debug(message, *details)
        elif any(words in text for words in _TAKEN_OVER):
            self._log.log(min(level, logging.INFO), message, *details)
        elif mark in _OUTAGE or (mark in _FOLLOWS and self._since is not None):
            self._missed(text)
        else:
            self._log.log(level, message, *details)

    def silent(self, text: str) -> None:
        """A broker takes what it is sent and does not answer, which its client does not find strange yet."""
        self._missed(text)

    def answered(self) -> None:
        """A broker did what it was asked to."""
        with self._lock:
            since, is_told, self._since, self._is_told = self._since, self._is_told, None, False
        if since is not None and is_told:
            self._log.warning("Kafka is back, after %.0f s", self._clock() - since)

    def _missed(self, text: str) -> None:
        now = self._clock()
        with self._lock:
            since = self._since = now if self._since is None else self._since
            self._untold += 1
            # Of a broker that comes and goes, too, no more than a line a minute.
            if self._told_at is not None and now - self._told_at < _INTERVAL_S:
                return
            is_first, lines = not self._is_told, self._untold
            self._told_at, self._is_told, self._untold = now, True, 0
        reason = text.partition("]: ")[2] if text.startswith("[thrd:") else text
        if is_first:
            self._log.warning("Kafka does not answer: %s; %s", reason, BROKERS_AWAY)
        else:
            self._log.warning("Kafka does not answer, for %.0f s now: %s (%d such lines)", now - since, reason, lines)


BROKER_LOG: Final = BrokerLog(logging.getLogger("cdc.kafka"))
"""Of this process: an outage concerns all its clients alike."""
