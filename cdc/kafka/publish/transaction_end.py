"""Notices when a producer has sent the end of a Kafka transaction twice: one of the two may still be on its way.

A client whose connection breaks after it asked for a commit asks again. Both requests have the same producer epoch, so
a broker cannot tell them apart. If the first one arrives late, it commits the next transaction in the middle, and
readers see a part of it. Brokers with ``transaction.version`` 2 refuse such a request, but only from clients that speak
this version as well (KIP-890). librdkafka does not: it sends EndTxn in version 1, whatever the broker has.

It also does not tell its application that it asked again, except in a line of its log for debugging. So this class
takes the place of the client's logger. After such an end, the producer must be opened anew: that raises the epoch, and
brokers then refuse what the former one sent.

https://cwiki.apache.org/confluence/display/KAFKA/KIP-890%3A+Transactions+Server-Side+Defense
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import Any, Final

from cdc.base.broker_log import BROKER_LOG

_CONTEXT: Final = "eos"
"""librdkafka's debug context of this line. It has some twenty lines for each transaction, and none for each record."""
_MARK: Final = "ENDTXN"
_NO_ANSWER: Final = "EndTxn returned _"
"""Names of errors that the client itself found, such as _TRANSPORT, begin with an underscore. A broker's error is an
answer, after which no request is on its way."""


class TransactionEndLog:
    """A logger for one producer.

    Args:
        options: librdkafka settings of the producer. What they have as ``debug`` is logged as before.

    Attributes:
        is_repeated: whether the end of a transaction may have been sent twice.
    """

    def __init__(self, options: Mapping[str, Any]) -> None:
        self._asked_for = str(options.get("debug", ""))
        self.is_repeated = False

    @property
    def settings(self) -> dict[str, str]:
        """The settings of a producer that this logger is for."""
        return {"debug": f"{self._asked_for},{_CONTEXT}" if self._asked_for else _CONTEXT}

    def log(self, level: int, message: str, *details: object) -> None:
        """Take a line; the client calls this with mark, client name and text as the last ``details``."""
        if level <= logging.DEBUG:
            if details[:1] == (_MARK,) and _NO_ANSWER in str(details[-1]):
                self.is_repeated = True
            if not self._asked_for:
                return
        BROKER_LOG.log(level, message, *details)
