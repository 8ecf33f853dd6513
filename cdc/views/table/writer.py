"""A view as a replica: the ``ReplicaWriter`` that keeps a bridge's topics as tables in a store.

All tables change together, at one LSN: rows, index entries, offsets, facts and the journal in one transaction of the
store. ``write`` may be called several times before ``commit``, so even a source transaction larger than memory is one
transaction of the store.

What changes no rows (a table is taken up, or stopped) is committed at once, unless a transaction is open.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import Final

import structlog
from msgspec.structs import replace

from cdc.base.config import ViewConfig
from cdc.base.lsn import LSN
from cdc.contract.patterns import in_scope
from cdc.contract.ports import Beginning, CutStanding, Partition, ReplicaTable, Restored, StoredRecord
from cdc.contract.record import Progress, SourceIdentity, TableSchema
from cdc.views.store.port import Item, Store
from cdc.views.table.facts import encode
from cdc.views.table.feed_facts import FEED, FeedCut, FeedTopic, cut_item, topic_key
from cdc.views.table.filling import Filling
from cdc.views.table.records import TableChanges
from cdc.views.table.tables import FilledTables

log: Final = structlog.get_logger("cdc.view")


class ViewReplica:
    """One session of the writer. After every error, a new one is made.

    Args:
        store: the store; ``close`` closes it.
        name: the name of the deployment.
        view: the ``view`` section of the configuration.
    """

    def __init__(self, store: Store, name: str, view: ViewConfig) -> None:
        self._store = store
        self._view = view
        self._filling = Filling(store, name, "deployment")
        self._others: dict[str, FeedTopic] = {}
        self._caught_up_at = 0.0
        self._holds_rows = False
        self._tables = FilledTables((), {}, self._wants, view.index)

    def lock(self) -> bool:
        """Becomes the only writer until ``close``; returns False while another process is."""
        return self._store.lock()

    def close(self) -> None:
        """Closes the store and forgets the open transaction."""
        self._store.close()

    def restore(self) -> Restored:
        """Returns the recorded cut and the next offsets; empty at the first start."""
        facts, feed = self._filling.restore()
        retired = self._filling.view.retired
        self._tables = FilledTables(facts.tables.values(), feed.topics, self._wants, self._view.index, retired)
        self._others = {topic: each for topic, each in feed.topics.items() if topic not in self._tables}
        for topic in self._tables.drop_unwanted():
            self._filling.forget_offsets(topic)
        progress, cut = None, feed.cut
        if cut is not None:
            source = SourceIdentity(cut.system_identifier, cut.timeline, cut.database_oid)
            progress = Progress(LSN(cut.lsn), None, cut.commit_ts, source)
            self._caught_up_at = cut.caught_up_at
        since = {table.facts.topic: table.feed.read_since for table in self._tables}
        return Restored(
            progress,
            self._filling.offsets,
            {topic: each.topic_id for topic, each in feed.topics.items()},
            self._caught_up_at,
            {topic: at for topic, at in since.items() if at is not None},
        )

    def learn(self, schemas: Sequence[TableSchema]) -> Collection[str]:
        """Takes notice of table definitions; returns the topics that begin anew.

        Raises:
            ConfigError: an index names a column that the table does not have.
        """
        anew = self._tables.learn(schemas)
        if self._tables.is_changed:
            # Removed tables must leave the store before another table takes over their name.
            self._tables.flush(self._filling)
        self._filling.index(self._tables)
        self._settle()
        return anew

    def begin(
        self,
        topic: str,
        topic_id: str,
        *,
        ends: Sequence[int],
        resumes: bool,
        why_anew: str,
        is_asked: bool,
        now: float,
    ) -> Beginning:
        """Takes up a topic. If it begins anew, readers see the table's old rows until it is whole."""
        if topic not in self._tables:
            return "stopped"
        table = self._tables[topic]
        beginning = self._tables.begin(
            topic,
            resumes=resumes,
            why_anew=why_anew,
            is_asked=is_asked,
            now=now,
            holds_rows=self._filling.holds_rows(table),
        )
        if beginning == "stopped":
            return beginning
        table.begin()
        table.change_feed(topic_id=topic_id)
        self._filling.aim(topic, ends, now, is_new=beginning == "anew")
        if beginning == "anew":
            self._filling.forget_offsets(topic)
            if table.feed.reason:
                log.warning(
                    "reading a table anew from its topic",
                    table=table.facts.name,
                    reason=table.feed.reason,
                    remedy="wait: until it is read, answers are 503; /v1/tables says how far",
                )
        elif beginning == "outside" and table.feed.read_since is None:
            table.change_feed(read_since=self._caught_up_at)
        self._settle()
        return beginning

    def leave_cut(self, topic: str) -> None:
        """Write down that the topic, part of the last cut, is not part of the next one."""
        self._tables[topic].change_feed(read_since=self._caught_up_at)

    def know(self, topic: str, topic_id: str) -> None:
        """Remembers which topic the stored offsets belong to, for a topic that no table mirrors."""
        known = self._others.get(topic, FeedTopic())
        if known.topic_id != topic_id:
            self._filling.forget_offsets(topic)
            self._others[topic] = replace(known, topic_id=topic_id)

    def stop_topic(self, topic: str, reason: str) -> None:
        """Records that a table takes no rows, and why."""
        table = self._tables[topic]
        since = table.feed.read_since
        table.stop(reason)
        table.change_feed(read_since=self._caught_up_at if since is None else since)
        self._settle()

    def stop_table(self, topic: str, reason: str, record: StoredRecord | None) -> None:  # noqa: ARG002 - of the port
        """Forgets the open transaction, and records that a table is stopped and why."""
        self._filling.abort()
        self._holds_rows = False
        self.restore()  # the tables in memory had taken changes of the transaction that was aborted
        self.stop_topic(topic, reason)

    def tables(self) -> Mapping[str, ReplicaTable]:
        """Returns every known table by topic."""
        return self._tables.shown()

    def active(self) -> Collection[str]:
        """Returns the topics whose tables take rows."""
        return self._tables.active()

    def may_return(self) -> bool:
        """Returns False: a stopped table waits for nobody, because the store has no other writer that could lock it."""
        return False

    def meet_source(self, source: SourceIdentity) -> None:
        """Accepts any source: a view cannot feed its own source."""

    def prepare(self, topic: str, records: Sequence[StoredRecord]) -> TableChanges:
        """Returns the change that the last record of each key makes. Does not touch the store."""
        return self._tables[topic].read(records)

    def write(self, batches: Sequence[TableChanges]) -> None:
        """Applies changes in the open transaction.

        Raises:
            StoreUnavailable: the open transaction is lost.
        """
        self._holds_rows = True
        for batch in batches:
            self._filling.apply(self._tables[batch.topic], batch)

    def commit(self, progress: Progress, offsets: Mapping[Partition, int], standing: CutStanding) -> None:
        """Records the cut and the offsets to go on from, and commits.

        Raises:
            StoreUnavailable: the open transaction is lost, or its outcome is unknown.
        """
        filling, source = self._filling, progress.source
        filling.tell_anew(self._tables.at_cut(standing))
        filling.move(offsets)
        has_parts = len(standing.outside) < len(self._tables.active())
        is_known = standing.is_true and (has_parts or not standing.outside)
        filling.view = replace(
            filling.view,
            lsn=int(progress.lsn) if is_known else 0,
            commit_ts=progress.commit_ts,
            source=f"{source.system_identifier},{source.timeline},{source.database_oid}",
            caught_up_at=standing.caught_up_at,
        )
        cut = FeedCut(
            lsn=int(progress.lsn),
            commit_ts=progress.commit_ts,
            system_identifier=source.system_identifier,
            timeline=source.timeline,
            database_oid=source.database_oid,
            caught_up_at=standing.caught_up_at,
        )
        filling.transaction().put(FEED, [cut_item(cut), *self._other_topics()])
        self._caught_up_at = standing.caught_up_at
        self._end()

    def _wants(self, namespace: str, name: str) -> bool:
        return in_scope(namespace, name, self._view.tables, self._view.exclude)

    def _settle(self) -> None:
        """Commits, unless rows are waiting for their cut."""
        if not self._holds_rows and (self._tables.is_changed or self._filling.is_changed):
            self._end()

    def _other_topics(self) -> list[Item]:
        return [Item(topic_key(topic), encode(each)) for topic, each in self._others.items()]

    def _end(self) -> None:
        self._tables.flush(self._filling)
        self._filling.commit()
        self._holds_rows = False


class ViewPlace:
    """The place where a view is kept.

    Args:
        open_store: opens the store, once for each session.
        name: the name of the deployment.
        view: the ``view`` section of the configuration.
    """

    def __init__(self, open_store: Callable[[], Store], name: str, view: ViewConfig) -> None:
        self._open_store = open_store
        self._name = name
        self._view = view

    @property
    def called(self) -> str:
        """The name of this place in messages."""
        return "the view's store"

    def upgrade(self) -> None:
        """Does nothing: a store has one format, and reading one of another format is refused."""

    def watching(self, on_failure: Callable[[], None]) -> AbstractContextManager[None]:  # noqa: ARG002 - nobody waits here
        """Does nothing: a view waits for no other session."""
        return nullcontext()

    def writer(self, stopped: Collection[str] = ()) -> ViewReplica:  # noqa: ARG002 - no record stops a table here
        """Opens a new session; the caller closes it."""
        return ViewReplica(self._open_store(), self._name, self._view)
