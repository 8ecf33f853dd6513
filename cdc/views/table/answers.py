"""Questions to a view and its answers, with the evidence of the one moment at which the store was read."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from typing import Final, Literal, NamedTuple, TypeAlias

from cdc.base.lsn import LSN
from cdc.views.table.facts import Facts, State, TableFacts, Unreadable
from cdc.views.table.keys import Value
from cdc.views.table.rows import StoredRow


class Range(NamedTuple):
    """Which rows to return, in the order of their keys.

    Attributes:
        prefix: the first values of the key.
        text: how the value after ``prefix`` begins.
        start: the first key, or its first values.
        stop: the key before which to end.
        by: columns of an index, all or the first of them, with their values. Rows come in the order of the index, and
            the fields above are ignored.
        limit: rows of a page.
        after: ``Page.after`` of the previous page.
    """

    prefix: Sequence[Value] = ()
    text: str | None = None
    start: Sequence[Value] | None = None
    stop: Sequence[Value] | None = None
    by: Mapping[str, Value] = {}
    limit: int = 100
    after: str | None = None


EVERYTHING: Final = Range()


class Evidence(NamedTuple):
    """What an answer is worth.

    Attributes:
        store_id: the id of the store; a store with another id does not know cursors and versions of this one.
        version: the version of the store, which is the number of the commit.
        source: system identifier, timeline and database oid of the source, with commas; empty when unknown.
        lsn: the table shows every commit before this LSN; 0 when unknown, as it is while rows are not kept up to date.
        state: what the table's answers are worth.
        reason: why the state is not exact; empty when it is.
        number: the table's number; another table that takes over the name has another number and its own generations.
        generation: the generation of the rows.
        caught_up_at: seconds since 1970, when the topics last held nothing that the view did not show. 0 if that was
            never so, or says nothing about this table.
    """

    store_id: str
    version: int
    source: str
    lsn: LSN
    state: State
    reason: str
    number: int
    generation: int
    caught_up_at: float

    @property
    def age_s(self) -> float | None:
        """Seconds since the view was last known to show everything in the topics; None when it never was."""
        return max(time.time() - self.caught_up_at, 0.0) if self.caught_up_at else None


class Found(NamedTuple):
    """A key's row, or why there is none.

    Attributes:
        row: the row; None when there is none.
        unreadable: the key's newest record, if that is not a row; otherwise None.
        evidence: what both are worth.
    """

    row: StoredRow | None
    unreadable: Unreadable | None
    evidence: Evidence


class FoundMany(NamedTuple):
    """The rows of many keys, in the order of the keys."""

    found: Sequence[Found]
    evidence: Evidence


class Page(NamedTuple):
    """Rows in order, and the cursor for the next page; ``after`` is None on the last page."""

    rows: Sequence[StoredRow]
    after: str | None
    evidence: Evidence


class ChangedRow(NamedTuple):
    """A key that changed, and its row as it is now.

    Attributes:
        table: the table's name.
        key: JSON text.
        row: None when the row is gone, or cannot be read.
        order: the key's order.
        unreadable: the key's newest record, if that is not a row; otherwise None.
    """

    table: str
    key: bytes
    row: StoredRow | None
    order: bytes
    unreadable: Unreadable | None = None


class Changes(NamedTuple):
    """What changed after a token.

    Attributes:
        changed: each key once, with its newest state.
        token: where to go on after these changes.
        reset: tables whose rows must all be read anew, and why.
        version: the version of the store that was read.
    """

    changed: Sequence[ChangedRow]
    token: str
    reset: Mapping[str, str]
    version: int


Kind: TypeAlias = Literal["row", "delete", "unreadable", "snapshot", "reset"]


class Watched(NamedTuple):
    """An event for a watcher.

    Attributes:
        kind: ``row``: the row as it is now; ``delete``: the row of the key is gone; ``unreadable``: the newest
            record of the key is not a row; ``snapshot``: every existing row was sent; ``reset``: forget all rows that
            were sent, because every row follows again.
        key: JSON text; empty unless the event is about one row.
        row: the row of a ``row`` event.
        token: from here a watch can go on later without missing anything; empty where that is not possible yet.
        reason: the reason for a ``reset``.
        unreadable: the record of an ``unreadable`` event.
    """

    kind: Kind
    key: bytes = b""
    row: StoredRow | None = None
    token: str = ""
    reason: str = ""
    unreadable: Unreadable | None = None


def evidence_of(facts: Facts, table: TableFacts) -> Evidence:
    """The evidence for answers about a table."""
    view = facts.view
    # The view's age says nothing about a table that lags the others; it does while all tables still load together.
    is_told = table.is_current or (table.state == "loading" and view is not None and not view.lsn)
    state, reason = facts.standing(table, time.time())
    return Evidence(
        view.store_id if view else "",
        facts.version,
        view.source if view else "",
        facts.lsn_of(table),
        state,
        reason,
        table.number,
        table.generation,
        view.caught_up_at if view is not None and is_told else 0.0,
    )
