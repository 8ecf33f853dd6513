"""The publisher that writes a history beside state topics: one place through which every one of their records goes.

The stream's changes, backfills, sweeps, repairs and the tombstones of a TRUNCATE all end in ``produce``, so none of
them has to know of the history; and state and history share the Kafka transaction, so both are readable or neither.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from cdc.contract.history import HistoryEncoder
from cdc.contract.record import Ready
from cdc.kafka.publish.publisher import KafkaPublisher


class HistoryPublisher(KafkaPublisher):
    """A ``KafkaPublisher`` whose state topics may have histories.

    Args:
        options, transactional_id: as for ``KafkaPublisher``.
        max_message_bytes: the history topics' ``max.message.bytes``.
        encoder: knows the history topics, and makes the values.
    """

    def __init__(
        self,
        options: Mapping[str, Any],
        *,
        transactional_id: str,
        max_message_bytes: int,
        encoder: HistoryEncoder,
    ) -> None:
        super().__init__(options, transactional_id=transactional_id, max_message_bytes=max_message_bytes)
        self._encoder = encoder

    def produce(self, topic: str, key: bytes, value: bytes | None, header: bytes, old: bytes | None = None) -> None:
        """As ``KafkaPublisher.produce``; a record of a state topic goes into its history as well."""
        super().produce(topic, key, value, header)
        history = self._encoder.topics.get(topic)
        if history is not None:
            super().produce(history, key, self._encoder.value(value, header, old), header)

    def produce_all(self, records: Iterable[Ready]) -> None:
        """As ``produce`` for each of them."""
        for record in records:
            self.produce(*record)
