"""Judges what is in the topics and in the view by what the source held: at every record, at every cut, and at the end.

The workload writes each value once, so a value says which version of its row it is. A topic is right as long as each
key's versions come in the source's order, none is left over, and the last one stays, however they got there.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, Final, NamedTuple

from confluent_kafka import Message

from cdc.contract.header import HEADER_NAME
from tests.world.kafka import KafkaCluster
from tests.world.kafka_log import PartitionLog
from tests.world.postgres import WorldServer
from tests.world.postgres_tables import Row, WorldTable
from tests.world.programs import NAME
from tests.world.workload import LONG

INT8: Final = 20
LEFT_OUT: Final = "doc"
"""The column that is long enough for the stream to leave it out."""
_MANY: Final = 100_000

Shown = Mapping[str, Any]
"""A row as JSON shows it."""


class Wrong(AssertionError):
    """A promise that was not kept."""


def shown(table: WorldTable, row: Row) -> Shown:
    """Returns a row as its JSON has it: integers are numbers, all else is text, and what is null is left out.

    A row that is older than a column has no value for it, and neither has its record.
    """
    values = ((each, row[each.name]) for each in table.columns)
    return {
        each.name: int(value) if each.type_oid == INT8 else value.decode()
        for each, value in values
        if value is not None
    }


def read_row(value: bytes) -> Shown:
    """Returns the row of a record in the same form."""
    return {name: each for name, each in json.loads(value).items() if each is not None}


def key_of(table: WorldTable, row: Shown) -> str:
    """Returns the key of a row as text; only for comparisons here."""
    return json.dumps([row[name] for name in table.key])


def key_text(key: bytes | None) -> str:
    """Returns a record's key in the same form."""
    return json.dumps([*json.loads(key or b"{}").values()])


class SourceHistory:
    """Every version of every row that the source has committed, in the order of the WAL.

    Args:
        server: the source.
    """

    def __init__(self, server: WorldServer) -> None:
        self._server = server
        self._seen = 0
        self._versions: dict[str, dict[str, list[tuple[int, Shown | None]]]] = {}

    def versions(self, table: str, key: str) -> list[tuple[int, Shown | None]]:
        """Returns the versions of one row, each with the end of its commit; None where it was deleted."""
        self._take()
        return self._versions.get(table, {}).get(key, [])

    def had_long(self, table: str, key: str) -> bool:
        """Whether some version of a row has a value that the stream may have left out."""
        return any(row is not None and len(row.get(LEFT_OUT, "")) >= LONG for _, row in self.versions(table, key))

    def _take(self) -> None:
        commits = self._server.commits
        while self._seen < len(commits):
            commit = commits[self._seen]
            self._seen += 1
            assert commit.end_lsn is not None
            for change in commit.changes:
                if change.kind in "IUD":
                    self._add(change.table, change.old, commit.end_lsn, None)
                    self._add(change.table, change.new, commit.end_lsn, change.new)
                elif change.kind == "T":
                    for table in (change.table, *change.others):
                        self._truncate(f"{table.namespace}.{table.name}", commit.end_lsn)
            if commit.tables:
                self._altered(commit.end_lsn)

    def _altered(self, lsn: int) -> None:
        """Note the rows that tables have because another one has taken their name."""
        for table in {
            *self._versions,
            *(f"{each.namespace}.{each.name}" for each in self._server.tables_at(lsn).values()),
        }:
            known = self._versions.setdefault(table, {})
            now = rows_at(self._server, table, lsn)
            for key in {*known, *now}:
                versions = known.setdefault(key, [])
                if (row := now.get(key)) != (versions[-1][1] if versions else None):
                    versions.append((lsn, row))

    def _add(self, table: WorldTable, cells: Any, lsn: int, new: Any) -> None:
        if cells is None:
            return
        row = shown(table, table.row(cells))
        rows = self._versions.setdefault(f"{table.namespace}.{table.name}", {})
        rows.setdefault(key_of(table, row), []).append((lsn, None if new is None else row))

    def _truncate(self, table: str, lsn: int) -> None:
        for versions in self._versions.get(table, {}).values():
            if versions[-1][1] is not None:
                versions.append((lsn, None))


class Seen(NamedTuple):
    """A record that a reader of committed records was given."""

    partition: int
    offset: int
    value: Shown | None
    header: bytes


class TopicAudit:
    """Reads one table's topic as a reader of committed records does, and checks each record against the source.

    Args:
        cluster: the brokers.
        table: ``schema.table``.
        history: the source's.
        begins_anew: whether another table may take the name, so that the topic is emptied.
        in_order: whether no record may be older than the one before it. With ``delivery: idempotent``, a bridge that
            stood still may send rows after newer ones of the bridge that took over; these are published again.
    """

    def __init__(
        self, cluster: KafkaCluster, table: str, history: SourceHistory, *, begins_anew: bool, in_order: bool
    ) -> None:
        self._begins_anew = begins_anew
        self._in_order = in_order
        self._cluster = cluster
        self.topic = f"{NAME}.{table}"
        self._table = table
        self._history = history
        self._positions: dict[int, int] = {}
        self._places: dict[str, int] = {}
        self.fold: dict[str, Seen] = {}
        self.records = 0

    def forget(self, number: int | None) -> None:
        """Forget what was read of a partition, or of all of them: the topic was made anew, or its records deleted."""
        for key in [key for key, each in self.fold.items() if number in (None, each.partition)]:
            del self.fold[key]
        if number is None:
            self._positions.clear()
        # A sweep that is under way goes by offsets, and may delete rows that are there until the gap is closed
        self._begins_anew = True

    def look(self) -> None:
        """Read what has become readable.

        Raises:
            Wrong: a record has a value that its row never had, or an older one than the record before it.
        """
        topic = self._cluster.topic(self.topic)
        if topic is None:
            return
        for log in topic.partitions:
            at = self._positions.get(log.number, 0)
            if at < log.stable:
                self._read(log, at)

    def _read(self, log: PartitionLog, at: int) -> None:
        messages, self._positions[log.number] = log.read(at, log.stable, _MANY, committed=True)
        for message in messages:
            key = key_text(message.key())
            value = message.value()
            offset = message.offset()
            assert offset is not None
            seen = Seen(log.number, offset, None if value is None else read_row(value), _header(message))
            self.records += 1
            self._judge(key, seen)
            if seen.value is None:
                self.fold.pop(key, None)
            else:
                self.fold[key] = seen

    def _judge(self, key: str, seen: Seen) -> None:
        if seen.value is None and (key not in self.fold or self._begins_anew):
            return  # a tombstone for what nobody has, or for each key of a topic that begins anew with other rows
        versions = self._history.versions(self._table, key)
        place = self._places.get(key, 0) if self._in_order else 0
        for number in range(place, len(versions)):
            if versions[number][1] == seen.value or _is_reread(versions, number, seen):
                self._places[key] = number
                return
        known = [version for _, version in versions]
        what = "goes back" if seen.value in known[:place] else "has a value that its row never had"
        raise Wrong(f"{self.topic}: key {key} {what}: {seen}; the row's versions are {versions}, seen up to {place}")

    def compare(self, server: WorldServer) -> str:
        """Returns the first difference between the topic and the table as it is now; empty if they are equal."""
        info = server.find(*self._table.split(".", 1))
        wanted = {} if info is None else {key_of(info, row): row for row in _rows(server, self._table, info)}
        found = {key: each.value for key, each in self.fold.items()}
        return difference(f"topic of {self._table}", wanted, found)


def _rows(server: WorldServer, table: str, info: WorldTable) -> list[Shown]:
    return [shown(info, row) for row in server.rows(table).values()]


def _header(message: Message) -> bytes:
    for name, value in [*(message.headers() or ())]:
        if name == HEADER_NAME and isinstance(value, bytes):
            return value
    return b""


def _is_reread(versions: list[tuple[int, Shown | None]], number: int, seen: Seen) -> bool:
    """Whether a record is this version with a long value that the stream left out, and that was read later.

    Between two changes of one transaction nobody sees a row, so there the value may be the transaction's last one. If
    it is of a later transaction, the record has to say so.
    """
    lsn, version = versions[number]
    if version is None or seen.value is None or {**version, LEFT_OUT: 0} != {**seen.value, LEFT_OUT: 0}:
        return False
    later = [
        each
        for each, row in versions[number + 1 :]
        if row is not None and row.get(LEFT_OUT) == seen.value.get(LEFT_OUT)
    ]
    return bool(later) and (later[0] == lsn or b"toast=newer" in seen.header)


def rows_at(server: WorldServer, table: str, lsn: int) -> dict[str, Shown]:
    """Returns what the source held at a position, by key."""
    found = server.rows_at(table, lsn)
    info = next((each for each in server.tables_at(lsn).values() if f"{each.namespace}.{each.name}" == table), None)
    if info is None:
        return {}
    return {key_of(info, row): row for row in (shown(info, each) for each in (found or {}).values())}


def difference(what: str, wanted: Mapping[str, Shown], found: Mapping[str, Shown | None]) -> str:
    """Returns the first difference, for people; empty if there is none."""
    for key in sorted(wanted.keys() | found.keys()):
        if wanted.get(key) != found.get(key):
            return f"{what}: key {key} is {found.get(key)}, and should be {wanted.get(key)}"
    return ""
