"""A thread that checks every ten seconds whether other tables are to be captured, and reloads the file on SIGHUP.

Theory of operation. A session settles at its beginning which tables it captures: publication, topics, keys, backfills.
So this thread changes nothing in a running session. It ends the session at its next quiet moment, and the next session
begins with the tables as they are then. That takes a fraction of a second. Nothing is lost, because the slot waits.

A table that cannot be captured (it has no key, or is not ours to publish) must not stop a bridge that ran well before
somebody made that table. The bridge logs its name with the command that helps, and leaves the table out until then.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from types import TracebackType
from typing import Any, Final

import psycopg
import structlog

from cdc.base.config import Config
from cdc.base.daemon.worker import Worker
from cdc.base.errors import CdcError, SourceBusy, SourceRefused
from cdc.bridge.order.demand import Demand, StandingDemands
from cdc.bridge.reload import reloaded
from cdc.bridge.scope.captured import CapturedTables
from cdc.bridge.scope.choice import choose, left_out, renamed, tell
from cdc.bridge.scope.left_out import LeftOut
from cdc.bridge.scope.outboxes import present_outboxes
from cdc.bridge.scope.topics import state_topic
from cdc.bridge.shape_watch import ShapeWatch
from cdc.bridge.source.catalog import find_tables, unlogged
from cdc.bridge.source.connect import LOOK_S, connect
from cdc.bridge.source.giving_up import give_up
from cdc.bridge.source.membership import memberships
from cdc.bridge.source.publication import add_table, inspect_publication
from cdc.bridge.source.table import TableInfo

_INTERVAL_S: Final = 10.0

log = structlog.get_logger("cdc.bridge")


class SessionEnd(threading.Event):
    """Is set when this session is to end. The process goes on unless ``stop`` is set, too."""

    def __init__(self, stop: threading.Event) -> None:
        super().__init__()
        self._stop = stop

    def is_set(self) -> bool:
        """Whether the session or the process is to end."""
        return super().is_set() or self._stop.is_set()

    def wait(self, timeout: float | None = None) -> bool:
        """Sleep, and wake up early only when the process is to stop. Returns whether the session is to end."""
        return self._stop.wait(timeout) or self.is_set()


class ScopeWatch:
    """Watches which tables are in scope, for one session after another. Use it in a ``with`` block.

    Args:
        config: the configuration at the start.
        read: reads the configuration again.
        hangup: set by SIGHUP.
        stop: ends the process; set when the thread fails, and leaving the ``with`` block then raises the reason.

    Attributes:
        config: the configuration in force; a session takes it when it begins.
        told: tables that were reported as left out, and why.
        demands: tables that must be published again because of what was seen.
    """

    def __init__(
        self, config: Config, read: Callable[[], Config], hangup: threading.Event, stop: threading.Event
    ) -> None:
        self.config = config
        self.told: dict[str, str] = {}
        self.demands = StandingDemands()
        self._read = read
        self._hangup = hangup
        self._stop = stop
        self._ended = threading.Event()
        self._registry: CapturedTables | None = None
        self._session = SessionEnd(stop)
        self._gone: set[str] = set()
        self._shapes = ShapeWatch()
        self._sql: psycopg.Connection[Any] | None = None
        self._worker = Worker(self._run, name="scope", on_failure=stop.set)

    def __enter__(self) -> ScopeWatch:
        self._worker.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._ended.set()
        self._hangup.set()  # wakes the thread
        give_up(self._worker.ended_within, lambda: [] if self._sql is None else [self._sql])
        self._worker.end(error, 0)

    def new_session(self) -> SessionEnd:
        """Returns the event that ends the session that begins now."""
        self._registry = None
        self._session = SessionEnd(self._stop)
        return self._session

    def serves(self, registry: CapturedTables) -> None:
        """Watch the tables that the session streams from now on."""
        self._registry = registry

    def _run(self) -> None:
        while True:
            hung_up = self._hangup.wait(_INTERVAL_S)
            if self._ended.is_set():
                break
            try:
                if hung_up:
                    self._hangup.clear()
                    self._reload()
                self._look()
            except CdcError as error:
                if hung_up:
                    log.error("configuration not reloaded", error=error.message, remedy=error.remedy)
                elif isinstance(error, SourceBusy) or not error.retryable:  # the session itself reports outages
                    log.warning("cannot look for new tables", error=error.message, remedy=error.remedy)
                self._disconnect()
        self._disconnect()

    def _reload(self) -> None:
        config, changed = reloaded(self.config, self._read)
        if not changed:
            log.info("configuration reloaded: nothing changed")
            return
        # A table that was left out before must not keep the file from being reloaded
        before = {each.table for each in choose(self._connection(), self.config, may_be_empty=True).left_out}
        for each in choose(self._connection(), config).left_out:
            if each.is_named and each.table not in before:
                raise SourceRefused(each.reason, remedy=each.remedy)
        self.config = config
        self._session.set()
        log.info("configuration reloaded", changed=changed)

    def _look(self) -> None:
        """Compare the tables in scope with those that the session streams."""
        registry, config = self._registry, self.config
        if registry is None or self._session.is_set():
            return
        source = config.source
        known = {each.qualified_name: each for each in registry.tables}
        found = find_tables(self._connection(), source.tables, source.exclude, source.keys, source.rows)
        present = {each.qualified_name for each in found}
        gone = [each for name, each in known.items() if name not in present]
        captured = {each.oid: each for each in found if _is_same(known.get(each.qualified_name), each)}
        unfed = [each.qualified_name for each in captured.values() if each.unlogged]
        if unfed := sorted([*unfed, *unlogged(self._connection(), gone)]):
            log.warning(
                "captured tables, or partitions of them, became unlogged: starting again without these tables",
                tables=unfed,
                remedy="ALTER TABLE … SET LOGGED brings a table back; its rows are then published again",
            )
            self.demands.add(Demand(name, True, "it was unlogged for a while") for name in unfed)
            self._session.set()
            return
        self._tell_of_the_gone(gone)
        if altered := self._altered(registry, [*found, *present_outboxes(self._connection(), config)]):
            log.warning(
                "the publication was altered: starting again to see what that means",
                tables=altered,
                remedy="wait: the next lines say what is missing, if anything is",
            )
            self._session.set()
            return
        if replaced := self._shapes.look(self._connection(), source.publication, registry, captured.values()):
            log.warning(
                "key columns were replaced: starting again to publish these tables anew",
                tables=replaced,
                remedy="wait: their backfills begin by themselves, and cdc backfill --list shows them",
            )
            self._session.set()
            return
        new = [each for each in found if each.oid not in captured or not _is_carried(registry, each)]
        if joined := self._joined(self._usable(registry, new)):
            for each in joined:
                self.told.pop(each.qualified_name, None)
            log.info("tables join", tables=[each.qualified_name for each in joined])
            self._session.set()
        elif returned := registry.changed_hands(captured.values()):
            log.warning(
                "tables had other names for a while: starting again to publish them anew",
                tables=returned,
                remedy="wait: their backfills begin by themselves, and cdc backfill --list shows them",
            )
            self.demands.add(Demand(name, True, why) for name, why in returned.items())
            self._session.set()

    def _usable(self, registry: CapturedTables, tables: Sequence[TableInfo]) -> list[TableInfo]:
        """Returns the tables that can be captured. Logs once for each of the others why it cannot."""
        left = left_out(self._connection(), self.config, tables)
        names = {each.table for each in left}
        left += registry.unfit(self._connection(), [each for each in tables if each.qualified_name not in names])
        tell(left, self.told)
        names = {each.table for each in left}
        return [each for each in tables if each.qualified_name not in names]

    def _joined(self, tables: Sequence[TableInfo]) -> list[TableInfo]:
        """Returns those new, remade or repaired tables that the publication carries, adding them to it if need be."""
        source = self.config.source
        if not tables or source.publication_mode != "filtered":
            return list(tables)
        state = inspect_publication(self._connection(), source.publication)
        carried = state.tables if state is not None else frozenset()
        return [each for each in tables if each.qualified_name in carried or self._is_added(each)]

    def _is_added(self, table: TableInfo) -> bool:
        name, source = table.qualified_name, self.config.source
        try:
            return add_table(self._connection(), source.publication, table)
        except (SourceRefused, SourceBusy) as error:  # one table that cannot be added must not keep the others out
            tell([LeftOut(name, error.message, error.remedy, name in source.tables, "publication")], self.told)
            return False

    def _altered(self, registry: CapturedTables, found: Sequence[TableInfo]) -> list[str]:
        """Returns tables that the publication carries otherwise than when the session began; not those made anew.

        An outbox that was made anew is among them, because nothing else says that the publication lacks it.
        """
        now = memberships(self._connection(), self.config.source.publication, found)
        known = {each.qualified_name: each.oid for each in found}
        outboxes = self.config.source.outbox
        return sorted(
            name
            for name, was in registry.members.items()
            if name in known and (known[name] == was.table or name in outboxes) and now.get(name) != was
        )

    def _tell_of_the_gone(self, tables: Sequence[TableInfo]) -> None:
        topics = {each.qualified_name: state_topic(self.config, each.namespace, each.name) for each in tables}
        new = sorted(topics.keys() - self._gone)
        oids = {each.qualified_name: each.oid for each in tables}
        now = {each.old: each.new for each in renamed(self._connection(), {name: oids[name] for name in new}, ())}
        for name in new:
            what = f"has another name now, {now[name]}" if name in now else "is gone"
            log.warning(
                f"a captured table {what}; its topic keeps the last rows",
                table=name,
                remedy=f"when nobody reads it any more: kafka-topics.sh --delete --topic {topics[name]}",
            )
        self._gone = set(topics)

    def _connection(self) -> psycopg.Connection[Any]:
        if self._sql is None or self._sql.closed:
            application = f"cdc {self.config.name} scope"
            self._sql = connect(self.config.source.connection(), application_name=application, lock_timeout_s=LOOK_S)
        return self._sql

    def _disconnect(self) -> None:
        if self._sql is not None:
            self._sql.close()
            self._sql = None


def _is_carried(registry: CapturedTables, table: TableInfo) -> bool:
    """Whether the publication carried this very table when the session began.

    The session may have met a new table since then, under the name of one that the publication carried.
    """
    member = registry.members.get(table.qualified_name)
    return member is None or member.table == table.oid


def _is_same(known: TableInfo | None, table: TableInfo) -> bool:
    return known is not None and known.oid == table.oid
