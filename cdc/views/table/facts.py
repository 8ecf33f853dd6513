"""The facts that a view keeps about itself and its tables, in the store beside the rows. Pure.

Facts change in the same transaction as the rows, so an answer and its evidence come from one moment. They change much
less often than rows: readers cache them, and read them again when the store's version has changed.

Spaces of a store:

======================  =============================================================================
``facts``               ``view`` → ``ViewFacts``; ``table/<name>`` → ``TableFacts``;
                        ``offsets/<topic>`` → next offset of each partition
``rows/<number>/<gen>`` the rows of one generation of a table
``index/<number>/<gen>/<place>``  one of its indexes: ``keys.index_order`` → ``keys.pointer`` to the row
``unreadable/<number>/<gen>``  records that are not rows (``Unreadable``): under the row's key if the record's key is
                        valid, otherwise after all keys (``keys.order_of_no_key``)
``journal``             what each commit changed, see ``journal.py``
``feed``                what only the feed needs, see ``feed_facts.py``
======================  =============================================================================
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime
from math import inf
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
"""What an answer about a table is worth.

- ``exact``: the table is what the source held at the LSN.
- ``behind``: as ``exact``, but nobody knows whether its topic holds more by now. The store never contains this state,
  because a view that is not being filled cannot write it down: ``Facts.standing`` derives it from the clock.
- ``loading``: the table may lack rows of its topic.
- ``suspect``: the table may have rows that the source deleted; it is being read anew.
- ``degraded``: complete except for the keys whose newest record could not be read.
"""

LAGS_AFTER_S: Final = 60.0
"""Silence after which an ``exact`` table counts as ``behind``. A view that keeps up writes down at least every ten
seconds that it holds everything in its topics."""

ValueKind: TypeAlias = Literal["json", "string", "bytes"]

KeyKind: TypeAlias = Literal["columns", "string", "json", "bytes"]
"""``columns``: a JSON object of key columns, as the bridge writes it. The others are for topics of other programs."""


class KeyColumn(msgspec.Struct, frozen=True, array_like=True):
    """A column of a table's key, and its type as ``__schemas`` spells it.

    Attributes:
        is_exact: whether keys are told apart by their spelling; False in stores of earlier versions.
        schema_id: the id of the registry's schema with which the topic's keys begin; None if they are JSON.
    """

    name: str
    sql_type: str
    is_exact: bool = False
    schema_id: int | None = None


SHOWN_KEY: Final = 200
"""Number of characters of a record's key that ``Unreadable.key`` keeps."""


class Unreadable(msgspec.Struct, frozen=True):
    """A record that is not a row, and is the newest of its key.

    Attributes:
        partition: where the record lies, with ``offset``.
        key: the record's key, as far as it is text; cut off when it is long.
        reason: why the record is not a row.
    """

    partition: int
    offset: int
    key: str
    reason: str


class TableFacts(msgspec.Struct, frozen=True, kw_only=True):
    """The facts of one table.

    Attributes:
        number: identifies the table in this store and names its spaces; never used for another table.
        name: ``schema.table`` in the source; for another program's topic, the topic's name.
        topic: the topic whose state the table shows.
        topic_id: Kafka's id of that topic.
        key_kind: how keys are written.
        value_kind: how values are written in the topic. The store has text and bytes as JSON strings, bytes in base64.
        key: the columns of the key; empty unless ``key_kind`` is ``columns``.
        columns: all columns, name and type; empty for topics of other programs.
        indexes: the columns of each index.
        state: what answers are worth.
        reason: why the table is not exact, for people; empty when it is.
        generation: the generation that readers see; 0 when there is none yet.
        filling: the generation that is being filled beside it; 0 when there is none.
        unreadable: how many records of the served generation are not rows.
        was_whole: whether the served generation ever held all rows. Until then it answers no questions.
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
        """Whether questions are answered from this table. Before it was whole, a row that was not read yet would pass
        for a row that does not exist."""
        return bool(self.generation) and self.was_whole

    @property
    def is_current(self) -> bool:
        """Whether the rows are those of the view's LSN. A table shows older rows while it catches up, is stopped, or
        is read anew beside its old rows."""
        return self.state in ("exact", "degraded")

    def rows(self, generation: int = 0) -> str:
        """The space of a generation's rows; the served generation unless given."""
        return f"rows/{self.number}/{generation or self.generation}"

    def index(self, place: int, generation: int = 0) -> str:
        """The space of one of a generation's indexes."""
        return f"index/{self.number}/{generation or self.generation}/{place}"

    def no_rows(self, generation: int = 0) -> str:
        """The space of a generation's records that are not rows."""
        return f"unreadable/{self.number}/{generation or self.generation}"


def timeline_of(source: str) -> int:
    """The timeline in ``ViewFacts.source``; 0 when it is empty."""
    return int(source.split(",")[1]) if source else 0


class ViewFacts(msgspec.Struct, frozen=True, kw_only=True):
    """The facts of the view as a whole.

    Attributes:
        format: the format of the store; a store of another format is refused.
        name: the name of the deployment, or of the view.
        feed: what fills the view: ``deployment`` (all tables change together at an LSN) or ``topics`` (each by itself).
        store_id: made with the store; tells cursors and resume tokens of another store apart.
        lsn: current tables show what the source held at this LSN; 0 when unknown.
        commit_ts: commit time of the newest transaction shown, µs since 1970; 0 when unknown.
        source: system identifier, timeline and database oid of the source, with commas; empty when unknown.
        caught_up_at: seconds since 1970, when the topics last held nothing that the view does not show.
        targets: by topic, the end of each partition when the view began to load: how far the load has to go.
        began_at: seconds since 1970, when the load began.
        rows: how many rows were read since then.
        retired: the highest number of a removed table; new tables get higher ones.
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
        """``lsn`` as an ``LSN``."""
        return LSN(self.lsn)

    @property
    def timeline(self) -> int:
        """The timeline of ``lsn``: each failover begins another one. 0 when unknown."""
        return timeline_of(self.source)


class Facts(msgspec.Struct, frozen=True):
    """All of a view's facts at one moment."""

    version: int
    view: ViewFacts | None
    tables: Mapping[str, TableFacts]
    offsets: Mapping[str, tuple[int, ...]]

    def lsn_of(self, table: TableFacts) -> LSN:
        """The LSN before which the table shows every commit; 0 when nobody can tell."""
        return self.view.position if self.view is not None and table.is_current else LSN(0)

    def standing(self, table: TableFacts, now: float) -> tuple[State, str]:
        """What answers about a table are worth at ``now`` (seconds since 1970), and why they are not exact."""
        if now <= self.stands_until(table):
            return table.state, table.reason
        since = 0.0 if self.view is None else self.view.caught_up_at
        told = datetime.fromtimestamp(since, UTC).isoformat(timespec="seconds")
        return (
            "behind",
            f"since {told} the view is not known to hold all of its topic: it is filled too slowly, or not at all",
        )

    def stands_until(self, table: TableFacts) -> float:
        """The time, in seconds since 1970, until which answers about a table are worth what its facts say."""
        since = 0.0 if self.view is None else self.view.caught_up_at
        return since + LAGS_AFTER_S if table.state == "exact" and since else inf

    def is_read(self, table: TableFacts) -> bool:
        """Whether the table can be queried, or has read everything that its topic held when the load began."""
        ends = () if self.view is None else self.view.targets.get(table.topic, ())
        offsets = self.offsets.get(table.topic, ())
        return table.is_shown or (table.generation > 0 and len(offsets) >= len(ends) and all(map(ge, offsets, ends)))

    def reached(self, name: str) -> LSN:
        """``lsn_of`` the named table; the view's own LSN if the table is unknown or cannot be queried yet."""
        table = self.tables.get(name)
        if table is None or not table.is_shown:
            return LSN(0) if self.view is None else self.view.position
        return self.lsn_of(table)


_VIEW: Final = Key(b"view", b"view")
_TABLES: Final = b"table/"
_OFFSETS: Final = b"offsets/"
_MANY: Final = 100_000  # a limit that no view reaches: one fact for each table and each topic

_decode_view: Final = msgspec.json.Decoder(ViewFacts)
_decode_table: Final = msgspec.json.Decoder(TableFacts)
_decode_offsets: Final = msgspec.json.Decoder(tuple[int, ...])
decode_unreadable: Final = msgspec.json.Decoder(Unreadable).decode
encode: Final = msgspec.json.Encoder().encode


def fact_key(kind: Literal["view", "table", "offsets"], name: str = "") -> Key:
    """The key of a fact. It fits any store: PostgreSQL and Kafka keep names of tables and topics below 400 bytes."""
    text = _VIEW.text if kind == "view" else f"{kind}/{name}".encode()
    return Key(text, text)


def read_facts(snapshot: StoreSnapshot) -> Facts:
    """Reads all facts.

    Raises:
        StoreRefused: the store has another format.
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
            f"the store has format {view.format}, but this program reads format {FORMAT}",
            remedy="delete the store and start again: it is filled from the topics",
        )
    return Facts(snapshot.version, view, tables, offsets)
