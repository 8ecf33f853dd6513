"""Row changes in commit order → records in the same order: keys, tombstones, skipped repeats, rows made whole.

Theory of operation. ``seq`` counts the row changes of the source transaction, from 1; (commit LSN, seq) is a change's
position and the same on every replay. A replay skips what the stored progress covers: whole transactions before its
LSN, and the first changes of a partly published one.

A row with unchanged TOAST cannot be published before it was re-read. From the first such row on, records are held back
in order, until ``settle`` re-reads all of them with one query per table and lets everything go. So the topic's order is
the stream's order, always.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Sequence, Set
from dataclasses import dataclass
from typing import NamedTuple, Protocol

from cdc.change import (
    Begin,
    Commit,
    Delete,
    Insert,
    Relation,
    Row,
    Truncate,
    Update,
)
from cdc.encode.header import DELETE, INSERT, TRUNCATE, UPDATE, HeaderStamp, newer, with_null_documents
from cdc.encode.table import TableEncoder
from cdc.errors import EncodeError
from cdc.lsn import LSN, ZERO
from cdc.order.touched import TouchedKeys
from cdc.record import Position, Progress

MAX_HELD = 2_000
"""Records held back behind a row that waits for its re-read: bounds memory and the size of the re-read query."""

Produce = Callable[[str, bytes, bytes | None, bytes], None]
KeepOld = Callable[[bytes, TableEncoder, Row, bool], None]
"""Header (for the position), table, old row, whether that is the whole row."""


@dataclass(slots=True)
class TableCounts:
    """What happened to one table since the process started; only ever grows."""

    changes: int = 0
    toast_rereads: int = 0
    truncates: int = 0


class Counts(dict[str, TableCounts]):
    """``TableCounts`` by ``namespace.table``."""

    def __missing__(self, table: str) -> TableCounts:
        self[table] = counts = TableCounts()
        return counts


class _Published(NamedTuple):
    """A relation in scope: how to encode it, and its counts."""

    encoder: TableEncoder
    counts: TableCounts


class Reread(Protocol):
    """Makes rows whole: per row the completed row and whether it may be newer than the change, None when gone.

    The 64-bit xids tell which transactions must be visible to the reading for that to be true.
    """

    def __call__(
        self, table: TableEncoder, rows: Sequence[Row], xids: Sequence[int], /
    ) -> Sequence[tuple[Row, bool] | None]:
        """Re-read in one query."""


class _Held(NamedTuple):
    """A record that waits in line; ``row`` is set when it must be re-read first."""

    topic: str
    key: bytes
    value: bytes | None
    header: bytes
    table: TableEncoder | None = None
    row: Row | None = None
    xid: int = 0


class Translator:
    """Turns decoded changes into produced records.

    Args:
        produce: takes a record; may block.
        table_for: the encoder of a relation, or None for a table that is not ours to publish.
        reread: see ``Reread``.
        truncate: publishes the tombstones of a TRUNCATE; called between records, with the header to use.
        meet: told of every relation that the stream describes.
        empty: the same for a table that begins anew, whatever the policy for TRUNCATE says.
        resume: the stored progress.
        counts: what happened, for metrics.
        xid: a recent 64-bit transaction id: pgoutput sends only the low 32 bits of each.
        touched: told of every key that a change touches, for the topics that it watches.
        keep_old: given the old row of a change, before the change's records, for those who want it.
    """

    def __init__(
        self,
        *,
        produce: Produce,
        table_for: Callable[[Relation], TableEncoder | None],
        reread: Reread,
        truncate: Callable[[TableEncoder, bytes], None],
        empty: Callable[[TableEncoder, bytes], object] = lambda *_: None,
        meet: Callable[[Relation], None] = lambda _: None,
        resume: Progress,
        counts: Counts,
        xid: int,
        touched: TouchedKeys | None = None,
        keep_old: KeepOld | None = None,
    ) -> None:
        self._produce = produce
        self._keep_old = keep_old
        self._touched = touched or TouchedKeys()
        self._watched = self._touched.keys
        self._unseen = set(resume.unseen)
        self._emit = produce
        self._table_for = table_for
        self._reread = reread
        self._truncate_topic = truncate
        self._empty_topic = empty
        self.relation = meet
        self._resume = resume
        self._counts = counts
        self._xid = xid
        self._tables: dict[Relation, _Published | None] = {}
        self._newest: dict[int, Relation] = {}
        self._held: list[_Held] = []
        self._begin: Begin | None = None
        self._stamp = HeaderStamp(ZERO, xid, 0)
        self._seq = 0
        self._skip = 0
        self._complete = resume.lsn
        self._commit_ts = resume.commit_ts

    @property
    def inside_transaction(self) -> bool:
        """Whether a transaction is published in part, by us or before the start, and not to its end."""
        return self._begin is not None or self._is_rest_awaited

    @property
    def _is_rest_awaited(self) -> bool:
        """Whether the transaction that was published in part before the start is still to come."""
        return self._resume.partial is not None and self._complete <= self._resume.partial.lsn

    @property
    def xid(self) -> int:
        """64-bit id of the transaction that is being read."""
        return self._xid

    @property
    def unseen(self) -> Set[int]:
        """Published transactions that a snapshot of the source may not see yet."""
        return self._unseen

    def distrust(self, xids: Iterable[int]) -> None:
        """No snapshot is good enough for a backfill that does not see these transactions, once they are over."""
        self._unseen.update(xids)

    def saw(self, sees: Callable[[int], bool]) -> None:
        """Forget published transactions that snapshots of the source see from now on."""
        self._unseen = {xid for xid in self._unseen if not sees(xid)}

    def watch_keys(self) -> None:
        """``touched`` began or ceased to watch topics."""
        self._route()

    @property
    def holds_records(self) -> bool:
        """Whether records wait for a re-read."""
        return bool(self._held)

    @property
    def complete_lsn(self) -> LSN:
        """Everything that committed before this was handed to ``produce`` (or held)."""
        return self._complete

    def progress(self) -> Progress:
        """Where the stream is, for the Kafka transaction that is about to be committed."""
        partial = self._resume.partial if self._is_rest_awaited else None
        if self._begin is not None and self._begin.final_lsn >= self._resume.lsn:
            partial = Position(self._begin.final_lsn, max(self._seq, self._skip))
        return Progress(self._complete, partial, self._commit_ts, self._resume.source, tuple(sorted(self._unseen)))

    def advance(self, lsn: LSN) -> None:
        """A keepalive said that everything before ``lsn`` was sent; true for us only between transactions."""
        if self._begin is None and lsn > self._complete:
            self._complete = lsn

    def begin(self, message: Begin) -> None:
        """A source transaction starts: decide how much of it is published already."""
        # The nearest 64-bit id with these low bits: running ids lie within 2^31 of each other
        self._xid += ((message.xid - self._xid + 0x80000000) & 0xFFFFFFFF) - 0x80000000
        self._begin = message
        self._stamp = HeaderStamp(message.final_lsn, self._xid, message.commit_ts)
        self._seq = 0
        self._skip = 0
        if message.final_lsn < self._resume.lsn:
            self._skip = sys.maxsize
            return
        self._unseen.add(self._xid)
        if self._resume.partial is not None and message.final_lsn == self._resume.partial.lsn:
            self._skip = self._resume.partial.seq

    def commit(self, message: Commit) -> None:
        """A source transaction is complete."""
        self._begin = None
        if message.end_lsn > self._complete:
            self._complete = message.end_lsn
            self._commit_ts = message.commit_ts

    def insert(self, message: Insert) -> None:
        """A new row: an upsert."""
        self._seq = seq = self._seq + 1
        if seq <= self._skip:
            return
        relation, new = message
        published = self._tables.get(relation) or self._publish(relation)
        if published is not None:
            table, counts = published
            counts.changes += 1
            header = self._stamp.header(INSERT, seq, table.fingerprint)
            if nulls := table.null_documents(new):
                header = with_null_documents(header, nulls)
            self._emit(table.topic, table.key(new), table.value(new), header)

    def update(self, message: Update) -> None:
        """A changed row: an upsert, behind a tombstone of the old key when the key changed."""
        self._seq = seq = self._seq + 1
        if seq <= self._skip:
            return
        relation, old, is_full, new = message
        published = self._tables.get(relation) or self._publish(relation)
        if published is None:
            return
        table, counts = published
        counts.changes += 1
        try:
            key, value = table.key(new), table.value(new)
        except EncodeError:
            if not table.missing(new):
                raise
            counts.toast_rereads += self._update_unchanged_toast(table, message)
            return
        header = self._stamp.header(UPDATE, seq, table.fingerprint)
        if old is not None:
            if self._keep_old is not None:
                self._keep_old(header, table, old, is_full)
            if (old_key := table.key(old)) != key:
                self._emit(table.topic, old_key, None, header)
        if nulls := table.null_documents(new):
            header = with_null_documents(header, nulls)
        self._emit(table.topic, key, value, header)

    def delete(self, message: Delete) -> None:
        """A removed row: a tombstone."""
        self._seq = seq = self._seq + 1
        if seq <= self._skip:
            return
        relation, old, is_full = message
        published = self._tables.get(relation) or self._publish(relation)
        if published is not None:
            table, counts = published
            counts.changes += 1
            header = self._stamp.header(DELETE, seq, table.fingerprint)
            if self._keep_old is not None:
                self._keep_old(header, table, old, is_full)
            self._emit(table.topic, table.key(old), None, header)

    def truncate(self, message: Truncate) -> None:
        """Every live key of each truncated table gets a tombstone, from what the topic holds at this point."""
        self._seq = seq = self._seq + 1
        if seq <= self._skip:
            return
        self.settle()
        for relation in message.relations:
            published = self._publish(relation)
            if published is not None:
                self._seq = seq - 1  # what is published while the tombstones go out covers only what came before
                published.counts.truncates += 1
                table = published.encoder
                self._touched.emptied(table.topic, self._xid)
                self._truncate_topic(table, self._stamp.header(TRUNCATE, seq, table.fingerprint))
        self._seq = seq

    def begin_anew(self, table: TableEncoder) -> None:
        """Delete every key of a topic before the change at hand, which is the first of a table that begins anew."""
        self.settle()
        seq = self._seq
        self._seq = seq - 1  # what is published while the tombstones go out covers only what came before
        self._touched.emptied(table.topic, self._xid)
        self._empty_topic(table, self._stamp.header(TRUNCATE, seq, table.fingerprint))
        self._seq = seq

    def settle(self) -> None:
        """Re-read what is held back and let everything go, in order."""
        if not self._held:
            return
        held, self._held = self._held, []
        self._route()
        whole = self._reread_held(held)
        for place, (topic, key, value, header, table, row, _) in enumerate(held):
            if table is None or row is None:
                self._produce(topic, key, value, header)
                continue
            found = whole.get(place)
            if found is None:
                continue  # gone meanwhile: the topic keeps its older whole row, the delete is on its way
            complete, is_newer = found
            if nulls := table.null_documents(complete):
                header = with_null_documents(header, nulls)
            self._produce(topic, key, table.value(complete), newer(header) if is_newer else header)

    def _update_unchanged_toast(self, table: TableEncoder, message: Update) -> bool:
        """Fill from the old row what it has; the rest waits for a re-read (True), with everything behind it."""
        _, old, is_full, new = message
        if old is not None:
            new = table.fill(new, old)
        key = table.key(new)
        header = self._stamp.header(UPDATE, self._seq, table.fingerprint)
        if old is not None:
            if self._keep_old is not None:
                self._keep_old(header, table, old, is_full)
            if (old_key := table.key(old)) != key:
                self._emit(table.topic, old_key, None, header)
        if not table.missing(new):
            if nulls := table.null_documents(new):
                header = with_null_documents(header, nulls)
            self._emit(table.topic, key, table.value(new), header)
            return False
        for keys in self._watched.get(table.topic, ()):
            keys[key] = self._xid
        self._held.append(_Held(table.topic, key, None, header, table, new, self._xid))
        self._route()
        return True

    def _route(self) -> None:
        """Where the next record goes: held back behind others or not, and noted down while a backfill is under way."""
        self._emit = self._noted if self._watched else self._hold if self._held else self._produce

    def _noted(self, topic: str, key: bytes, value: bytes | None, header: bytes) -> None:
        for keys in self._watched.get(topic, ()):
            keys[key] = self._xid
        if self._held:
            self._hold(topic, key, value, header)
        else:
            self._produce(topic, key, value, header)

    def _hold(self, topic: str, key: bytes, value: bytes | None, header: bytes) -> None:
        self._held.append(_Held(topic, key, value, header))
        if len(self._held) >= MAX_HELD:
            self.settle()

    def _reread_held(self, held: list[_Held]) -> dict[int, tuple[Row, bool]]:
        by_table: dict[TableEncoder, list[int]] = {}
        for place, each in enumerate(held):
            if each.table is not None:
                by_table.setdefault(each.table, []).append(place)
        whole: dict[int, tuple[Row, bool]] = {}
        for table, places in by_table.items():
            rows = [row for place in places if (row := held[place].row) is not None]
            found = self._reread(table, rows, [held[place].xid for place in places])
            whole.update((place, answer) for place, answer in zip(places, found, strict=True) if answer is not None)
        return whole

    def _publish(self, relation: Relation) -> _Published | None:
        if relation not in self._tables:
            encoder = self._table_for(relation)
            counts = self._counts[relation.qualified_name]
            if (before := self._newest.get(relation.relation_id)) is not None:
                del self._tables[before]  # each Relation message makes a new object, and caches forget them often
            self._newest[relation.relation_id] = relation
            self._tables[relation] = None if encoder is None else _Published(encoder, counts)
        return self._tables[relation]
