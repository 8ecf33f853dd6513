"""Reads the partition of a history topic, and of its state topic, that holds a key."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import closing
from typing import Final

from cdc.base.errors import DecodeError, TopicUnavailable
from cdc.contract.formats.opener import ValueOpener
from cdc.contract.header import header_position
from cdc.contract.history import HistoryRecord, parse_history
from cdc.contract.json_members import member_texts
from cdc.contract.partition import partition_of
from cdc.contract.ports import Partition, StoredRecord
from cdc.contract.record import TableSchema
from cdc.kafka.brokers import BrokerAdmin
from cdc.kafka.replay.bounded import open_once, partitions_of, read_until
from cdc.kafka.replay.topic_state import look_at
from cdc.topics.history.trail import Row, Trail, TrailEntry

_MOVED: Final = b"op=u;"


class KeyScan:
    """Finds the records of one key.

    Args:
        admin: asks the brokers, and has the client settings for reading.
        topic: the state topic.
        history: the history topic.
        key: the record key.
        show: called several times a second with the offsets that were read, and with how many there are.

    Raises:
        TopicRefused: the history topic does not exist, or we may not read it.
        TopicUnavailable: no broker answers.
    """

    def __init__(
        self,
        admin: BrokerAdmin,
        topic: str,
        history: str,
        key: bytes,
        show: Callable[[int, int], None] = lambda *_: None,
    ) -> None:
        self._admin = admin
        self._topic = topic
        self._history = history
        self._key = key
        self._show = show
        self.partition = partition_of(key, len(partitions_of(admin, history)))

    def trail(self, schemas: Sequence[TableSchema]) -> Trail:
        """Returns everything that the history holds of the key; ``schemas`` are the table's definitions."""
        seen = look_at(self._admin, [self._history])[self._history]
        low = seen.low[self.partition]
        first: HistoryRecord | None = None
        entries: list[TrailEntry] = []
        for record in self._read(self._history, low):
            if first is None:
                first = parse_history(record.value or b"")
            if record.key == self._key:
                value = record.value or b""
                told = parse_history(value)
                moved = told.op in "cd" and record.header.partition(b";")[2].startswith(_MOVED)
                entries.append(TrailEntry(record.offset, value, told, moved))
        widths = {each.fingerprint: len(each.columns) for each in schemas}
        return Trail(entries, first, removed=low > 0, widths=widths)

    def current(self, trail: Trail, schemas: Sequence[TableSchema]) -> Row | None:
        """Returns the row from the state topic, for a key that the history has no record of.

        Args:
            trail: of the key.
            schemas: the table's definitions, by which the value is read.

        Raises:
            TopicUnavailable: the row changed after the history began: the history is incomplete, or the row changed
                after it was read.
            DecodeError: the value is damaged, or another program wrote it.
        """
        newest: StoredRecord | None = None
        for record in self._read(self._topic, 0):
            if record.key == self._key:
                newest = record
        if newest is None:
            return None
        position = header_position(newest.header)
        if trail.first is not None and position > trail.first.position:
            raise TopicUnavailable(
                f"the state topic has a change of this key at {position.lsn}, which the history does not have",
                remedy="try again, in case the change is new; if this repeats, topics.history did not name the table "
                "for a while",
            )
        try:
            value = None if newest.value is None else ValueOpener(schemas).row(newest.value, newest.header)
            return None if value is None else member_texts(value.decode())
        except ValueError as error:
            raise DecodeError(
                f"the record at offset {newest.offset} of partition {newest.partition} of topic {newest.topic!r} is "
                f"not the bridge's: {error}",
                remedy="find out who else writes to this topic; cdc backfill publishes its rows again",
            ) from error

    def _read(self, topic: str, low: int) -> Iterator[StoredRecord]:
        place: Partition = (topic, self.partition)
        with closing(open_once(self._admin)) as reader:
            reader.add({place: 0})
            ends = reader.high_watermarks([place])
            total = ends[place] - low
            yield from read_until(
                reader, ends, before_poll=lambda: self._show(max(reader.positions()[place] - low, 0), total)
            )
