"""What a view is asked, and what it answers, with the evidence of the one moment at which the store was read."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from typing import Final, Literal, NamedTuple, TypeAlias

from cdc.base.lsn import LSN
from cdc.views.table.facts import Facts, State, TableFacts, Unreadable
from cdc.views.table.keys import Value
from cdc.views.table.rows import StoredRow


class Range(NamedTuple):
    """Which rows, in the order of their keys.

    Attributes:
        prefix: the first values of the key are these.
        text: the value behind them begins with it.
        start: the first key, or the first values of it.
        stop: the rows end before it.
        by: columns of an index, all or the first of them, with their values; the rows come in its order, and nothing of
            the above applies.
        limit: rows of a page.
        after: ``Page.after`` of the page before.
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
        store_id: of the store; another one knows nothing of this one's cursors and versions.
        version: of the store: the number of the commit.
        source: system identifier, timeline and database oid of the source, with commas; empty when unknown.
        lsn: the table shows every commit before it; 0 when unknown, which it is of rows that are not kept up to date.
        state: what the table's answers are worth.
        reason: why it is not exact; empty when it is.
        number: of the table; another one that takes its name has another number, and its own generations.
        generation: of the rows.
        caught_up_at: seconds since 1970; then the topics held nothing that the view did not show. 0 when never, or
            when it says nothing of this table.
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
        """Seconds since the view was last known to show all that the topics hold; None when it never was."""
        return max(time.time() - self.caught_up_at, 0.0) if self.caught_up_at else None


class Found(NamedTuple):
    """A key's row, or why there is none.

    Attributes:
        row: None when there is none.
        unreadable: the key's newest record, which is no row; None when it is one, or there is none.
        evidence: of both.
    """

    row: StoredRow | None
    unreadable: Unreadable | None
    evidence: Evidence


class FoundMany(NamedTuple):
    """Of many keys, in their order."""

    found: Sequence[Found]
    evidence: Evidence


class Page(NamedTuple):
    """Rows in order, and how to go on; no ``after`` at the end."""

    rows: Sequence[StoredRow]
    after: str | None
    evidence: Evidence


class ChangedRow(NamedTuple):
    """A key that changed, and its row as it is now.

    Attributes:
        table: by name.
        key: JSON text.
        row: None when it is gone, or cannot be read.
        order: of the key.
        unreadable: the key's newest record, which is no row; None when it is one, or there is none.
    """

    table: str
    key: bytes
    row: StoredRow | None
    order: bytes
    unreadable: Unreadable | None = None


class Changes(NamedTuple):
    """What changed behind a token.

    Attributes:
        changed: each key once, the newest state of it.
        token: to go on behind these.
        reset: tables whose rows must all be read anew, and why.
        version: of the store, when it was looked at.
    """

    changed: Sequence[ChangedRow]
    token: str
    reset: Mapping[str, str]
    version: int


Kind: TypeAlias = Literal["row", "delete", "unreadable", "snapshot", "reset"]


class Watched(NamedTuple):
    """What a watcher is told.

    Attributes:
        kind: ``row``: there it is, or this it is now; ``delete``: the row of the key is gone; ``unreadable``: the
            newest record of the key is no row; ``snapshot``: all rows that there are were told; ``reset``: rows that
            were told count no more, all are told again.
        key: JSON text; empty unless it is about a row.
        row: of a ``row``.
        token: to go on from later, without missing anything; empty where that is not possible yet.
        reason: of a ``reset``.
        unreadable: that record.
    """

    kind: Kind
    key: bytes = b""
    row: StoredRow | None = None
    token: str = ""
    reason: str = ""
    unreadable: Unreadable | None = None


def evidence_of(facts: Facts, table: TableFacts) -> Evidence:
    """Of answers about a table."""
    view = facts.view
    # What is known of the view says nothing of a table that is behind the others, but of one that is behind with them.
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
