"""Records that another program wrote where their keys do not belong, or spelled otherwise; and their repair.

A repair's records share an LSN, and partitions are read in no order: a cut that is larger than memory may bring a
tombstone behind the row of the same key.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Collection, Mapping

import pytest

from cdc.base.config import Config
from cdc.base.lsn import LSN
from cdc.contract.header import DELETE, HeaderStamp, of_no_row
from cdc.contract.partition import partition_of
from cdc.contract.ports import Partition, StoredRecord
from cdc.contract.record import TableSchema
from cdc.kafka.replay.reader import TopicReader
from cdc.sink.apply import session as mirror_session
from tests.integration.sink.postgres.conftest import running
from tests.integration.sink.postgres.test_exactness import publish, wait_for_state
from tests.support.servers import Database
from tests.support.topic_writer import TopicWriter

HOME, ELSEWHERE = 0, 1
ROWS = 300

IDS = [n for n in range(10_000) if partition_of(b'{"id":%d}' % n, 2) == HOME]
"""Their keys belong into the partition ``HOME``, …"""

ALIASED = [n for n in IDS if partition_of(b'{"id": %d}' % n, 2) == ELSEWHERE][:ROWS]
"""… and with a blank into the other one."""


@pytest.fixture(params=["small", "spilled"])
def size(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """A cut in one piece, or in several: the rows' partition first, as when the other one's broker is slow."""
    if request.param == "spilled":
        monkeypatch.setattr(mirror_session, "MAX_RECORDS", 100)
        monkeypatch.setattr(mirror_session, "RECORDS_PER_POLL", 40)
        slowly = Slowly()
        monkeypatch.setattr(TopicReader, "add", lambda *args: slowly.add(*args))
        monkeypatch.setattr(TopicReader, "hold", lambda *args: slowly.hold(*args))
        monkeypatch.setattr(TopicReader, "poll", lambda *args: slowly.poll(*args))
    return str(request.param)


class Slowly:
    """``TopicReader``'s methods; partitions of a slow broker wait until rows of the other one were read."""

    def __init__(self) -> None:
        self._add, self._poll, self._hold = TopicReader.add, TopicReader.poll, TopicReader.hold
        self._waiting: defaultdict[TopicReader, set[Partition]] = defaultdict(set)
        self._held: dict[TopicReader, set[Partition]] = {}

    def add(self, reader: TopicReader, starts: Mapping[Partition, int]) -> None:
        self._add(reader, starts)
        self._waiting[reader].update(each for each in starts if each[1] == ELSEWHERE)
        self._pause(reader)

    def hold(self, reader: TopicReader, partitions: Collection[Partition]) -> None:
        self._held[reader] = set(partitions) - self._waiting[reader]
        self._pause(reader)

    def poll(self, reader: TopicReader, max_records: int, timeout_s: float) -> list[StoredRecord]:
        for late in list(self._waiting[reader]):
            other = late[0], HOME
            if reader.positions().get(other, 0) >= ROWS or other in self._held.get(reader, ()):
                self._waiting[reader].remove(late)
                self._pause(reader)
        return self._poll(reader, max_records, timeout_s)

    def _pause(self, reader: TopicReader) -> None:
        self._hold(reader, self._waiting[reader] | self._held.get(reader, set()))


def write_repair(
    topics: TopicWriter, table: TableSchema, key: Callable[[int], bytes], *, rows_first: bool, ids: list[int]
) -> None:
    """What takes strange records away, and the rows of their keys: one LSN, one Kafka transaction."""
    stamp, seq = HeaderStamp(LSN(19), None, 1, "700:700:"), 0
    with topics.kafka_transaction():
        topics.define(table)
        for n in ids:
            seq += 2
            tombstone, row = of_no_row(stamp.header(DELETE, seq, table.fingerprint)), seq + 1
            if rows_first:
                topics.backfilled(table, {"id": n, "v": 1}, 20, row)
            topics.write(table.topic, key(n), None, tombstone, partition=ELSEWHERE)
            if not rows_first:
                topics.backfilled(table, {"id": n, "v": 1}, 20, row)
        topics.progress(20)


def rows_of(database: Database) -> dict[int, int]:
    return dict(database.execute("select id, v from items"))


@pytest.mark.parametrize("kind", ["elsewhere", "alias"])
@pytest.mark.parametrize("is_running", [False, True], ids=["first start", "running"])
@pytest.mark.parametrize("rows_first", [False, True], ids=["tombstones first", "rows first"])
def test_a_repair_leaves_the_rows(
    topics: TopicWriter,
    database: Database,
    config: Config,
    size: str,
    kind: str,
    rows_first: bool,
    is_running: bool,
) -> None:
    """Also into a fresh table, whose rows are copied straight."""
    ids = ALIASED if kind == "alias" else IDS[:ROWS]
    key = b'{"id": %d}' if kind == "alias" else b'{"id":%d}'
    table = topics.table("items", id="int4", v="int4")
    if not is_running:
        write_repair(topics, table, lambda n: key % n, rows_first=rows_first, ids=ids)
    else:
        publish(topics, table, 10, [{"id": ids[0], "v": 0}])
    with running(config, database) as mirror:
        if is_running:
            mirror.wait_for_cut(11)
            write_repair(topics, table, lambda n: key % n, rows_first=rows_first, ids=ids)
        mirror.wait_for_cut(20)
        wait_for_state(database, "items", "exact")
    assert rows_of(database) == dict.fromkeys(ids, 1), size


def test_rows_that_lie_elsewhere_are_left_out(
    topics: TopicWriter, database: Database, config: Config, size: str
) -> None:
    """Whatever their headers say; they were the replica's rows, where they came last."""
    table = topics.table("items", id="int4", v="int4")
    with topics.kafka_transaction():
        topics.define(table)
        for seq, n in enumerate(IDS[:ROWS], 1):
            topics.upsert(table, {"id": n, "v": 1}, 10, seq)
            value = b'{"id":%d,"v":666}' % n
            topics.write(table.topic, b'{"id":%d}' % n, value, topics.header(table, 10, seq), partition=ELSEWHERE)
        topics.progress(11)
    with running(config, database) as mirror:
        mirror.wait_for_cut(11)
    assert rows_of(database) == dict.fromkeys(IDS[:ROWS], 1), size
