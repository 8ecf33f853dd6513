"""Decides whether the bridge can have written a record, by checking its header against the source and the bridge.

A record that the snapshot does not see exempts its key from comparison for the moment. So a header's own word must not
be enough: another system's transaction ids may be millions ahead of the source's, and its records would be in flight
for ever. But whatever the bridge wrote into a topic was committed in the source before the topic's ends were pinned. So
if source and bridge are asked after that, the following holds for the bridge's records:

* The LSN of the commit lies before the end of the source's WAL.
* A new snapshot sees the transaction, or covers the snapshot of the backfill's chunk. A transaction that waits for a
  synchronous standby, or is about to become visible, may be missing. Then the bridge names it (``Progress.unseen``)
  once its progress has passed that end of the WAL. Only the second look waits for that (``is_vouched``).
* The schemas topic has the definition that the record was written with.

A record that violates one of these is *foreign*. It counts like any record, because readers of the topic take it for
the row, and a key whose newest record is foreign is never identical. A foreign record that names a transaction which
became visible while the topic was read cannot be recognized in this run; the next run compares it.
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
    """Why a record does not look like the bridge's.

    Attributes:
        text: the reason in words; the report shows it after "because".
        may_be_ours: only the source was asked, not yet the bridge, so the record may be the bridge's after all (see
            ``PossibleRecords.is_vouched``).
    """

    text: str
    may_be_ours: bool


@dataclass(frozen=True, slots=True)
class PossibleRecords:
    """What the bridge can have written, from answers given after the topics' ends were pinned.

    Attributes:
        snapshot: a snapshot of the source.
        lsn: the end of the source's WAL.
        definitions: the schemas topic's definitions, by topic and fingerprint.
        unseen: the bridge's ``Progress.unseen`` once it had published everything before ``lsn``.
        is_vouched: the bridge was asked; otherwise ``unseen`` is empty.
    """

    snapshot: VisibleTransactions
    lsn: LSN
    definitions: Mapping[str, Mapping[str, TableSchema]]
    unseen: frozenset[int] = frozenset()
    is_vouched: bool = False

    def is_foreign(self, topic: str | None = None) -> Column:
        """Returns a boolean column over the records of ``topic``, or of several topics, named in a column ``topic``."""
        lsn, xid = lsn_number(header_field("lsn")), header_field("xid").cast("bigint")
        snap = header_field("snap")
        xmin, xmax = (fn.get(fn.split(snap, ":"), place).cast("bigint") for place in (0, 1))
        is_known_author = fn.when(xid.isNull(), (xmin <= xmax) & covers(self.snapshot, snap)).otherwise(
            sees(self.snapshot, xid) | xid.isin(*self.unseen) if self.unseen else sees(self.snapshot, xid)
        )
        # A bigint is signed: an LSN from 2^63 on turns negative here.
        is_known_place = (lsn >= 0) & (lsn < fn.lit(int(self.lsn)))
        known = is_known_place & self._has_definition(topic) & is_known_author
        return fn.when(fn.col("header").isNull(), fn.lit(True)).otherwise(fn.coalesce(~known, fn.lit(True)))

    def why_foreign(self, topic: str, header: str | None, other: str | None) -> ForeignReason | None:
        """Returns why one record is foreign, in words; None if the bridge can have written it.

        Args:
            topic: the record's topic.
            header: its header ``cdc``, if that is of the topic contract.
            other: its header ``cdc``, if that is not.
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
                f"its LSN lies beyond the source's WAL, which ended at {self.lsn}", not self.is_vouched
            )
        if told.xid is not None and not self.snapshot.sees(told.xid) and told.xid not in self.unseen:
            return ForeignReason(
                f"the source has not committed its transaction (snapshot {self.snapshot})", not self.is_vouched
            )
        if snap is not None and not self.snapshot.covers(snap):
            return ForeignReason(
                f"the source has not reached its snapshot yet (it was at {self.snapshot})", not self.is_vouched
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
    """Asks the source and the bridge what the bridge can have written.

    Args:
        source: the source database.
        brokers: the cluster with the schemas topic.
        bridge: the bridge's progress.
        stream: the bridge's name.
        timeout_s: how long to wait for the bridge.
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
        """Asks the source. Call this only after the ends of the topics were pinned."""
        with contextlib.closing(connect(self._source)) as conn, reading("taking the snapshot again"):
            row = conn.execute(_NOW).fetchone()
        assert row is not None
        definitions = definitions_by_topic(self._brokers, self._stream)
        return PossibleRecords(VisibleTransactions.parse(row[0]), LSN.parse(row[1]), definitions, unseen, is_vouched)

    def vouched(self) -> PossibleRecords:
        """Asks the bridge, too, once it has published everything up to now.

        Raises:
            NotCaughtUp: the bridge did not get there in time.
        """
        self._bridge.wait_for(position_now(self._source), self._timeout_s)
        # Before the snapshot: a transaction that the bridge no longer names is visible to any snapshot taken from now
        # on.
        return self.now(frozenset(self._bridge.unseen), is_vouched=True)
