"""Condenses librdkafka's lines about brokers that do not answer: one at first, one a minute, one when they are back.

Each client connects to each broker, and logs every failed attempt: ten lines a second while a broker is away. All
clients of this process send their lines to ``BROKER_LOG``.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable
from typing import Final

_INTERVAL_S: Final = 60.0
_OUTAGE: Final = {"FAIL", "ERROR", "REQTMOUT", "CONNWARN"}
"""The marks of librdkafka's lines that say that a broker is away."""

_FOLLOWS: Final = {"GETPID", "COORDREQ", "TXNINIT"}
"""The marks of lines that an outage causes. Without an outage they mean something else, such as a coordinator that is
starting."""

_OUR_CHOICE: Final = "Configuration property enable.gapless.guarantee is experimental"
"""A warning that is suppressed: we know, and without this property the client would go on after a row that the brokers
refused for good."""

_OF_OTHER_CLIENTS: Final = "property and will be ignored by this"
"""Words of another warning that is suppressed: all clients get all of ``kafka.options``, and each takes its own."""

_TAKEN_OVER: Final = ("fenced", "old epoch", "newer producer with the same transactionalId")
"""Words of lines that say that another client took this one's place. They are logged as information only: the caller
learns it from the client's next call, and a bridge that just waits for its turn again needs nobody's help."""

_PASSES: Final = "Coordinator load in progress"
"""Words of a broker that has just become the coordinator; the client asks again by itself within a second."""

BROKERS_AWAY: Final = (
    "cdc tries again by itself; if that does not help: is kafka.bootstrap right, and a broker up? "
    "Does security.protocol fit its listener?"
)
"""The one remedy for everything that an outage causes: ``OutageLog`` compares remedies, to log an outage only once."""


class BrokerLog:
    """Takes the place of each client's logger.

    Args:
        log: where the lines go.
        clock: returns seconds that never go back.
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
        """Take a line; the clients call this with mark, client name and text as the last ``details``."""
        mark, text = (str(details[0]), str(details[-1])) if details else ("", "")
        if _OUR_CHOICE in text or _OF_OTHER_CLIENTS in text:
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
        """Report a broker that takes requests without answering; its client does not consider that a failure yet."""
        self._missed(text)

    def answered(self) -> None:
        """Report that a broker answered."""
        with self._lock:
            since, is_told, self._since, self._is_told = self._since, self._is_told, None, False
        if since is not None and is_told:
            self._log.warning("Kafka is back, after %.0f s", self._clock() - since)

    def _missed(self, text: str) -> None:
        now = self._clock()
        with self._lock:
            since = self._since = now if self._since is None else self._since
            self._untold += 1
            # At most one line a minute, also about a broker that comes and goes.
            if self._told_at is not None and now - self._told_at < _INTERVAL_S:
                return
            is_first, lines = not self._is_told, self._untold
            self._told_at, self._is_told, self._untold = now, True, 0
        reason = text.partition("]: ")[2] if text.startswith("[thrd:") else text
        if is_first:
            self._log.warning("Kafka does not answer: %s; %s", reason, BROKERS_AWAY)
        else:
            self._log.warning("Kafka has not answered for %.0f s: %s (%d such lines)", now - since, reason, lines)


BROKER_LOG: Final = BrokerLog(logging.getLogger("cdc.kafka"))
"""The process's one instance, because an outage concerns all its clients alike."""
