"""Guesses in one sentence what probably caused a difference. Pure.

It goes by what can be seen, in a fixed order: first the record's place in the topic, which can explain any value, then
what the values look like. The sentence is for a person who has to decide where to look.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Final, Literal, TypeAlias

from cdc.base.lsn import LSN
from cdc.spark.reconcile.likeness import likeness, shift_s
from cdc.spark.reconcile.verdict import KeyClass

Row: TypeAlias = Mapping[str, str | None]
"""Maps columns to PostgreSQL's text, None for NULL. A column that the row does not have is left out."""

_OPERATIONS: Final = {"c": "insert", "u": "update", "d": "delete", "r": "backfill", "t": "truncate"}


@dataclass(frozen=True, slots=True)
class RecordPlace:
    """The record that the topic's side of a difference comes from.

    Attributes:
        op, lsn, xid: from its header; a backfilled record has no xid. All are None without a header of ours.
        commit_ts_us: commit time, µs since 1970.
        newer_before: a record of the key with a higher (lsn, seq) has a lower offset.
        said: the header as it is; empty if there is none.
    """

    op: str | None
    lsn: LSN | None
    xid: int | None
    commit_ts_us: int | None
    partition: int
    offset: int
    newer_before: bool = False
    said: str = ""

    def __str__(self) -> str:
        if self.op is None or self.commit_ts_us is None:
            return f"the record at partition {self.partition}, offset {self.offset}"
        when = datetime.fromtimestamp(self.commit_ts_us // 1_000_000, UTC).strftime("%Y-%m-%d %H:%M:%S UTC")
        author = "" if self.xid is None else f" of transaction {self.xid}"
        return (
            f"the {_OPERATIONS.get(self.op, self.op)} at partition {self.partition}, offset {self.offset}"
            f" (LSN {self.lsn}{author}, {when})"
        )


@dataclass(frozen=True, slots=True)
class KnownDifference:
    """Everything that is known about one difference.

    Attributes:
        difference: the class of the difference, in the topic's terms even for a replica (``missing_in_topic``, …).
        side: ``topic`` if the source was compared with the topic; ``replica`` or ``lake`` if one of these was, at its
            own LSN.
        source: the row in the database that was read: the source, or the replica; None if there is none.
        topic: the row in the topic; None if there is none.
        key: the record's key.
        canonical_key: the bytes that the contract prescribes for this logical key.
        record: the latest visible record of the key, maybe a tombstone; None if there is none.
        expected_partition: the partition that the partitioner gives the key.
        types: each column's SQL type in the source.
        unreadable: why the record's value does not hold a row; empty if it does, or for a tombstone.
        foreign: why the bridge cannot have written the record; empty if it can.
        copies: how many rows of the database have the key.
    """

    difference: KeyClass
    source: Row | None
    topic: Row | None
    key: bytes
    canonical_key: bytes
    record: RecordPlace | None = None
    expected_partition: int | None = None
    side: Literal["topic", "replica", "lake"] = "topic"
    types: Mapping[str, str] = field(default_factory=dict)
    unreadable: str = ""
    foreign: str = ""
    copies: int = 1


def differing_columns(source: Row, topic: Row) -> tuple[str, ...]:
    """Returns the columns that differ, or that only one of the rows has, in the source's order."""
    columns = dict.fromkeys((*source, *topic))
    return tuple(name for name in columns if (name in source) != (name in topic) or source.get(name) != topic.get(name))


def likely_cause(finding: KnownDifference) -> str:
    """Returns the sentence, always the same for the same facts. The text before the colon is the kind of cause."""
    if not finding.difference.is_difference:
        return "nothing is proven to differ"
    record = finding.record
    if finding.key != finding.canonical_key:
        return (
            f"alias key: {_shown(finding.key)} and {_shown(finding.canonical_key)} are the same logical key in"
            " different bytes; a program that does not keep the topic contract wrote the record"
        )
    if finding.side != "topic":
        return _replica_cause(finding)
    if record is not None and finding.expected_partition not in (None, record.partition):
        return (
            f"partition move: {record} lies outside of partition {finding.expected_partition}, where the key belongs;"
            " another partitioner put it there, or the number of partitions was changed"
        )
    if finding.foreign and record is not None:
        said = f"; its header says {record.said}" if record.said else ""
        return f"foreign record: another program wrote {record}, because {finding.foreign}{said}{_unreadable(finding)}"
    if finding.unreadable:
        return f"unreadable value: {_by(record)} does not hold a row{_unreadable(finding)}"
    if record is not None and record.newer_before:
        return f"stale version: {record} was appended after a newer record of this key"
    if finding.difference is KeyClass.EXTRA_IN_TOPIC:
        return (
            f"missed tombstone: the source does not have this row, and no tombstone in the topic deletes {_by(record)}"
        )
    if finding.difference is KeyClass.MISSING_IN_TOPIC:
        return _missing_cause(record)
    return _mismatch_cause(finding)


def _replica_cause(finding: KnownDifference) -> str:
    if finding.copies > 1:
        return f"several rows of one key: the {finding.side} has {finding.copies}, so others than cdc wrote into it"
    what = {
        # The replica is the database that was read: what the topic lacks, the replica has too much.
        KeyClass.MISSING_IN_TOPIC: "it has a row that the topic does not have",
        KeyClass.EXTRA_IN_TOPIC: "it lacks a row that the topic has",
        KeyClass.VALUE_MISMATCH: "its row is not the one that the topic has",
    }[finding.difference]
    writer = "mirror" if finding.side == "lake" else "sink"
    return f"{finding.side} changed by others than the {writer}: {what}"


def _missing_cause(record: RecordPlace | None) -> str:
    if record is None:
        return "missing record: the topic has no record of this key; its insert was lost, or its record was removed"
    return f"missing record: what followed {record} was lost, or the source never made that delete"


def _mismatch_cause(finding: KnownDifference) -> str:
    source, topic = finding.source or {}, finding.topic or {}
    columns = differing_columns(source, topic)
    absent = [name for name in columns if name not in topic]
    if absent:
        return (
            f"older schema: {_by(finding.record)} lacks {_listed(absent)}; it was written before the table had"
            f" {'that column' if len(absent) == 1 else 'those columns'}"
        )
    gone = [name for name in columns if name not in source]
    if gone:
        return f"older schema: {_by(finding.record)} still has {_listed(gone)}, which the table no longer has"
    alike = {name: likeness(source[name], topic[name], finding.types.get(name, "text")) for name in columns}
    if None in alike.values() or not _is_one_shift(source, topic, columns, finding.types):
        return f"older value: {_by(finding.record)} does not hold the last change of this row, or was altered"
    by_words: dict[str, list[str]] = {}
    for name, words in alike.items():
        by_words.setdefault(str(words), []).append(name)
    return "; ".join(f"in {_listed(names)} the topic's value {words}" for words, names in by_words.items())


def _is_one_shift(source: Row, topic: Row, columns: tuple[str, ...], types: Mapping[str, str]) -> bool:
    """Tells whether all timestamps that differ are shifted by the same amount, as a time zone would shift them."""
    shifts = set()
    for name in columns:
        here, there = source[name], topic[name]
        if types.get(name, "").startswith("timestamp") and here is not None and there is not None:
            shifts.add(shift_s(here, there))
    return len([shift for shift in shifts if shift and abs(shift) >= 1]) <= 1


def _unreadable(finding: KnownDifference) -> str:
    return f"; its value: {finding.unreadable}" if finding.unreadable else ""


def _by(record: RecordPlace | None) -> str:
    return "the record" if record is None else str(record)


def _listed(names: list[str]) -> str:
    return ", ".join(names)


def _shown(key: bytes) -> str:
    text = key.decode(errors="backslashreplace")
    return text if len(text) <= 100 else text[:100] + "…"
