"""However the sink ends, and however little memory it has: the replica shows commit prefixes, and in the end all."""

from __future__ import annotations

import json
import random
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

import orjson
import pytest

from cdc.base.config import Config
from cdc.base.errors import ReplicaUnavailable, TopicUnavailable
from cdc.base.lsn import LSN
from cdc.sink.apply import session as mirror_session
from tests.integration.sink.postgres.conftest import plain_config, running, sink_config
from tests.support.reading import fold_topic
from tests.support.sampling import sampled
from tests.support.servers import Database, OwnStack, fresh_database
from tests.support.topic_writer import TopicWriter

_SINK = """
import sys, threading
from cdc.base import crashpoints
from cdc.sink.apply.loop import run_mirror
from cdc.base.config import Config
from cdc.sink.dialects import open_replica
crashpoints.arm(sys.argv[2])
config = Config.model_validate_json(sys.argv[1])
run_mirror(config, open_replica(config, application_name="test"), threading.Event())
"""


class Ledger:
    """Transactions that each write the same id into two tables, and sometimes take one out of both again."""

    def __init__(self, topics: TopicWriter, seed: int) -> None:
        self.topics = topics
        self.rng = random.Random(seed)
        self.left = topics.table("ledger_left", id="int4", v="int4")
        self.right = topics.table("ledger_right", id="int4", v="int4")
        self.ids: set[int] = set()
        self.lsn = 10
        self.counts: dict[int, int] = {}
        with topics.kafka_transaction():
            topics.define(self.left)
            topics.define(self.right)
            topics.progress(self.lsn)

    def write(self, transactions: int, rows: int = 5) -> None:
        """Source transactions, some in one Kafka transaction, some over several with partial progress between."""
        left = transactions
        while left:
            group = min(left, self.rng.randint(1, 4))
            left -= group
            with self.topics.kafka_transaction():
                for _ in range(group):
                    self._transaction(rows)
                self.topics.progress(self.lsn + 1)

    def write_big(self, rows: int) -> None:
        """One source transaction over many Kafka transactions."""
        self.lsn += 10
        done = self.lsn - 9
        for start in range(0, rows, 100):
            with self.topics.kafka_transaction():
                for i in range(start, min(start + 100, rows)):
                    self._put(10_000 + i, 2 * i + 1)
                self.topics.progress(done, partial=(self.lsn, 2 * (start + 100)))
        with self.topics.kafka_transaction():
            self.counts[self.lsn] = len(self.ids)
            self.topics.progress(self.lsn + 1)

    def _transaction(self, rows: int) -> None:
        self.lsn += self.rng.randint(2, 9)
        for seq in range(1, 2 * rows, 2):
            if self.ids and self.rng.random() < 0.3:
                gone = self.rng.choice(sorted(self.ids))
                self.ids.discard(gone)
                for table in (self.left, self.right):
                    self.topics.delete(table, {"id": gone}, self.lsn, seq)
            else:
                self._put(self.rng.randint(1, 500), seq)
        self.counts[self.lsn] = len(self.ids)

    def _put(self, number: int, seq: int) -> None:
        self.ids.add(number)
        for table in (self.left, self.right):
            self.topics.upsert(table, {"id": number, "v": self.lsn}, self.lsn, seq)

    def count_at(self, lsn: int) -> int:
        """Rows of either table after everything that committed before ``lsn``."""
        return next((count for at, count in sorted(self.counts.items(), reverse=True) if at < lsn), 0)

    def assert_mirrored(self, database: Database) -> None:
        for table in (self.left, self.right):
            state = fold_topic(self.topics.options, table.topic)
            rows = database.execute(f"select json_build_object('id', id, 'v', v)::jsonb from {table.name}")
            expected = sorted((orjson.loads(value.value) for value in state.values()), key=lambda row: row["id"])
            assert sorted((row for (row,) in rows), key=lambda row: row["id"]) == expected


_LOOK_S = 0.002
"""Between two looks, of which each takes about as long."""


class Watcher:
    """Reads both tables and the recorded LSN in one transaction, again and again."""

    def __init__(self, database: Database, ledger: Ledger) -> None:
        self.database, self.ledger = database, ledger
        self.stop = threading.Event()
        self.seen: set[tuple[str, int, int]] = set()

    def run(self) -> None:
        counts = "(select count(*) from ledger_left), (select count(*) from ledger_right)"
        query = f"select (select lsn::text from cdc.cut), {counts}"
        with self.database.connect(autocommit=True) as connection:
            while not self.stop.wait(_LOOK_S):
                self.seen.update(connection.execute(query.encode()))

    def assert_only_prefixes(self) -> None:
        assert len(self.seen) >= 2, "before and after, and of what is between whatever a busy machine let it see"
        for lsn, left, right in self.seen:
            if lsn is not None:  # else the sink catches up, and promises nothing
                expected = self.ledger.count_at(LSN.parse(lsn))
                assert (left, right) == (expected, expected), f"at {lsn}"


@contextmanager
def watching(database: Database, ledger: Ledger) -> Iterator[Watcher]:
    watcher = Watcher(database, ledger)
    thread = threading.Thread(target=watcher.run)
    thread.start()
    try:
        yield watcher
    finally:
        watcher.stop.set()
        thread.join()


def doomed_sink(topics: TopicWriter, database: Database, crashpoint: str) -> subprocess.Popen[bytes]:
    """The sink in a process of its own, which ends itself at a crash point."""
    text = json.dumps(plain_config(topics, database))
    return subprocess.Popen([sys.executable, "-c", _SINK, text, crashpoint], stdout=subprocess.DEVNULL)


ENDS: Final = ("sink.before_apply", "sink.before_replica_commit", "sink.after_replica_commit")


@pytest.mark.parametrize("crashpoint", sampled(ENDS, ENDS[1:2]))
def test_killed_at_a_crash_point(topics: TopicWriter, database: Database, config: Config, crashpoint: str) -> None:
    ledger = Ledger(topics, seed=1)
    ledger.write(5)
    with running(config, database) as mirror:
        mirror.wait_for_cut(ledger.lsn + 1)
    with watching(database, ledger) as watcher:
        for visit in (1, 2):
            ledger.write(20)
            with doomed_sink(topics, database, f"{crashpoint}:{visit}") as sink:
                while sink.poll() is None:
                    ledger.write(3)
            assert sink.returncode == -signal.SIGKILL
        with running(config, database) as mirror:
            mirror.wait_for_cut(ledger.lsn + 1)
    ledger.assert_mirrored(database)
    watcher.assert_only_prefixes()


@pytest.mark.parametrize("seed", sampled([1, 2, 3], [2]))
def test_little_memory_gives_the_same(
    topics: TopicWriter, database: Database, config: Config, monkeypatch: pytest.MonkeyPatch, seed: int
) -> None:
    monkeypatch.setattr(mirror_session, "MAX_RECORDS", 30 * seed)
    monkeypatch.setattr(mirror_session, "RECORDS_PER_POLL", 20)
    ledger = Ledger(topics, seed)
    ledger.write(40)
    ledger.write_big(1_500)
    ledger.write(40)
    with running(config, database) as mirror:
        mirror.wait_for_cut(11)
        with watching(database, ledger) as watcher:
            ledger.write_big(1_000)
            ledger.write(100)
            mirror.wait_for_cut(ledger.lsn + 1)
    ledger.assert_mirrored(database)
    watcher.assert_only_prefixes()


def test_poison_in_a_spilled_transaction(
    topics: TopicWriter, database: Database, config: Config, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(mirror_session, "MAX_RECORDS", 50)
    monkeypatch.setattr(mirror_session, "RECORDS_PER_POLL", 20)
    ledger = Ledger(topics, seed=4)
    with running(config, database) as mirror:
        mirror.wait_for_cut(10)
        database.execute("alter table ledger_left add check (id <> 10777)")
        ledger.write_big(1_000)
        mirror.wait_for_cut(ledger.lsn + 1)
    assert database.execute("select (select count(*) from ledger_left), (select count(*) from ledger_right)") == [
        (0, 1_000)
    ]
    query = "select state, stopped_key, rows_applied from cdc.mirrored_table order by replica_table"
    assert database.execute(query) == [("stopped", '{"id":10777}', 0), ("exact", None, 1_000)]


def test_schema_change_inside_a_spilled_transaction(
    topics: TopicWriter, database: Database, config: Config, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(mirror_session, "MAX_RECORDS", 30)
    monkeypatch.setattr(mirror_session, "RECORDS_PER_POLL", 20)
    with running(config, database) as mirror:
        definitions = [topics.table("t", id="int4", **{f"c{i}": "text" for i in range(n)}) for n in range(1, 6)]
        for n, table in enumerate(definitions):
            with topics.kafka_transaction():
                topics.define(table)
                for i in range(100):
                    topics.upsert(
                        table, {"id": 100 * n + i} | {f"c{j}": "x" for j in range(n + 1)}, 10, 100 * n + i + 1
                    )
                topics.progress(5, partial=(10, 100 * (n + 1)))
        with topics.kafka_transaction():
            topics.progress(11)
        mirror.wait_for_cut(11)
    assert database.execute("select count(*), count(c0), count(c1), count(c4) from t") == [(500, 500, 400, 100)]


def test_stop_finishes_the_cut_under_way(topics: TopicWriter, database: Database, config: Config) -> None:
    ledger = Ledger(topics, seed=5)
    ledger.write(50)
    with running(config, database) as mirror:
        mirror.wait_for_cut(11)
        ledger.write(50)
    assert mirror.error is None
    last = mirror.reports[-1].progress.lsn
    assert database.execute("select lsn::text from cdc.cut") == [(str(last),)]
    assert database.execute("select count(*) from ledger_left") == [(ledger.count_at(last),)]


def test_replica_and_broker_lost(own_stack: OwnStack) -> None:
    """Every loss is a retryable error, and the next attempt goes on where the replica stands."""
    server, broker = own_stack.postgres(), own_stack.kafka()
    topics = TopicWriter(broker.bootstrap)
    ledger = Ledger(topics, seed=6)
    ledger.write(20)
    with fresh_database(server) as database:
        config = sink_config(topics, database)
        with running(config, database) as mirror:
            mirror.wait_for_cut(ledger.lsn + 1)
            server.kill()
            server.restart()
            ledger.write(20)
            assert isinstance(mirror.wait_for_error(), ReplicaUnavailable)
        with running(config, database) as mirror:
            mirror.wait_for_cut(ledger.lsn + 1)
            broker.kill()
            assert isinstance(mirror.wait_for_error(), TopicUnavailable)
        broker.restart()
        with running(config, database) as mirror:
            mirror.wait_for_cut(ledger.lsn + 1)
            ledger.write(5)
            mirror.wait_for_cut(ledger.lsn + 1)
        ledger.assert_mirrored(database)
