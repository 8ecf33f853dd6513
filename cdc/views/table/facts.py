"""What a view says of itself and of its tables, as it stands in the store beside the rows. Pure.

All of it changes in the transaction that changes the rows, so an answer and its evidence come from one moment. Facts
change rarely beside rows: readers keep them, and read them again when the store's version is another one.

Spaces of a store:

======================  =============================================================================
``facts``               ``view`` → ``ViewFacts``; ``table/<name>`` → ``TableFacts``;
                        ``offsets/<topic>`` → next offset of each partition
``rows/<number>/<gen>`` the rows of one generation of a table
``index/<number>/<gen>/<place>``  an index of it: ``keys.index_order`` → ``keys.pointer`` to the row
``unreadable/<number>/<gen>``  what is no row (``Unreadable``): by the row's key, where the record's key is one, else
                        behind all keys (``keys.order_of_no_key``)
``journal``             what each commit changed, see ``journal.py``
``feed``                what the feed alone needs, see ``feed_facts.py``
======================  =============================================================================
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime
from operator import ge
from typing import Final, Literal, TypeAlias

import msgspec

from cdc.base.errors import StoreRefused
from cdc.base.lsn import LSN
from cdc.views.store.port import Key, StoreSnapshot

FORMAT: Final = 2
FACTS: Final = "facts"
JOURNAL: Final = "journal"

State: TypeAlias = Literal["exact", "behind", "loading", "suspect", "degraded"]
"""What an answer about a table is worth: what the source held at the LSN; that, and nobody knows that its topic holds
no more since; perhaps not all of it yet; perhaps with rows that are gone (it is being read anew); all but what could
not be read. The store never holds ``behind``: nobody can write down that a view is not filled (``Facts.standing``)."""

BEHIND_S: Final = 60.0
"""A view that is filled writes down every ten seconds, at the latest, that it holds all that its topics do."""

ValueKind: TypeAlias = Literal["json", "string", "bytes"]

KeyKind: TypeAlias = Literal["columns", "string", "json", "bytes"]
"""``columns``: a JSON object of key columns, as the bridge writes it. The others are for topics of other programs."""


class KeyColumn(msgspec.Struct, frozen=True, array_like=True):
    """A column of a table's key, and its type as ``__schemas`` spells it.

    Attributes:
        is_exact: keys are told apart by how they are written; not so in stores of before.
    """

    name: str
    sql_type: str
    is_exact: bool = False


SHOWN_KEY: Final = 200
"""Characters of ``Unreadable.key``."""


class Unreadable(msgspec.Struct, frozen=True):
    """A record that is no row; the newest of its key.

    Attributes:
        partition: where it lies, with ``offset``.
        key: of the record, as far as it is text; cut off when it is long.
        reason: why it is no row.
    """

    partition: int
    offset: int
    key: str
    reason: str


class TableFacts(msgspec.Struct, frozen=True, kw_only=True):
    """A table of a view.

    Attributes:
        number: of the table in this store, never of another one; names its spaces.
        name: ``schema.table`` in the source; of another program's topic, the topic.
        topic: whose state it is.
        topic_id: Kafka's own.
        key_kind: what keys are.
        value_kind: what values were in the topic: text and bytes are JSON strings here, bytes in base64.
        key: the key's columns; none unless ``key_kind`` is ``columns``.
        columns: all of them, name and type; none in topics of other programs.
        indexes: the columns of each index.
        state: what answers are worth.
        reason: why it is not exact, for people; empty when it is.
        generation: the one that readers see; 0 when there is none yet.
        filling: the one that is being filled beside it; 0 when there is none.
        unreadable: how many records of the served generation are no rows.
        was_whole: whether that generation ever held all rows. Until then nobody is answered from it.
    """

    number: int
    name: str
    topic: str
    topic_id: str = ""
    key_kind: KeyKind = "columns"
    value_kind: ValueKind = "json"
    key: tuple[KeyColumn, ...] = ()
    columns: tuple[KeyColumn, ...] = ()
    indexes: tuple[tuple[str, ...], ...] = ()
    state: State = "loading"
    reason: str = ""
    generation: int = 0
    filling: int = 0
    unreadable: int = 0
    was_whole: bool = True

    @property
    def is_shown(self) -> bool:
        """Whether it is answered from. Before it was whole, a row that was not read yet would pass for one that is not
        there."""
        return bool(self.generation) and self.was_whole

    @property
    def is_current(self) -> bool:
        """Whether its rows are those of the view's LSN. A table that is filled beside its old rows, catches up or is
        stopped shows older ones."""
        return self.state in ("exact", "degraded")

    def rows(self, generation: int = 0) -> str:
        """The space of a generation's rows; of the served one unless given."""
        return f"rows/{self.number}/{generation or self.generation}"

    def index(self, place: int, generation: int = 0) -> str:
        """The space of one of a generation's indexes."""
        return f"index/{self.number}/{generation or self.generation}/{place}"

    def no_rows(self, generation: int = 0) -> str:
        """The space of what is no row in a generation."""
        return f"unreadable/{self.number}/{generation or self.generation}"


def timeline_of(source: str) -> int:
    """The timeline in ``ViewFacts.source``; 0 when it is empty."""
    return int(source.split(",")[1]) if source else 0


class ViewFacts(msgspec.Struct, frozen=True, kw_only=True):
    """A view.

    Attributes:
        format: of the store; another one is refused.
        name: of the deployment, or of the view.
        feed: what fills it: ``deployment`` (all tables change together at an LSN) or ``topics`` (each by itself).
        store_id: made when the store is; tells a cursor or resume token of another store.
        lsn: tables that are current show what the source held here; 0 when unknown.
        commit_ts: of the newest transaction that it shows, µs since 1970; 0 when unknown.
        source: system identifier, timeline and database oid of the source, with commas; empty when unknown.
        caught_up_at: seconds since 1970; then the topics held nothing that the view does not show.
        targets: by topic, the ends that were there when the view began to load: how far it has to go.
        began_at: seconds since 1970; when that was.
        rows: that were read since.
        retired: the greatest number of a table that went.
    """

    format: int = FORMAT
    name: str
    feed: Literal["deployment", "topics"]
    store_id: str
    lsn: int = 0
    commit_ts: int = 0
    source: str = ""
    caught_up_at: float = 0.0
    targets: Mapping[str, tuple[int, ...]] = {}
    began_at: float = 0.0
    rows: int = 0
    retired: int = 0

    @property
    def position(self) -> LSN:
        """``lsn``, as what it is."""
        return LSN(self.lsn)

    @property
    def timeline(self) -> int:
        """Whose LSN that is: each failover begins another timeline. 0 when unknown."""
        return timeline_of(self.source)


class Facts(msgspec.Struct, frozen=True):
    """All of a view's facts at one moment."""

    version: int
    view: ViewFacts | None
    tables: Mapping[str, TableFacts]
    offsets: Mapping[str, tuple[int, ...]]

    def lsn_of(self, table: TableFacts) -> LSN:
        """Before which a table shows every commit; 0 when nobody can tell."""
        return self.view.position if self.view is not None and table.is_current else LSN(0)

    def standing(self, table: TableFacts, now: float) -> tuple[State, str]:
        """What answers about a table are worth now, in seconds since 1970, and why they are not exact."""
        since = 0.0 if self.view is None else self.view.caught_up_at
        if table.state != "exact" or not since or now - since <= BEHIND_S:
            return table.state, table.reason
        told = datetime.fromtimestamp(since, UTC).isoformat(timespec="seconds")
        return (
            "behind",
            f"since {told} it is not known to hold all of its topic: it is filled too slowly, or not at all",
        )

    def is_read(self, table: TableFacts) -> bool:
        """Whether a table is answered from, or waits for nothing but what its topic did not hold when it was begun."""
        ends = () if self.view is None else self.view.targets.get(table.topic, ())
        offsets = self.offsets.get(table.topic, ())
        return table.is_shown or (table.generation > 0 and len(offsets) >= len(ends) and all(map(ge, offsets, ends)))

    def reached(self, name: str) -> LSN:
        """``lsn_of`` the table of that name; of one that is not answered from, where the view is."""
        table = self.tables.get(name)
        if table is None or not table.is_shown:
            return LSN(0) if self.view is None else self.view.position
        return self.lsn_of(table)


_VIEW: Final = Key(b"view", b"view")
_TABLES: Final = b"table/"
_OFFSETS: Final = b"offsets/"
_MANY: Final = 100_000

_decode_view: Final = msgspec.json.Decoder(ViewFacts)
_decode_table: Final = msgspec.json.Decoder(TableFacts)
_decode_offsets: Final = msgspec.json.Decoder(tuple[int, ...])
decode_unreadable: Final = msgspec.json.Decoder(Unreadable).decode
encode: Final = msgspec.json.Encoder().encode


def fact_key(kind: Literal["view", "table", "offsets"], name: str = "") -> Key:
    """Where a fact stands. Names of tables and topics are below 400 bytes, for PostgreSQL and Kafka say so."""
    text = _VIEW.text if kind == "view" else f"{kind}/{name}".encode()
    return Key(text, text)


def read_facts(snapshot: StoreSnapshot) -> Facts:
    """All of them.

    Raises:
        StoreRefused: the store is of another format.
    """
    view: ViewFacts | None = None
    tables: dict[str, TableFacts] = {}
    offsets: dict[str, tuple[int, ...]] = {}
    for key, value in snapshot.scan(FACTS, limit=_MANY):
        if key.order == _VIEW.order:
            view = _decode_view.decode(value)
        elif key.order.startswith(_TABLES):
            table = _decode_table.decode(value)
            tables[table.name] = table
        else:
            offsets[key.order.removeprefix(_OFFSETS).decode()] = _decode_offsets.decode(value)
    if view is not None and view.format != FORMAT:
        raise StoreRefused(
            f"the store is of format {view.format}, this program reads {FORMAT}",
            remedy="delete the store and start again: it is filled from the topics",
        )
    return Facts(snapshot.version, view, tables, offsets)
