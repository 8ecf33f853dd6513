"""Turns row changes in commit order into records in the same order, with tombstones, and without repeats. Pure.

Theory of operation. The engine is fed messages and has records ready (``take``). It says what it must be told before it
can go on (``needs``): how a relation is encoded, rows that have to be read again, a topic that must be emptied first.
It never calls anybody: whoever feeds it fetches, waits and commits, and then answers. While a need is open, no message
may be fed. Every method that takes a message or an answer returns the need that is open afterwards, or None.

``seq`` counts the row changes of the source transaction, from 1. (commit LSN, seq) is a change's position, the same on
every replay. A replay skips what the stored progress covers: whole transactions before its LSN, and the first changes
of a partly published one. A change is counted when its records are ready or held, so ``progress`` is true at every
moment: what is committed while a need is open covers only what came before the present change.

Logical messages have a count of their own. So ``seq`` does not depend on whether the server is asked for them, and a
bridge with either setting may resume half of a transaction that one with the other setting has published.

A row with unchanged TOAST cannot be published until it has been read again. From the first such row on, changes are
held back in order (``held``), and ``progress`` ends before them. So the topic's order is always the stream's order.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Collection, Generator, Iterable, Sequence, Set
from functools import partial
from typing import Any, TypeAlias

from cdc.base.lsn import LSN
from cdc.bridge.encode import TableEncoder
from cdc.bridge.order.counts import CountsByTable
from cdc.bridge.order.held import Held, RowPlace, StreamStanding
from cdc.bridge.order.messages import NO_SCHEMA, MessageEncoder
from cdc.bridge.order.needs import Answer, Definition, Empty, EventTopic, Need, Rows
from cdc.bridge.order.outbox import OutboxEncoder
from cdc.bridge.order.relations import OUT_OF_SCOPE, UNMET, KnownRelations, take_rows
from cdc.bridge.order.touched import TouchedKeys
from cdc.contract.change import (
    UNCHANGED_TOAST,
    Begin,
    Commit,
    Delete,
    Insert,
    LogicalMessage,
    Relation,
    Row,
    Truncate,
    Update,
)
from cdc.contract.header import DELETE, INSERT, TRUNCATE, UPDATE, HeaderStamp, with_null_documents
from cdc.contract.record import Position, Progress, Ready

_Then: TypeAlias = Callable[[], Need | None] | None
_Flow: TypeAlias = Generator[Need, Any, _Then]
"""A change that takes several steps. It yields needs, is sent the answers, and returns what is to be done then."""


class Engine:
    """Turns decoded changes into records.

    Args:
        resume: the stored progress.
        xid: a recent 64-bit transaction id: pgoutput sends only the low 32 bits of each.
        counts: counts what happened, for metrics.
        touched: is told every key that a change touches, in the topics that it watches.
        histories: state topics whose records need the old row; looked up each time, so topics may be added.
        messages: makes events of logical messages.

    Attributes:
        need: what must be answered before the next message; None when nothing.
        unpublished_since: when the oldest transaction that is not fully published was committed; 0 when there is none.
    """

    # These are of the present transaction, see ``begin``
    _standing: StreamStanding
    _stamp: HeaderStamp
    _seq: int
    _skip: int
    _messages: int
    _skip_messages: int

    def __init__(
        self,
        *,
        resume: Progress,
        xid: int,
        counts: CountsByTable,
        touched: TouchedKeys,
        histories: Collection[str] = (),
        messages: MessageEncoder | None = None,
    ) -> None:
        self._resume = resume
        self._xid = xid
        self._counts = counts
        self._touched = touched
        self._watched = touched.keys
        self._histories = histories
        self._message_encoder = messages or MessageEncoder({})
        self._take_rows = take_rows()
        self.need: Need | None = None
        self._flow: _Flow | None = None
        self._ready: list[Ready] = []
        self._held = Held()
        self._known = KnownRelations()
        self._tables = self._known.tables
        self._outboxes = self._known.outboxes
        self._event_topics: set[str] = set()
        self._unseen = set(resume.unseen)
        self._complete = resume.lsn
        self._commit_ts = resume.commit_ts
        self._begin: Begin | None = None
        self.unpublished_since = 0

    @property
    def xid(self) -> int:
        """The 64-bit id of the transaction that is being read."""
        return self._xid

    @property
    def inside_transaction(self) -> bool:
        """Whether a transaction is taken in part, or was published in part before the start and has not ended yet."""
        return self._begin is not None or self._is_rest_awaited

    @property
    def is_partial(self) -> bool:
        """Whether only the first changes of a transaction were handed out."""
        return self._partial()[0] is not None

    @property
    def holds_records(self) -> bool:
        """Whether changes wait for rows that must be read again."""
        return bool(self._held)

    def published(self) -> None:
        """Note that what was handed out is committed in Kafka."""
        if not self._held:
            self.unpublished_since = 0 if self._begin is None else self._begin.commit_ts

    @property
    def complete_lsn(self) -> LSN:
        """The LSN before which everything that committed was taken; some of it may be held."""
        return self._complete

    @property
    def settled_lsn(self) -> LSN:
        """The LSN before which everything that committed was handed out."""
        return self._held.first[0].complete if self._held else self._complete

    @property
    def unseen(self) -> Set[int]:
        """Transactions that were taken, and that a snapshot of the source may not see yet."""
        return self._unseen

    def distrust(self, xids: Iterable[int]) -> None:
        """Reject, for backfills, every snapshot that does not see these transactions, once they are over."""
        self._unseen.update(xids)

    def saw(self, sees: Callable[[int], bool]) -> None:
        """Forget the transactions that snapshots of the source see from now on."""
        self._unseen = {xid for xid in self._unseen if not sees(xid)}

    def take(self) -> list[Ready]:
        """Returns the records that are ready, in order, each once. ``progress`` covers them from now on."""
        ready, self._ready = self._ready, []
        return ready

    def progress(self) -> Progress:
        """Returns where the stream is once everything that was ready is published."""
        complete, commit_ts = self._complete, self._commit_ts
        if self._held:
            complete, commit_ts, _ = self._held.first[0]
        unseen, (partial, messages) = tuple(sorted(self._unseen)), self._partial()
        return Progress(complete, partial, commit_ts, self._resume.source, unseen, messages=messages)

    def _partial(self) -> tuple[Position | None, int]:
        """Returns how much of the present transaction was handed out: changes, and messages."""
        if self._held:
            standing, (seq, messages) = self._held.first
            return (Position(standing.final_lsn, seq - 1) if seq > 1 or messages else None), messages
        if self._begin is not None and self._begin.final_lsn >= self._resume.lsn:
            # While a replay skips changes, more of them are published than were read again
            at = Position(self._begin.final_lsn, max(self._seq, self._skip))
            return at, max(self._messages, self._skip_messages)
        return (self._resume.partial, self._resume.messages) if self._is_rest_awaited else (None, 0)

    @property
    def _is_rest_awaited(self) -> bool:
        """Whether the transaction that was published in part before the start is still to come."""
        return self._resume.partial is not None and self._complete <= self._resume.partial.lsn

    def meet_again(self, name: str) -> None:
        """Ask again what to do with changes of ``schema.table``, from its next one on."""
        self._known.forget(name)

    # Messages.

    def advance(self, lsn: LSN) -> None:
        """Take a keepalive: everything before ``lsn`` was sent. That holds for us only between transactions."""
        if self._begin is None and lsn > self._complete:
            self._complete = lsn

    def begin(self, message: Begin) -> None:
        """Start a source transaction, and decide how much of it is published already."""
        # The nearest 64-bit id with these low bits: running ids lie within 2^31 of each other
        self._xid += ((message.xid - self._xid + 0x80000000) & 0xFFFFFFFF) - 0x80000000
        self._begin = message
        self._standing = StreamStanding(self._complete, self._commit_ts, message.final_lsn)
        self._stamp = HeaderStamp(message.final_lsn, self._xid, message.commit_ts)
        self._seq = self._skip = self._messages = self._skip_messages = 0
        if message.final_lsn < self._resume.lsn:
            self._skip = self._skip_messages = sys.maxsize
            return
        self._unseen.add(self._xid)
        self.unpublished_since = self.unpublished_since or message.commit_ts
        if self._resume.partial is not None and message.final_lsn == self._resume.partial.lsn:
            self._skip, self._skip_messages = self._resume.partial.seq, self._resume.messages

    def commit(self, message: Commit) -> None:
        """Complete a source transaction."""
        self._begin = None
        if message.end_lsn > self._complete:
            self._complete = message.end_lsn
            self._commit_ts = message.commit_ts

    def feed(self, frames: list[bytes], place: int, relations: dict[int, Relation]) -> int:
        """Take ordinary rows from ``frames[place]`` on, undecoded (``_frames.pyx``). Returns where to go on."""
        if self._take_rows is None or self._begin is None or self._held or self._seq < self._skip:
            return place
        transaction = (self._stamp, self._xid, self._watched, self._histories)
        place, self._seq = self._take_rows(
            frames, place, relations, self._known.plain, self._ready, self._seq, transaction
        )
        return place

    def insert(self, message: Insert) -> Need | None:
        """Take a new row: an upsert."""
        seq = self._seq + 1
        if seq > self._skip:
            relation, new = message
            published = self._tables.get(relation, UNMET)
            if published is UNMET:
                return self._start(self._met(relation, partial(self.insert, message)))
            if published is not OUT_OF_SCOPE:
                table, counts = published
                header = self._stamp.header(INSERT, seq, table.fingerprint)
                if UNCHANGED_TOAST in new and table.missing(new):  # of an update by which the row came into the filter
                    self._seq = seq
                    counts.changes += 1
                    counts.toast_rereads += 1
                    return self._hold_row(table, new, (table.topic, table.key(new), None, header, None), None)
                if nulls := table.null_documents(new):
                    header = with_null_documents(header, nulls)
                record = (table.topic, table.key(new), table.value(new), header, None)
                self._seq = seq
                counts.changes += 1
                return self._emit(record)
            if relation in self._outboxes:
                return self._event(message)
        self._seq = seq
        return None

    def _event(self, message: Insert) -> Need | None:
        """Take a new row of an outbox: an event. Updates and deletes of an outbox are counted, and nothing else."""
        outbox, counts = self._outboxes[message.relation]
        topic, key, value, parts = outbox.event(message.new, self._standing.final_lsn)
        if topic not in self._event_topics:
            return self._start(self._with_topic(EventTopic(topic, message.relation.qualified_name), message))
        self._seq += 1
        counts.changes += 1
        return self._emit((topic, key, value, self._stamp.header(INSERT, self._seq, outbox.fingerprint), parts))

    def update(self, message: Update) -> Need | None:
        """Take a changed row: an upsert, after a tombstone of the old key when the key changed."""
        seq = self._seq + 1
        if seq > self._skip:
            relation, old, is_full, new = message
            published = self._tables.get(relation, UNMET)
            if published is UNMET:
                return self._start(self._met(relation, partial(self.update, message)))
            if published is not OUT_OF_SCOPE:
                table, counts = published
                if is_short := UNCHANGED_TOAST in new:
                    if old is not None:
                        new = table.fill(new, old)
                    is_short = bool(table.missing(new))  # what is hidden need not be there
                key, value = table.key(new), None if is_short else table.value(new)
                header = self._stamp.header(UPDATE, seq, table.fingerprint)
                old_text = old_key = None
                if old is not None:
                    if table.topic in self._histories:
                        old_text = table.old(old, is_full)
                    if (before := table.key(old)) != key:
                        old_key = before
                self._seq = seq
                counts.changes += 1
                if value is None:
                    counts.toast_rereads += 1
                    return self._hold_row(table, new, (table.topic, key, None, header, old_text), old_key)
                marked = with_null_documents(header, nulls) if (nulls := table.null_documents(new)) else header
                record = (table.topic, key, value, marked, old_text)
                if old_key is None:
                    return self._emit(record)
                return self._emit((table.topic, old_key, None, header, old_text), record)
        self._seq = seq
        return None

    def delete(self, message: Delete) -> Need | None:
        """Take a removed row: a tombstone."""
        seq = self._seq + 1
        if seq > self._skip:
            relation, old, is_full = message
            published = self._tables.get(relation, UNMET)
            if published is UNMET:
                return self._start(self._met(relation, partial(self.delete, message)))
            if published is not OUT_OF_SCOPE:
                table, counts = published
                header = self._stamp.header(DELETE, seq, table.fingerprint)
                old_text = table.old(old, is_full) if table.topic in self._histories else None
                record = (table.topic, table.key(old), None, header, old_text)
                self._seq = seq
                counts.changes += 1
                return self._emit(record)
        self._seq = seq
        return None

    def takes_messages_of(self, prefix: str) -> bool:
        """Whether messages with this prefix are events."""
        return self._message_encoder.takes(prefix)

    def message(self, message: LogicalMessage) -> Need | None:
        """Take a message of the transaction: an event, if its prefix is configured. Messages of all prefixes count."""
        number = self._messages + 1
        event = self._message_encoder.event(message) if number > self._skip_messages else None
        self._messages = number
        if event is None:
            return None
        topic, key, value, parts = event
        self._counts[f"messages of {message.prefix}"].changes += 1
        # The ordinal among changes and messages together, so that no other message of the transaction has it
        return self._emit((topic, key, value, self._stamp.header(INSERT, self._seq + number, NO_SCHEMA), parts))

    def truncate(self, message: Truncate) -> Need | None:
        """Have every live key of each truncated table tombstoned, from what the topic holds at this point."""
        if self._seq + 1 <= self._skip:
            self._seq += 1
            return None
        return self._start(self._truncated(message))

    def settle(self) -> Need | None:
        """Have held rows read again, so that everything that was taken can go out; None when nothing is held."""
        return self._start(self._let_go()) if self._held else None

    # Answers.

    def table(self, table: TableEncoder | OutboxEncoder | None, *, begins_anew: bool = False) -> Need | None:
        """Answer a ``Definition``.

        Args:
            table: the table's encoder, or the outbox's; None when the relation is out of scope.
            begins_anew: the topic's rows belong to another table, or have another key: they are deleted first.
        """
        assert isinstance(self.need, Definition)
        return self._go_on((table, begins_anew))

    def rows(self, answers: Sequence[Answer]) -> Need | None:
        """Answer ``Rows``: what became of the first of them, at least of one. The others are asked for again."""
        assert isinstance(self.need, Rows)
        return self._go_on(answers)

    def emptied(self) -> Need | None:
        """Answer an ``Empty``: every live key of the topic has its tombstone."""
        assert isinstance(self.need, Empty)
        return self._go_on(None)

    def has_topic(self) -> Need | None:
        """Answer an ``EventTopic``: the topic is there, and takes events."""
        assert isinstance(self.need, EventTopic)
        return self._go_on(None)

    # Changes that take several steps.

    def _start(self, flow: _Flow) -> Need | None:
        assert self._flow is None
        self._flow = flow
        return self._go_on(None)

    def _go_on(self, answer: object) -> Need | None:
        assert self._flow is not None
        try:
            self.need = self._flow.send(answer)
        except StopIteration as end:
            self._flow = self.need = None
            then: _Then = end.value
            return None if then is None else then()
        return self.need

    def _met(self, relation: Relation, then: _Then) -> _Flow:
        """Look up a relation that is not known yet, before the change at hand is taken."""
        yield from self._look_up(relation)
        return then

    def _with_topic(self, need: EventTopic, message: Insert) -> _Flow:
        yield need
        self._event_topics.add(need.topic)
        return partial(self.insert, message)

    def _look_up(self, relation: Relation) -> _Flow:
        table, begins_anew = yield Definition(relation, self._xid)
        if table is not None and begins_anew:
            yield from self._empty(table, is_truncate=False)
        self._known.learn(relation, table, self._counts[relation.qualified_name])
        return None

    def _truncated(self, message: Truncate) -> _Flow:
        for relation in message.relations:
            if relation not in self._tables:
                yield from self._look_up(relation)
            if (published := self._tables[relation]) is not OUT_OF_SCOPE:
                published.counts.truncates += 1
                yield from self._empty(published.encoder, is_truncate=True)
        self._seq += 1
        return None

    def _empty(self, table: TableEncoder, *, is_truncate: bool) -> _Flow:
        """Empty a topic after everything that came before, and before the change at hand is counted."""
        yield from self._let_go()
        self._touched.emptied(table.topic, self._xid)
        yield Empty(table, self._stamp.header(TRUNCATE, self._seq + 1, table.fingerprint), is_truncate)
        return None

    def _let_go(self) -> _Flow:
        """Have held rows read again until nothing is held, and release what has become whole meanwhile."""
        held = self._held
        while (rows := held.rows()) is not None:
            held.answer((yield rows))
            self._ready += held.release()
        self._ready += held.release()
        return None

    def _bounded(self) -> Need | None:
        """Have held rows read again if there are too many of them."""
        return self._start(self._let_go()) if self._held.is_full else None

    # Where records go.

    def _hold_row(self, table: TableEncoder, row: Row, record: Ready, old_key: bytes | None) -> Need | None:
        """Hold a row, and with it everything after it, until it has been read again."""
        topic, key, *_ = record
        for keys in self._watched.get(topic, ()):
            keys[key] = self._xid
            if old_key is not None:
                keys[old_key] = self._xid
        place = RowPlace(self._seq, max(self._messages, self._skip_messages))
        self._held.add_row(self._standing, place, record, table=table, row=row, xid=self._xid, old_key=old_key)
        return self._bounded()

    def _emit(self, *records: Ready) -> Need | None:
        """Hand out the records of one change, all or none: at once, unless something before them is held."""
        if not self._watched and not self._held:  # nearly always true, and the hot path without a compiler
            self._ready += records
            return None
        for record in records:
            for keys in self._watched.get(record[0], ()):
                keys[record[1]] = self._xid
        if not self._held:
            self._ready += records
            return None
        for record in records:
            self._held.add(record)
        return self._bounded()
