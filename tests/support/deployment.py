"""A configured bridge and sink with their databases: started, awaited and compared by a test."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import closing, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeAlias

import psycopg
import yaml
from confluent_kafka import Consumer, KafkaException, TopicPartition
from confluent_kafka.admin import AdminClient

from cdc.base.errors import CdcError, TopicUnavailable
from cdc.base.lsn import LSN
from cdc.base.table_names import parts
from cdc.contract.naming import progress_topic, topic_name
from cdc.contract.ports import StoredRecord
from cdc.contract.progress import parse_progress, stream_key
from cdc.contract.record import BackfillProgress, Position, Progress
from cdc.kafka.replay.progress_follower import ProgressFollower
from cdc.kafka.replay.reader import TopicReader
from cdc.lab.proof.comparison import TableShape, describe, difference, pinned, prove, table_rows, topic_rows
from cdc.lab.proof.debezium_fields import fields_by_catalog
from cdc.lab.proof.positions import fence
from cdc.lab.proof.topic_side import ReadFields, fields_by_registry, open_consumer, read_topics
from tests.support.bridge_process import CdcProcess
from tests.support.forked import ForkedCdc, run_command
from tests.support.formed_fields import fields_by_names
from tests.support.names import unique
from tests.support.servers import Database
from tests.support.topic_audit import read_records
from tests.support.waiting import eventually


@dataclass
class Deployment:
    """One configured bridge and sink with their databases. The processes are started by the test.

    Attributes:
        settings: the configuration; change it and call ``write`` before a start.
        kind: of process, for both and for a second bridge.
    """

    name: str
    source: Database
    bootstrap: str
    replica: Database
    directory: Path
    settings: dict[str, Any]
    kind: type[CdcProcess] = ForkedCdc
    bridge: CdcProcess = field(init=False)
    sink: CdcProcess = field(init=False)
    _consumer: Consumer | None = None
    _progress: Progress | None = None
    _follower: ProgressFollower | None = None

    def __post_init__(self) -> None:
        self.config = self.directory / f"{self.name}.yaml"
        self.bridge = self.kind("run", self.config, self.directory / f"{self.name}-bridge.log")
        self.sink = self.kind("sink", self.config, self.directory / f"{self.name}-sink.log")
        self.write()

    def write(self) -> None:
        """Write the configuration as the settings are now."""
        self.write_text(yaml.safe_dump(self.settings, allow_unicode=True))

    def write_text(self, text: str) -> None:
        """Write this configuration, at once: a process that is just starting reads the old one or the new."""
        unfinished = self.config.with_suffix(".new")
        unfinished.write_text(text, encoding="utf-8")
        unfinished.replace(self.config)

    def deliver(self, delivery: str) -> None:
        """From its next start on, the bridge delivers this way: ``transactional`` or ``idempotent``."""
        self.settings["delivery"] = delivery
        self.write()

    def start(self) -> None:
        """Start both. Changes from here on are captured: the slot exists on return."""
        self.start_bridge()
        self.sink.start()

    def start_bridge(self, *, crashpoint: str = "") -> None:
        """Start the bridge, and see it stream."""
        self.bridge.start(crashpoint=crashpoint)
        self.bridge.wait_said("streaming")

    def stop(self) -> None:
        """Stop both with SIGTERM, and see them exit with 0."""
        for process in (self.bridge, self.sink):
            if process.pid:
                process.stop()

    def second_bridge(self) -> CdcProcess:
        """Another bridge with the same configuration."""
        return self.kind("run", self.config, self.directory / f"{self.name}-second.log")

    def slot(self) -> str:
        """Name of its replication slot."""
        return f"cdc_{self.name}"

    def topic(self, table: str) -> str:
        """Topic of ``namespace.table``."""
        namespace, name = parts(table)
        return topic_name(self.name, namespace, name, self.settings.get("topics", {}).get("names", {}))

    def now(self) -> LSN:
        """A position behind everything committed in the source so far."""
        return LSN.parse(self.source.execute("select pg_current_wal_flush_lsn()::text")[0][0])

    def progress(self) -> Progress | None:
        """The newest stored progress; None before the first."""
        topic = progress_topic(self.name)
        if self._consumer is None:
            if topic not in AdminClient({"bootstrap.servers": self.bootstrap}).list_topics(topic, 10).topics:
                return None
            self._consumer = open_consumer(self.bootstrap)
            self._consumer.assign([TopicPartition(topic, 0, 0)])
        for message in [*self._consumer.consume(1, 0.05), *self._consumer.consume(1000, 0)]:
            if message.error() is None and message.key() == stream_key(self.slot()):
                self._progress = parse_progress(message.value() or b"")
        return self._progress

    def partial_beyond(self, seq: int) -> Position:
        """The published part of a transaction, once it has more than ``seq`` changes."""

        def found() -> Position | None:
            progress = self.progress()
            partial = progress.partial if progress is not None else None
            return partial if partial is not None and partial.seq > seq else None

        partial = eventually(found, 30, lambda: f"a part of more than {seq}, is {self._progress}\n{self.bridge.tail()}")
        assert partial is not None
        return partial

    def wait_published(self, lsn: LSN | None = None, timeout_s: float = 60) -> LSN:
        """Wait until everything before ``lsn`` (default: now) is published; returns that position."""
        wanted = lsn or self.now()

        def published() -> bool:
            assert not self.bridge.ended, f"the bridge ended by itself\n{self.bridge.tail()}"
            progress = self.progress_or_none()
            return progress is not None and progress.partial is None and progress.lsn >= wanted

        eventually(published, timeout_s, lambda: f"progress {wanted}, is {self._progress}\n{self.why_not()}")
        return wanted

    def why_not(self) -> str:
        """What the bridge said and was doing, and what an open Kafka transaction hides. Ends the bridge."""
        lines = [self.bridge.tail(), self.bridge.stacks()]
        for topic in AdminClient({"bootstrap.servers": self.bootstrap}).list_topics(timeout=10).topics:
            if topic.startswith(f"{self.name}."):
                with closing(TopicReader({"bootstrap.servers": self.bootstrap})) as reader:
                    partitions = reader.partitions(topic)
                    stable, ends = reader.stable_ends(partitions), reader.high_watermarks(partitions)
                lines += [f"{each}: readable to {stable[each]} of {ends[each]}" for each in partitions]
        return "\n".join(lines)

    def backfills(self) -> dict[str, BackfillProgress]:
        """How far the backfill of each table is."""
        if self._follower is None:
            self._follower = ProgressFollower({"bootstrap.servers": self.bootstrap}, progress_topic(self.name))
        try:
            found = self._follower.look(stream_key(self.slot())).backfills
        except TopicUnavailable:  # what it heard while the broker was down; it has begun anew
            found = self._follower.look(stream_key(self.slot())).backfills
        return {table: each.progress for table, each in found.items()}

    def wait_backfilled(self, *tables: str, timeout_s: float = 60) -> None:
        """Wait until these tables, or all that have one, are backfilled; a failed one is an error at once."""

        def done() -> bool:
            assert not self.bridge.ended, f"the bridge ended by itself\n{self.bridge.tail()}"
            found = self.backfills()
            states = [found[table].state if table in found else "missing" for table in tables or found]
            assert "failed" not in states, self.bridge.tail()
            return bool(states) and set(states) == {"done"}

        eventually(done, timeout_s, lambda: f"backfills done: {self.backfills()}\n{self.why_not()}")

    def command(self, *arguments: str, code: int = 0) -> str:
        """What a command says to its end, stdout first; its exit code is as expected, and it does not crash."""
        done = run_command(*arguments, "-c", self.config)
        said = done.stdout + done.stderr
        assert done.returncode == code, f"{arguments}: {done.returncode}\n{said}\n{self.bridge.tail()}"
        assert "Traceback" not in said, said
        return said

    def cut(self) -> LSN | None:
        """The LSN that the replica records; None before the first cut."""
        try:
            rows = self.replica.execute("select lsn::text from cdc.cut")
        except (psycopg.errors.UndefinedTable, psycopg.errors.InvalidSchemaName):
            return None
        return LSN.parse(rows[0][0]) if rows and rows[0][0] else None

    def wait_mirrored(self, lsn: LSN | None = None, timeout_s: float = 60) -> LSN:
        """Wait until the replica's cut is at ``lsn`` (default: after everything that is published), or later.

        Backfills publish rows while the stream stands still, so a cut at today's end of the WAL may lack some of them.
        A cut at the position of a new message has them: its progress follows theirs.

        Returns:
            The position that was waited for.
        """
        if lsn is None:
            with psycopg.connect(self.source.dsn, autocommit=True) as source:
                lsn = fence(source)
        wanted = self.wait_published(lsn, timeout_s)

        def mirrored() -> bool:
            assert not self.sink.ended, f"the sink ended by itself\n{self.sink.tail()}"
            try:
                cut = self.cut()
            except psycopg.OperationalError:
                return False
            return cut is not None and cut >= wanted

        eventually(mirrored, timeout_s, lambda: f"a cut at {wanted}\n{self.sink.tail()}")
        return wanted

    def fields(self) -> ReadFields | None:
        """What reads values for the oracle that are not rows in JSON; None if all are."""
        registry = self.settings.get("registry")
        if self.settings["topics"].get("envelope") == "debezium":
            url = None if registry is None else registry["url"]
            return fields_by_catalog(self.source.dsn, self.settings.get("debezium", {}), url)
        of_schemas = None if registry is None else fields_by_registry(registry["url"])
        if values := self.settings.get("values"):
            of_forms = fields_by_names(self.source.dsn, values)
            # Keys may be in Avro beside values in other forms
            return lambda each: of_schemas(each) if of_schemas and each.startswith(b"\0") else of_forms(each)
        return of_schemas

    def records(self, *tables: str) -> list[StoredRecord]:
        """Every committed record of these tables' topics."""
        return read_records(self.bootstrap, [self.topic(table) for table in tables])

    def assert_published(self, *tables: TableShape | str) -> None:
        """See that source and folded topic hold the same rows, and no record went back or came twice."""
        self.wait_published()
        with pinned(self.source.dsn) as source:
            shapes = [table if isinstance(table, TableShape) else describe(source, table) for table in tables]
            copies = read_topics(self.bootstrap, [self.topic(shape.table) for shape in shapes], self.fields())
            for shape in shapes:
                copy = copies[self.topic(shape.table)]
                found = difference("topic", table_rows(source, shape), topic_rows(copy.live, shape), shape)
                assert found is None, f"{shape.table}: {found}\n{self.bridge.tail()}"
                assert not copy.backward
                assert not copy.duplicates

    def wait_equal(self, *tables: str) -> None:
        """Wait until the topics hold the source's rows, which stand still: a table is published again meanwhile."""

        def equal() -> bool:
            try:
                self.assert_published(*tables)
            except (AssertionError, CdcError, KafkaException):  # or Kafka does not know all of a new topic yet
                return False
            return True

        try:
            eventually(equal, 30)
        except AssertionError:
            self.assert_published(*tables)
            raise

    def assert_equal(self, *tables: TableShape | str) -> None:
        """See that source, folded topic and replica hold the same rows, and no record went back or came twice."""
        self.wait_mirrored()
        self._wait_settled([self.topic(table.table if isinstance(table, TableShape) else table) for table in tables])
        with pinned(self.source.dsn) as source:
            shapes = [table if isinstance(table, TableShape) else describe(source, table) for table in tables]
        verdicts = prove(
            source_dsn=self.source.dsn,
            bootstrap=self.bootstrap,
            name=self.name,
            replica_dsn=self.replica.dsn,
            shapes=shapes,
            fields=self.fields(),
        )
        findings = [finding for verdict in verdicts for finding in verdict.findings()]
        assert not findings, "\n".join([*findings, self.bridge.tail(), self.sink.tail()])

    def _wait_settled(self, topics: list[str], timeout_s: float = 60) -> None:
        """Wait until no replica of these topics is on its way to the cut: a restart may publish a table again."""
        asked = "select topic, state from cdc.mirrored_table where name = %s and topic = any(%s)"

        def on_their_way() -> list[Any]:
            assert not self.sink.ended, f"the sink ended by itself\n{self.sink.tail()}"
            found = self.replica.execute(asked, (self.name, topics))
            return [row for row in found if row[1] not in ("exact", "stopped")]

        eventually(lambda: not on_their_way(), timeout_s, lambda: f"settled: {on_their_way()}\n{self.sink.tail()}")

    def wait_table_equal(self, table: str) -> None:
        """Wait until the replica of one table holds the source's rows: of a table that catches up beside the cut."""
        with pinned(self.source.dsn) as source, pinned(self.replica.dsn) as replica:
            shape = describe(source, table)
            eventually(
                lambda: table_rows(source, shape) == table_rows(replica, shape),
                message=lambda: (
                    f"{table}: {difference('replica', table_rows(source, shape), table_rows(replica, shape), shape)}"
                    f"\n{self.sink.tail()}"
                ),
            )

    def close(self) -> None:
        """Kill what runs, and forget what was read; it may be started again."""
        self.bridge.kill()
        self.sink.kill()
        if self._consumer is not None:
            self._consumer.close()
        if self._follower is not None:
            self._follower.close()
        self._consumer = self._progress = self._follower = None

    def progress_or_none(self) -> Progress | None:
        """The newest stored progress; also None while no broker answers."""
        try:
            return self.progress()
        except KafkaException:  # the broker may be down: that is what some tests are about
            return None


Deploy: TypeAlias = Callable[..., Deployment]


def settings_for(
    name: str, source: Database, bootstrap: str, replica: Database, sections: Mapping[str, Mapping[str, Any]]
) -> dict[str, Any]:
    """A configuration; ``sections`` add to its sections or replace entries of them."""
    settings: dict[str, dict[str, Any]] = {
        "source": {"dsn": source.dsn},
        "kafka": {"bootstrap": bootstrap},
        "topics": {"partitions": 3},
        "sink": {"dsn": replica.dsn},
    }
    for section, entries in sections.items():
        settings.setdefault(section, {}).update(entries)
    return {"name": name, **settings}


@contextmanager
def deployed(
    source: Database,
    bootstrap: str,
    replica: Database,
    directory: Path,
    sections: Mapping[str, Mapping[str, Any]] | None = None,
    kind: type[CdcProcess] = ForkedCdc,
) -> Iterator[Deployment]:
    """A deployment of its own name, whose processes are killed at the end; ``sections`` as for ``settings_for``."""
    name = unique("t")
    settings = settings_for(name, source, bootstrap, replica, sections or {})
    deployment = Deployment(name, source, bootstrap, replica, directory, settings, kind)
    try:
        yield deployment
    finally:
        deployment.close()
