"""Notices when a producer has sent a request of its Kafka transaction twice: one of the two may still be on its way.

A client whose connection breaks after it asked for a commit asks again. Both requests have the same producer epoch, so
a broker cannot tell them apart. If the first one arrives late, it commits the next transaction in the middle, and
readers see a part of it. Brokers with ``transaction.version`` 2 refuse such a request, but only from clients that speak
this version as well (KIP-890). librdkafka does not: it sends EndTxn in version 1, whatever the broker has.

The same holds for TxnOffsetCommit, which makes offsets of a consumer group part of a transaction. If the first of two
such requests arrives late, it sets the offsets of the next transaction back.

The client does not tell its application that it asked again, except in lines of its log for debugging. So this class
takes the place of the client's logger. After such a request, the producer must be opened anew: that raises the epoch,
and brokers then refuse what the former one sent.

https://cwiki.apache.org/confluence/display/KAFKA/KIP-890%3A+Transactions+Server-Side+Defense
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import Any, Final

from cdc.base.broker_log import BROKER_LOG

_ENDS: Final = "eos"
"""librdkafka's debug context that tells of ends. It has some twenty lines for each transaction, and none for each
record."""
_REQUESTS: Final = "protocol"
"""The only context that tells of offsets. It has two lines for each request."""
_MARK: Final = "ENDTXN"
_NO_ANSWER: Final = "EndTxn returned _"
"""Names of errors that the client itself found, such as _TRANSPORT, begin with an underscore. A broker's error is an
answer, after which no request is on its way."""
_SENT: Final = "Sent TxnOffsetCommitRequest"
_ANSWERED: Final = "Received TxnOffsetCommitResponse"


class TransactionEndLog:
    """A logger for one producer.

    Args:
        options: librdkafka settings of the producer. What they have as ``debug`` is logged as before.
        stores_offsets: whether it sends offsets of a consumer group.

    Attributes:
        is_repeated: whether the end of a transaction, or its offsets, may have been sent twice.
    """

    def __init__(self, options: Mapping[str, Any], *, stores_offsets: bool = False) -> None:
        self._asked_for = str(options.get("debug", ""))
        self._contexts = [_ENDS, _REQUESTS] if stores_offsets else [_ENDS]
        self._is_unanswered = False
        self.is_repeated = False

    @property
    def settings(self) -> dict[str, str]:
        """The settings of a producer that this logger is for."""
        return {"debug": ",".join([*filter(None, [self._asked_for]), *self._contexts])}

    def log(self, level: int, message: str, *details: object) -> None:
        """Take a line; the client calls this with mark, client name and text as the last ``details``."""
        if level <= logging.DEBUG:
            self._hear(str(details[0]), str(details[-1]))
            if not self._asked_for:
                return
        BROKER_LOG.log(level, message, *details)

    def _hear(self, mark: str, text: str) -> None:
        if mark == _MARK and _NO_ANSWER in text:
            self.is_repeated = True
        elif mark == "SEND" and _SENT in text:
            self.is_repeated |= self._is_unanswered
            self._is_unanswered = True
        elif mark == "RECV" and _ANSWERED in text:
            self._is_unanswered = False
