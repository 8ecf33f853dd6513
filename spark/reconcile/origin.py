"""Whether the bridge can have written a record: what its header says, held against what source and bridge say.

A record that a snapshot does not see exempts its key from comparison for the moment. So what a header says of itself
must not be enough: another system's transaction ids are ahead of the source's by millions, and its records would be in
flight for ever. Whatever lies in a topic was committed in the source before the topic's ends were pinned. Hence, asked
after that,

* a commit's LSN lies before the end of the source's WAL;
* a new snapshot sees the transaction, and covers the snapshot of a backfill's chunk. It may not see one that waits for
  a synchronous standby or is about to become visible: then the bridge names it (``Progress.unseen``), once its progress
  has passed that end of the WAL. To wait for this is left to the second look (``is_vouched``);
* the schemas topic has the definition that the record was written with.

What is against one of these is *foreign*: it counts like any record, as whoever reads the topic takes it, and a key
whose newest record is foreign is never identical. What names a transaction that became visible while the topic was read
cannot be told apart: the next run sees it.
"""

from __future__ import annotations

import contextlib
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final, NamedTuple

from pyspark.sql import Column
from pyspark.sql import functions as fn

from cdc.base.errors import DecodeError
from cdc.base.lsn import LSN
from cdc.contract.header import parse_header
from cdc.contract.jobspec.deployment import PostgresSettings
from cdc.contract.record import TableSchema
from cdc.spark.offsets import Brokers
from cdc.spark.reconcile.bridge_progress import BridgeProgress
from cdc.spark.reconcile.topic_records import covers, sees
from cdc.spark.snapshot.definitions import definitions_by_topic
from cdc.spark.source.held_snapshot import connect, position_now, reading
from cdc.spark.source.visibility import VisibleTransactions
from cdc.spark.topic import header_field, lsn_number

_NOW: Final = "SELECT pg_catalog.pg_current_snapshot()::text, pg_catalog.pg_current_wal_insert_lsn()::text"


class ForeignReason(NamedTuple):
    """Why a record is not the bridge's.

    Attributes:
        text: in words.
        may_be_ours: the source named what it has by then, and the bridge was not asked yet (``is_vouched`` of
            ``PossibleRecords``).
    """

    text: str
    may_be_ours: bool


@dataclass(frozen=True, slots=True)
class PossibleRecords:
    """What the bridge can have written, by what was asked after the ends of the topics were pinned.

    Attributes:
        snapshot: of the source.
        lsn: the end of its WAL.
        definitions: by topic and fingerprint.
        unseen: ``Progress.unseen`` of the bridge, when it had published everything before ``lsn``.
        is_vouched: whether the bridge was asked; else ``unseen`` is empty.
    """

    snapshot: VisibleTransactions
    lsn: LSN
    definitions: Mapping[str, Mapping[str, TableSchema]]
    unseen: frozenset[int] = frozenset()
    is_vouched: bool = False

    def is_foreign(self, topic: str | None = None) -> Column:
        """Boolean column over records of a topic, or of several when they have a column ``topic``."""
        lsn, xid = lsn_number(header_field("lsn")), header_field("xid").cast("bigint")
        snap = header_field("snap")
        xmin, xmax = (fn.get(fn.split(snap, ":"), place).cast("bigint") for place in (0, 1))
        is_known_author = fn.when(xid.isNull(), (xmin <= xmax) & covers(self.snapshot, snap)).otherwise(
            sees(self.snapshot, xid) | xid.isin(*self.unseen) if self.unseen else sees(self.snapshot, xid)
        )
        # From 2^63 on an LSN is negative here
        is_known_place = (lsn >= 0) & (lsn < fn.lit(int(self.lsn)))
        known = is_known_place & self._has_definition(topic) & is_known_author
        return fn.when(fn.col("header").isNull(), fn.lit(True)).otherwise(fn.coalesce(~known, fn.lit(True)))

    def why_foreign(self, topic: str, header: str | None, other: str | None) -> ForeignReason | None:
        """The same of one record, in words; None when the bridge can have written it.

        Args:
            topic: that it lies in.
            header: when it is of the contract.
            other: a header that is not.
        """
        if header is None:
            return ForeignReason(
                "it has no header" if other is None else "its header is not of the topic contract", False
            )
        try:
            told = parse_header(header.encode())
            snap = None if told.snap is None else VisibleTransactions.parse(told.snap)
        except DecodeError:
            return ForeignReason("its header is not of the topic contract", False)
        if told.lsn >= self.lsn:
            return ForeignReason(
                f"the source's WAL had not come to its LSN ({self.lsn} at the time)", not self.is_vouched
            )
        if told.xid is not None and not self.snapshot.sees(told.xid) and told.xid not in self.unseen:
            return ForeignReason(
                f"the source has not committed its transaction (snapshot {self.snapshot})", not self.is_vouched
            )
        if snap is not None and not self.snapshot.covers(snap):
            return ForeignReason(
                f"the source has not had its snapshot yet ({self.snapshot} at the time)", not self.is_vouched
            )
        if told.schema not in self.definitions.get(topic, {}):
            return ForeignReason(
                f"the schemas topic has no definition {told.schema} of this topic", not self.is_vouched
            )
        return None

    def _has_definition(self, topic: str | None) -> Column:
        schema = header_field("schema")
        if topic is not None:
            return schema.isin(*self.definitions.get(topic, {}))
        known = [f"{name} {fingerprint}" for name, held in self.definitions.items() for fingerprint in held]
        return fn.concat_ws(" ", "topic", schema).isin(*known)


class Origins:
    """Asks source and bridge.

    Args:
        source: the database.
        brokers: hold the schemas topic.
        bridge: what it says of itself.
        stream: its name.
        timeout_s: how long to wait for it.
    """

    def __init__(
        self, source: PostgresSettings, brokers: Brokers, bridge: BridgeProgress, stream: str, timeout_s: float
    ) -> None:
        self._source = source
        self._brokers = brokers
        self._bridge = bridge
        self._stream = stream
        self._timeout_s = timeout_s

    def now(self, unseen: frozenset[int] = frozenset(), *, is_vouched: bool = False) -> PossibleRecords:
        """What the source says; call it when the ends of the topics are pinned."""
        with contextlib.closing(connect(self._source)) as conn, reading("taking the snapshot again"):
            row = conn.execute(_NOW).fetchone()
        assert row is not None
        definitions = definitions_by_topic(self._brokers, self._stream)
        return PossibleRecords(VisibleTransactions.parse(row[0]), LSN.parse(row[1]), definitions, unseen, is_vouched)

    def vouched(self) -> PossibleRecords:
        """What the source and the bridge say.

        Raises:
            NotCaughtUp: the bridge has not published everything in time.
        """
        self._bridge.wait_for(position_now(self._source), self._timeout_s)
        # Asked before the snapshot: what the bridge has forgotten by now a snapshot sees from now on
        return self.now(frozenset(self._bridge.unseen), is_vouched=True)
