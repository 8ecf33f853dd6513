"""What the backfill needs of the rest of the bridge, so that it can be tried without servers."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import NamedTuple, Protocol

from cdc.backfill.sweep import Sweep
from cdc.change import Relation
from cdc.encode.table import TableEncoder
from cdc.lsn import LSN
from cdc.record import BackfillProgress
from cdc.source.table import TableInfo


class Streamed(Protocol):
    """What the backfill needs of the order engine."""

    @property
    def complete_lsn(self) -> LSN:
        """Everything that committed before this was taken from the stream; some of it may be held."""

    @property
    def settled_lsn(self) -> LSN:
        """Everything that committed before this was handed on."""

    @property
    def holds_records(self) -> bool:
        """Whether something is held."""

    @property
    def unseen(self) -> Iterable[int]:
        """Transactions that were taken and that a snapshot may not see yet."""

    def distrust(self, xids: Iterable[int]) -> None:
        """No snapshot is good enough for a backfill that does not see these transactions."""

    def watch_keys(self) -> None:
        """The watched topics changed."""


class Surroundings(NamedTuple):
    """What the backfill does to the world, and asks of it.

    Attributes:
        tables: every table in scope by name, with its topic.
        end_offsets: of a topic's partitions now, in order.
        encoder: of a relation read from the table, its definition published; None while the stream is not there yet, or
            the topic has to begin anew first.
        produce: takes a record.
        bury: takes a tombstone for a partition to which its key does not belong.
        commit: closes the Kafka transaction.
        wal_end: of the source now.
        flush_wal: has the source write out WAL that the stream waits for.
        report: told of every change of a table's progress.
        sweep: finds keys whose latest record lies below these offsets.
    """

    tables: Callable[[], Mapping[str, tuple[TableInfo, str]]]
    end_offsets: Callable[[str], tuple[int, ...]]
    encoder: Callable[[Relation], TableEncoder | None]
    produce: Callable[[str, bytes, bytes | None, bytes], None]
    bury: Callable[[str, int, bytes, bytes], None]
    commit: Callable[[], None]
    wal_end: Callable[[], LSN]
    flush_wal: Callable[[], None]
    report: Callable[[BackfillProgress], None]
    sweep: Callable[[str, tuple[int, ...]], Sweep]
