"""What ``cdc status`` asks: slot, published position and backfills, the replica's cut. Each answers or says why not."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final, Generic, TypeAlias, TypeVar

from cdc.bridge.slot_wait import waiting_application
from cdc.brokers import BrokerAdmin
from cdc.config import Config
from cdc.contract.naming import progress_topic
from cdc.contract.progress import stream_key
from cdc.daemon.threads import Threads
from cdc.errors import CdcError
from cdc.lsn import LSN
from cdc.record import BackfillProgress, Progress
from cdc.replay.backfills import Published, read_published
from cdc.scope.choice import LeftOut, choose
from cdc.sink.database import open_replica
from cdc.sink.status import SinkStatus
from cdc.slot_state import SlotState
from cdc.source.connect import LOOK_S, connect, source_errors
from cdc.source.retention import OpenTransaction, inspect_retention
from cdc.source.slot import WAL_END

_APPLICATION: Final = "cdc status"

Answer = TypeVar("Answer")


@dataclass(frozen=True, slots=True)
class Part(Generic[Answer]):
    """A part's answer, or the error that stood in its way."""

    answer: Answer | None
    error: CdcError | None = None

    @property
    def reachable(self) -> bool:
        """Whether anybody was there; it may have refused to answer."""
        return self.error is None or not self.error.retryable


@dataclass(frozen=True, slots=True)
class SourceStatus:
    """The source server.

    Attributes:
        wal_lsn: end of its WAL now.
        now_us: its clock, µs since 1970: lags are measured by the clock that stamped the commits.
        slot: None when there is none.
        confirm_lag_s: how long the walsender waits for the newest WAL to be confirmed; None when it does not know.
        waiting: bridges that stand by, to take over when the active one ends.
        limit_bytes: ``max_slot_wal_keep_size``; None without a limit.
        oldest: the oldest transaction with an id in the cluster, for which the slot may keep WAL.
        role: as which we looked.
        left_out: tables that the patterns reach and that are not captured.
    """

    wal_lsn: LSN
    now_us: int
    slot: SlotState | None
    confirm_lag_s: float | None
    waiting: int = 0
    limit_bytes: int | None = None
    oldest: OpenTransaction | None = None
    role: str = ""
    left_out: tuple[LeftOut, ...] = ()


@dataclass(frozen=True, slots=True)
class Status:
    """All parts at about the same moment; ``sink`` is None when the configuration has none.

    ``backfills`` are the newest of each table, by name.
    """

    name: str
    slot_name: str
    source: Part[SourceStatus]
    topics: Part[Progress]
    sink: Part[SinkStatus] | None
    backfills: tuple[BackfillProgress, ...] = ()


ReadPublished: TypeAlias = Callable[[Config], Published]


def read_once(config: Config) -> Published:
    """What the progress topic holds, read from its beginning.

    Raises:
        CdcError: it cannot be read.
    """
    admin = BrokerAdmin(config.kafka.client_options())
    return read_published(admin, progress_topic(config.name), stream_key(config.source.slot))


def read_status(config: Config, published_now: ReadPublished = read_once) -> Status:
    """Ask all parts at once, so that one that is down delays only itself.

    Args:
        config: of the deployment.
        published_now: reads the progress topic; who looks often remembers what was read.
    """
    threads = Threads(3, "status")
    source = threads.submit(_ask, lambda: _source(config))
    topics = threads.submit(_ask, lambda: published_now(config))
    sink = threads.submit(_ask, lambda: _replica(config)) if config.sink is not None else None
    threads.shutdown()
    published = topics.result()
    known = published.answer
    return Status(
        name=config.name,
        slot_name=config.source.slot,
        source=source.result(),
        topics=Part(known.stream if known is not None else None, published.error),
        sink=None if sink is None else sink.result(),
        backfills=tuple(each.progress for _, each in sorted(known.backfills.items())) if known is not None else (),
    )


def _ask(question: Callable[[], Answer | None]) -> Part[Answer]:
    try:
        return Part(question())
    except CdcError as error:
        return Part(None, error)


def _source(config: Config) -> SourceStatus:
    with connect(config.source.connection(), application_name=_APPLICATION, lock_timeout_s=LOOK_S) as conn:
        retention = inspect_retention(conn, config.source.slot)
        slot = retention.slot
        with source_errors("asking for the WAL's end"):
            row = conn.execute(
                f"SELECT ({WAL_END})::text,"
                " (extract(epoch FROM clock_timestamp()) * 1000000)::bigint,"
                " (SELECT extract(epoch FROM flush_lag)::float8 FROM pg_stat_replication WHERE pid = %s),"
                " (SELECT count(*) FROM pg_stat_activity"
                " WHERE application_name = %s AND datname = current_database())",
                (slot and slot.active_pid, waiting_application(config.name)),
            ).fetchone()
        assert row is not None
        return SourceStatus(
            LSN.parse(row[0]),
            row[1],
            slot,
            row[2],
            row[3],
            retention.limit_bytes,
            retention.oldest,
            retention.role,
            choose(conn, config, may_be_empty=True).left_out,
        )


def _replica(config: Config) -> SinkStatus:
    return open_replica(config, application_name=_APPLICATION).status()
