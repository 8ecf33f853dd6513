"""Puts rows that cannot be carried aside, and takes them back when a newer record of their key comes.

Theory of operation. Every record of a state topic passes ``judged`` on its way to Kafka. For a row that cannot be
carried, two records go out instead: the row's entry in the quarantine topic, and a tombstone in the row's own topic, so
that nobody takes an older value for the newest. Any later record of that key, a row or a tombstone, takes the entry
along: a tombstone of the entry goes out before it. All of that is in one Kafka transaction, with either delivery. So
the compacted topic says at each moment which keys are in quarantine, and a session that begins reads it.

A row that is put aside may be the first of its key. Then the tombstone deletes what never was, which changes nothing.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from operator import itemgetter
from typing import Final

import structlog

from cdc.base.errors import EncodeError
from cdc.contract.header import DELETE, INSERT, bare, quarantined
from cdc.contract.quarantine import QuarantineEntry, RefusedRow, entry_key, entry_value
from cdc.contract.record import Ready

_NO_SCHEMA: Final = "0" * 16
_MAX_KEY_BYTES: Final = 65_536
"""An entry has the row's key in its own, and has to fit whatever the broker's limit is."""
_VALUE: Final = itemgetter(2)

log = structlog.get_logger("cdc.bridge")


class Quarantine:
    """The rows that are in quarantine, as far as records have been handed out.

    Args:
        topic: the quarantine topic.
        budgets: how many keys of each table may be in quarantine, by its qualified name.
        entries: what the topic holds.
    """

    def __init__(self, topic: str, budgets: Mapping[str, int], entries: Iterable[QuarantineEntry]) -> None:
        self._topic = topic
        self._budgets = budgets
        self._kept: dict[str, dict[bytes, str]] = {}
        for each in entries:
            self._kept.setdefault(each.topic, {})[each.key] = each.table

    @property
    def counts(self) -> tuple[tuple[str, int], ...]:
        """Each table that has keys in quarantine, and how many, in the order of their names."""
        counts: dict[str, int] = {}
        for kept in self._kept.values():
            for table in kept.values():
                counts[table] = counts.get(table, 0) + 1
        return tuple(sorted(counts.items()))

    def keys(self, topic: str) -> Collection[bytes]:
        """The keys of a state topic that are in quarantine."""
        return tuple(self._kept.get(topic, ()))

    def warn_of_strangers(self, topics: Collection[str]) -> None:
        """Warn of entries whose topics are not among these: no table of this bridge writes there any more."""
        for topic, kept in self._kept.items():
            if topic not in topics:
                table = next(iter(kept.values()))
                log.warning(
                    "rows in quarantine belong to a topic that no table of this bridge has: their entries stay",
                    topic=topic,
                    table=table,
                    keys=len(kept),
                    remedy="capture the table again; or, if it is gone for good, delete the entries: they are the "
                    f"records of topic {self._topic} whose key names {topic}",
                )

    def concerns(self, records: Iterable[Ready]) -> bool:
        """Whether one of these records goes into quarantine, or takes a key out of it."""
        if RefusedRow in map(type, map(_VALUE, records)):
            return True
        kept = self._kept
        return bool(kept) and any(key in kept[topic] for topic, key, *_ in records if topic in kept)

    def judged(self, records: Sequence[Ready]) -> Sequence[Ready]:
        """Returns the records that go out for these, in the same order.

        Raises:
            EncodeError: more keys of a table would be in quarantine than it may have, or a key is too large for that.
        """
        if not self.concerns(records):
            return records
        out: list[Ready] = []
        moved: tuple[str, bytes] | None = None
        for topic, key, value, header, old in records:
            was_kept = key in self._kept.get(topic, ())
            if isinstance(value, RefusedRow):
                self._enter(value, topic, key)
                # What its topic held of this key before; after a change of the key, ``old`` is about another one
                before = None if was_kept or moved == (topic, header) else old
                out.append((self._topic, entry_key(topic, key), entry_value(value, header), _own(header), None))
                out.append((topic, key, None, quarantined(header), before))
                continue
            if was_kept:
                out.append(self._removed(topic, key, header))
                old = None  # to readers, there was no row
            moved = (topic, header) if value is None else None
            out.append((topic, key, value, header, old))
        return out

    def cleared(self, topic: str, header: bytes) -> list[Ready]:
        """Returns what removes every entry of a topic, which is emptied; ``header`` is its tombstones'."""
        return [self._removed(topic, key, header) for key in self.keys(topic)]

    def dropped(self, topic: str, keys: Iterable[bytes], header: bytes) -> list[Ready]:
        """Returns what removes the entries of these keys, of those that have one. Their rows stay deleted."""
        kept = self._kept.get(topic, {})
        return [self._removed(topic, key, header) for key in dict.fromkeys(keys) if key in kept]

    def _enter(self, row: RefusedRow, topic: str, key: bytes) -> None:
        kept = self._kept.setdefault(topic, {})
        if len(entry_key(topic, key)) > _MAX_KEY_BYTES:
            raise EncodeError(f"{row.reason}; its key is too large for an entry in quarantine", remedy=row.remedy)
        budget = self._budgets.get(row.table, 0)
        if key not in kept:
            if len(kept) >= budget:
                raise EncodeError(
                    f"table {row.table}: one more row cannot be carried, and {len(kept)} of its keys are in quarantine "
                    f"already, as many as source.quarantine allows: {row.reason}",
                    remedy="correct the rows in the source and start the bridge again (cdc quarantine list names those "
                    f"in quarantine); or raise budget of {row.table} in source.quarantine, now {budget}",
                )
            log.warning(
                "row put into quarantine",
                table=row.table,
                key=key.decode(errors="replace"),
                reason=row.reason,
                in_quarantine=len(kept) + 1,
                remedy="correct the row in the source; or see what it holds: cdc quarantine list",
            )
        kept[key] = row.table

    def _removed(self, topic: str, key: bytes, header: bytes) -> Ready:
        kept = self._kept[topic]
        table = kept.pop(key)
        if not kept:
            del self._kept[topic]
        log.info("row out of quarantine", table=table, key=key.decode(errors="replace"), in_quarantine=len(kept))
        return self._topic, entry_key(topic, key), None, bare(header, DELETE, _NO_SCHEMA), None


def _own(header: bytes) -> bytes:
    """Returns the header of an entry: it has the position of the row, but not its definition."""
    return bare(header, INSERT, _NO_SCHEMA)
