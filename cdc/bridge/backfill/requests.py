"""Takes what people ask of the running bridge from the progress topic."""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping
from typing import Final

from cdc.contract.backfill import is_request_key, parse_request
from cdc.contract.ports import StoredRecord
from cdc.contract.record import BackfillRequest, RepairRequest
from cdc.contract.repair import is_repair_request_key, parse_repair_request, repair_request_key
from cdc.kafka.brokers import BrokerAdmin
from cdc.kafka.replay.backfills import understood
from cdc.kafka.replay.reader import TopicReader

_INTERVAL_S: Final = 0.5
_RECORDS_PER_POLL: Final = 5_000
_RARELY: Final = {"fetch.wait.max.ms": 500}
"""A broker answers at once when there is a request. Until then, it is asked twice a second, not twenty times."""


class RequestBox:
    """Hands out requests, each once.

    Args:
        admin: asks the brokers, and has the settings for readers.
        ends: where reading goes on, after what was read for ``waiting``.
        waiting: requests that were there before.
        repairs: parts of repairs that were there before.
    """

    def __init__(
        self,
        admin: BrokerAdmin,
        ends: Mapping[tuple[str, int], int],
        waiting: Iterable[BackfillRequest],
        repairs: Iterable[RepairRequest],
    ) -> None:
        self._new = list(waiting)
        self.repairs = {repair_request_key(each.request, each.part): each for each in repairs}
        """Parts that nobody has taken up or withdrawn, in order, by their records' keys. Take them out of here."""
        self._told = {each.request for each in self._new}
        self._told_parts = set(self.repairs)
        self._due = 0.0
        self._reader = TopicReader({**_RARELY, **admin.options}, admin=admin)
        self._reader.add(ends)

    def take(self) -> list[BackfillRequest]:
        """Returns the requests that arrived since the last call. Polls the brokers twice a second at most."""
        now = time.monotonic()
        if now >= self._due:
            self._due = now + _INTERVAL_S
            while records := self._reader.poll(_RECORDS_PER_POLL, 0):
                for record in records:
                    self._saw(record)
        taken, self._new = self._new, []
        return taken

    def close(self) -> None:
        """Close the client."""
        self._reader.close()

    def _saw(self, record: StoredRecord) -> None:
        if is_request_key(record.key) and record.value is not None:
            request = understood(parse_request, record.value)
            if request is not None and request.request not in self._told:
                self._told.add(request.request)
                self._new.append(request)
        elif record.key is not None and is_repair_request_key(record.key):
            self.repairs.pop(record.key, None)
            if record.value is not None and record.key not in self._told_parts:
                self._told_parts.add(record.key)
                if (repair := understood(parse_repair_request, record.value)) is not None:
                    self.repairs[record.key] = repair
