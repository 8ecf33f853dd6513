"""Asks for what ``cdc status`` shows: the slot, the published position and backfills, the replica's cut, the processes.

Each part has an answer, or the error that explains why it has none.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from concurrent.futures import Future, wait
from dataclasses import dataclass
from functools import partial
from typing import Any, Final, Generic, TypeAlias, TypeVar

import psycopg

from cdc.base.config import Config
from cdc.base.daemon.threads import Threads
from cdc.base.errors import CdcError, ReplicaUnavailable, SourceUnavailable, TopicUnavailable
from cdc.base.lsn import LSN
from cdc.base.waits import LONG_S
from cdc.bridge.capture.stream import FEEDBACK_INTERVAL_S
from cdc.bridge.scope.choice import choose
from cdc.bridge.scope.left_out import LeftOut
from cdc.bridge.slot_wait import waiting_application
from cdc.bridge.source.connect import LOOK_S, connect, source_errors
from cdc.bridge.source.open_transactions import OpenTransaction
from cdc.bridge.source.retention import inspect_retention
from cdc.bridge.source.slot import WAL_END
from cdc.contract.naming import progress_topic
from cdc.contract.progress import stream_key
from cdc.contract.record import BackfillProgress, Progress
from cdc.contract.slot_state import SlotState
from cdc.kafka.brokers import BrokerAdmin
from cdc.kafka.replay.backfills import Published, read_published
from cdc.ops.status.processes import ProcessStatus, Role, ask_ready, roles_of, url_of
from cdc.sink.dialects import open_replica
from cdc.sink.replica import SinkStatus

_PATIENCE_S: Final = 4.0
"""How long a look waits for each part. After that, a server counts as one that does not answer.

A busy server answers within 2 s. A server that hangs should be reported within 10 s, which has room for two looks.
"""

_APPLICATION: Final = "cdc status"

Answer = TypeVar("Answer")


@dataclass(frozen=True, slots=True)
class Part(Generic[Answer]):
    """A part's answer, or the error that prevented it."""

    answer: Answer | None
    error: CdcError | None = None

    @property
    def reachable(self) -> bool:
        """Whether the server was reached; it may have refused to answer."""
        return self.error is None or not self.error.retryable


@dataclass(frozen=True, slots=True)
class SourceStatus:
    """The state of the source server.

    Attributes:
        wal_lsn: the end of its WAL now.
        now_us: its clock in µs since 1970. Lags are measured with it, because it also stamped the commits.
        slot: the replication slot; None if it does not exist.
        confirm_lag_s: ``flush_lag`` of the walsender; None if PostgreSQL does not know it.
        waiting: the number of bridges on standby, which take over when the active one ends.
        limit_bytes: ``max_slot_wal_keep_size``; None without a limit.
        oldest: the oldest transaction with an id in the cluster, for which the slot may keep WAL.
        role: the role that was used to look.
        left_out: tables that match the patterns but are not captured.
        heard_s: seconds since the bridge last sent anything to its walsender; None if there is no walsender, or if the
            role may not see it.
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
    heard_s: float | None = None


@dataclass(frozen=True, slots=True)
class Status:
    """The state of all parts at about the same moment.

    Attributes:
        sink: None if the configuration has no sink.
        backfills: the newest backfill of each table, ordered by table.
    """

    name: str
    slot_name: str
    source: Part[SourceStatus]
    topics: Part[Progress]
    sink: Part[SinkStatus] | None
    backfills: tuple[BackfillProgress, ...] = ()
    processes: tuple[ProcessStatus, ...] = ()


ReadPublished: TypeAlias = Callable[[Config], Published]


def read_once(config: Config) -> Published:
    """Read the progress topic from its beginning.

    Raises:
        CdcError: the topic cannot be read.
    """
    admin = BrokerAdmin(config.kafka.client_options())
    return read_published(admin, progress_topic(config.name), stream_key(config.source.slot))


class StatusReader:
    """Reads the status, once or again and again, from one thread. A look waits for each part for a limited time.

    A part that hangs is not asked again until it has answered, so at most one thread hangs with it. Its late answer is
    outdated and therefore discarded.

    Args:
        published_now: reads the progress topic. To look often, pass a function that remembers what it has read.
        patience_s: how long a look waits for each part.
    """

    def __init__(self, published_now: ReadPublished = read_once, patience_s: float = _PATIENCE_S) -> None:
        self._published_now = published_now
        self._patience_s = patience_s
        self._hanging: dict[str, tuple[Future[Any], float]] = {}

    @property
    def is_reading(self) -> bool:
        """Whether the progress topic is still being read for an earlier look."""
        return "topics" in self._hanging and not self._hanging["topics"][0].done()

    def look(self, config: Config) -> Status:
        """Ask all servers at once, so that a server that is down does not delay the others; then ask the processes.

        The processes come last, because they tell which server they are waiting for. If a server has only just stopped
        to answer, they notice it about when our own wait for it ends.
        """
        roles = roles_of(config)
        threads = Threads(3 + len(roles), "status")
        asked: dict[str, tuple[Future[Any], float]] = {}

        def ask(questions: Mapping[str, Callable[[], Any]]) -> None:
            fresh = []
            for name, question in questions.items():
                hanging = self._hanging.get(name)
                if hanging is not None and not hanging[0].done():
                    asked[name] = hanging  # an earlier look has already waited for it: do not wait again
                    continue
                asked[name] = threads.submit(question), time.monotonic()
                fresh.append(asked[name][0])
            wait(fresh, self._patience_s)

        servers: dict[str, Callable[[], Any]] = {
            "source": lambda: _ask(lambda: _source(config)),
            "topics": lambda: _ask(lambda: self._published_now(config)),
        }
        if config.sink is not None:
            servers["sink"] = lambda: _ask(lambda: _replica(config))
        ask(servers)
        ask({role_key(role): partial(ask_ready, config, role) for role in roles})
        threads.shutdown()
        self._hanging = {name: each for name, each in asked.items() if not each[0].done()}

        def part(name: str) -> Part[Any]:
            future, began = asked[name]
            return _no_answer(name, time.monotonic() - began) if name in self._hanging else future.result()

        published = part("topics")
        known: Published | None = published.answer
        processes = [
            ProcessStatus(role, "hangs", url_of(config, role) or "")
            if role_key(role) in self._hanging
            else asked[role_key(role)][0].result()
            for role in roles
        ]
        return Status(
            name=config.name,
            slot_name=config.source.slot,
            source=part("source"),
            topics=Part(known.stream if known is not None else None, published.error),
            sink=None if config.sink is None else part("sink"),
            backfills=tuple(each.progress for _, each in sorted(known.backfills.items())) if known is not None else (),
            processes=tuple(processes),
        )


def role_key(role: Role) -> str:
    """Returns the name of a process among the parts that are asked."""
    return f"process {role}"


def _no_answer(name: str, seconds: float) -> Part[Any]:
    kinds: dict[str, tuple[type[CdcError], str]] = {
        "source": (SourceUnavailable, "the source accepts connections or queries"),
        "topics": (TopicUnavailable, "Kafka accepts requests"),
        "sink": (ReplicaUnavailable, "the replica accepts connections or queries"),
    }
    kind, does = kinds[name]
    return Part(
        None,
        kind(
            f"no answer for {seconds:.0f} s: {does}, but does not answer them",
            remedy="look at that server: is it stopped, is its disk full, is the network to it cut?",
        ),
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
            None if slot is None or slot.active_pid is None else _heard_s(conn, slot.active_pid),
        )


def _heard_s(conn: psycopg.Connection[Any], pid: int) -> float | None:
    """Returns the seconds since the bridge last sent something; None if the role may not see that.

    The bridge stamps its messages with its own clock, which may differ from the server's. So if the last message looks
    old, look again after the next one is due: a bridge that is alive has sent it by then.

    Args:
        conn: a connection to the source.
        pid: the walsender's pid.
    """

    def look() -> tuple[Any, float] | None:
        with source_errors("asking for the bridge's last word"):
            found = conn.execute(
                "SELECT reply_time, extract(epoch FROM clock_timestamp() - reply_time)::float8"
                " FROM pg_stat_replication WHERE pid = %s AND reply_time IS NOT NULL",
                (pid,),
            ).fetchone()
        return found if found is None else (found[0], found[1])

    before = look()
    if before is None or before[1] < LONG_S:
        return None if before is None else max(before[1], 0.0)
    time.sleep(FEEDBACK_INTERVAL_S + 0.5)
    now = look()
    if now is None:
        return None
    return 0.0 if now[0] != before[0] else now[1]


def _replica(config: Config) -> SinkStatus:
    return open_replica(config, application_name=_APPLICATION).status()
