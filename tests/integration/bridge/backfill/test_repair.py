"""Somebody writes into the topics of a running bridge; keys that differ are repaired, whatever the stream does."""

from __future__ import annotations

import random
from collections.abc import Sequence
from pathlib import Path

import orjson
import psycopg
import pytest

from cdc.base.config.load import load
from cdc.base.errors import ConfigError, SourceUnavailable
from cdc.bridge.asking.repair import MAX_KEYS, RepairProgress, RepairResult, repair_keys
from cdc.contract.header import header_position
from cdc.contract.naming import progress_topic
from cdc.contract.partition import partition_of
from cdc.contract.progress import stream_key
from cdc.contract.record import RepairKey
from cdc.contract.repair import parts_of
from cdc.kafka.brokers import BrokerAdmin
from cdc.kafka.publish.requests import write_repair
from cdc.kafka.replay.backfills import Published, read_published
from cdc.lab.proof.comparison import TableShape, describe, pinned, table_rows, topic_rows
from cdc.lab.stack import Kafka
from tests.support import versioned
from tests.support.deployment import Deploy, Deployment, deployed
from tests.support.held_commits import hold_commits
from tests.support.servers import Database, OwnStack
from tests.support.topic_damage import Damage, assert_topic_is_table, live_rows
from tests.support.waiting import eventually

_PARTITIONS = 3


def repair(deployment: Deployment, table: str, keys: Sequence[RepairKey], timeout_s: float = 60) -> RepairResult:
    """As a command would."""
    said: list[RepairProgress] = []
    result = repair_keys(load(deployment.config, {}), table, keys, timeout_s=timeout_s, tell=said.append)
    assert said[-1].done == said[-1].keys == len(set(keys))
    return result


def published(deployment: Deployment) -> Published:
    """What the progress topic holds."""
    options = {"bootstrap.servers": deployment.bootstrap}
    return read_published(BrokerAdmin(options), progress_topic(deployment.name), stream_key(deployment.slot()))


def id_key(number: int) -> bytes:
    return b'{"id":%d}' % number


def misplaced(key: bytes) -> int:
    """A partition to which the key does not belong."""
    return (partition_of(key, _PARTITIONS) + 1) % _PARTITIONS


class TestBesideWrites:
    """Two writers change the very keys that are damaged and repaired."""

    rows = 150

    def test_topic_and_table_agree(self, database: Database, deploy: Deploy) -> None:
        versioned.create(database, self.rows)
        deployment = deploy()
        deployment.start_bridge()
        deployment.wait_backfilled()
        rng = random.Random(7)
        writers = [versioned.Writer(database, seed, self.rows) for seed in (1, 2)]
        damage = Damage(deployment)
        for writer in writers:
            writer.start()
        total = RepairResult(0, 0, 0, deployment.now())
        for _ in range(4):
            for table in versioned.TABLES:
                keys = self.damage(damage, deployment, table, rng)
                result = repair(deployment, table, keys)
                assert result.lsn >= total.lsn
                total = RepairResult(
                    total.rows + result.rows,
                    total.tombstones + result.tombstones,
                    total.touched + result.touched,
                    result.lsn,
                )
        for writer in writers:
            writer.finish()
        assert_topic_is_table(deployment, *versioned.TABLES)
        assert total.rows > self.rows
        assert total.tombstones > self.rows
        records = damage.others(deployment.records(*versioned.TABLES))
        own = [each for each in records if each.partition == partition_of(each.key or b"", _PARTITIONS)]
        assert versioned.VersionAudit().add(own).faults == []
        assert published(deployment).repairs == ()
        assert {each.table for each in published(deployment).outcomes} == set(versioned.TABLES)

    def damage(self, damage: Damage, deployment: Deployment, table: str, rng: random.Random) -> list[RepairKey]:
        """Every kind of damage; the keys to repair."""
        older = {each.key: each.value for each in deployment.records(table) if each.value is not None}
        keys: list[RepairKey] = []
        for number in rng.sample(range(1, 2 * self.rows), 60):
            key, kind = id_key(number), rng.randrange(6)
            forged = b'{"id":%d,"version":-1,"pad":"forged"}' % number
            if kind == 0:  # a changed value, or a ghost
                damage.write(table, key, forged)
            elif kind == 1:
                damage.write(table, key, older.get(key, forged))
            elif kind == 2:
                damage.write(table, key, None)
            elif kind == 3:
                alias = rng.choice((b'{"id": %d}', b'{"id":"%d"}')) % number
                damage.write(table, alias, forged)
                keys.append(RepairKey(alias))
            elif kind == 4:
                damage.write(table, key, forged, misplaced(key))
                keys.append(RepairKey(key, misplaced(key)))
            else:
                foreign = rng.choice((b"", b"\xff%d", b'{"no":%d}', b'{"id":%d,"x":1}', b'{"id":"a%d"}'))
                foreign = foreign % number if b"%d" in foreign else foreign
                damage.write(table, foreign, forged)
                keys.append(RepairKey(foreign, partition_of(foreign, _PARTITIONS)))
            if kind < 3:
                keys.append(RepairKey(key))
        damage.done()
        return keys


def test_keys_of_many_types(database: Database, deploy: Deploy) -> None:
    """Each row is found by its key's bytes, and so is one that the topic lacks; other spellings are deleted."""
    database.execute("CREATE TYPE mood AS ENUM ('so so', 'fine')")
    database.execute(
        'CREATE TABLE "Mixed, Case" ("Text" text, u uuid, n numeric(9,2), at timestamptz, b boolean, "mood" mood,'
        ' c char(4), a int[], j jsonb, "id" bigint, v text,'
        ' PRIMARY KEY ("id", "Text", u, n, at, b, mood, c, a, j)) '
    )
    database.execute(
        'INSERT INTO "Mixed, Case" SELECT E\'ä"\\\\\\t%s {\' || i, md5(i::text)::uuid, i / 4.0,'
        " '2024-01-01 00:00:00.5+02'::timestamptz + i * interval '1 h', i % 2 = 0, 'so so', 'ab', ARRAY[i, NULL],"
        " jsonb_build_object('k', i), i, 'v' FROM generate_series(1, 20) i"
    )
    table = "public.Mixed, Case"
    deployment = deploy()
    deployment.start_bridge()
    deployment.wait_backfilled()
    keys = sorted({each.key for each in deployment.records(table) if each.key})
    damage = Damage(deployment)
    for key in keys[:15]:
        damage.write(table, key, None)
    spelled = [key.replace(b"+00", b"Z").replace(b'"so so"', b'"so so" ').replace(b":true", b':"yes"') for key in keys]
    aliases = [each for each in spelled if each not in keys]
    assert len(aliases) == len(keys)
    for alias in aliases:
        damage.write(table, alias, b"{}")
    damage.done()
    result = repair(deployment, table, [*map(RepairKey, keys), *map(RepairKey, aliases)])
    assert result.tombstones == len(aliases)
    assert_topic_is_table(deployment, table)


def test_equal_numbers_that_look_different(database: Database, deploy: Deploy) -> None:
    database.execute("CREATE TABLE t (n numeric PRIMARY KEY, v int)")
    database.execute("INSERT INTO t VALUES (1.00, 1), (2.0, 2)")
    deployment = deploy()
    deployment.start_bridge()
    deployment.wait_backfilled()
    damage = Damage(deployment)
    damage.write("public.t", b'{"n":"1.0"}', b'{"n":"1.0","v":1}')
    damage.write("public.t", b'{"n":"3.0"}', b'{"n":"3.0","v":1}')
    damage.done()
    keys = [RepairKey(b'{"n":"1.0"}'), RepairKey(b'{"n":"3.0"}'), RepairKey(b'{"n":2}')]
    result = repair(deployment, "public.t", keys)
    assert (result.rows, result.tombstones, result.touched) == (2, 3, 0)
    assert_topic_is_table(deployment, "public.t")


@pytest.mark.pg(16, 18, since=15)
def test_only_what_is_published(database: Database, deploy: Deploy) -> None:
    """A row outside of the filter is none, and a column outside of the list is not read."""
    database.execute("CREATE TABLE t (id int PRIMARY KEY, k0 int, o text, hidden text)")
    database.execute("INSERT INTO t SELECT i, i, 'o', 'secret' FROM generate_series(1, 10) i")
    database.execute("CREATE PUBLICATION theirs FOR TABLE t (id, k0, o) WHERE (id <= 5 AND id > 0)")
    deployment = deploy(source={"publication": "theirs", "publication_mode": "disabled"})
    deployment.start_bridge()
    deployment.wait_backfilled()
    damage = Damage(deployment)
    for number in range(1, 11):
        damage.write("public.t", id_key(number), b'{"id":%d,"k0":0,"o":"forged"}' % number)
    damage.done()
    result = repair(deployment, "public.t", [RepairKey(id_key(number)) for number in range(1, 11)])
    assert (result.rows, result.tombstones) == (5, 5)
    with pinned(database.dsn) as source:
        shape = describe(source, "public.t")
        shape = TableShape(shape.table, shape.columns[:3], shape.key)
        expected = {key: row for key, row in table_rows(source, shape).items() if int(row[0] or b"") <= 5}
    assert topic_rows(live_rows(deployment.records("public.t"), _PARTITIONS), shape) == expected


def test_a_configured_key_and_rows_that_others_inherit(database: Database, deploy: Deploy) -> None:
    database.execute("CREATE TABLE t (a int, b text, v int); ALTER TABLE t REPLICA IDENTITY FULL")
    database.execute("CREATE TABLE child () INHERITS (t); ALTER TABLE child REPLICA IDENTITY FULL")
    database.execute("INSERT INTO t SELECT i, 'b', i FROM generate_series(1, 5) i")
    database.execute("INSERT INTO child SELECT 100 + i, 'b', i FROM generate_series(1, 5) i")
    deployment = deploy(source={"keys": {"public.t": ["b", "a"], "public.child": ["a", "b"]}})
    deployment.start_bridge()
    deployment.wait_backfilled()
    damage = Damage(deployment)
    keys = [b'{"b":"b","a":%d}' % number for number in (1, 2, 101)]
    for key in keys:
        damage.write("public.t", key, None if b"1}" in key else b"{}")
    damage.done()
    result = repair(deployment, "public.t", list(map(RepairKey, keys)))
    assert (result.rows, result.tombstones) == (2, 1)
    with pinned(database.dsn) as source:
        shape = describe(source, "public.t", ("b", "a"))
        own = {key: row for key, row in table_rows(source, shape).items() if int(row[0] or b"") < 100}
    assert topic_rows(live_rows(deployment.records("public.t"), _PARTITIONS), shape) == own


def test_beside_a_paused_backfill(database: Database, deploy: Deploy) -> None:
    """Its record is left alone, and so are the ordinals of the records that it goes on with."""
    database.execute("CREATE TABLE t (id int PRIMARY KEY, pad text) WITH (fillfactor = 10)")
    database.execute("INSERT INTO t SELECT i, repeat('p', 90) FROM generate_series(1, 3000) i")
    deployment = deploy(snapshot={"parallel": 1})
    deployment.start_bridge()
    deployment.wait_backfilled()
    before = deployment.backfills()
    damage = Damage(deployment)
    damage.write("public.t", id_key(1), None)
    damage.write("public.t", id_key(4000), b"{}")
    damage.done()
    assert repair(deployment, "public.t", [RepairKey(id_key(1))]).rows == 1
    deployment.bridge.kill()
    deployment.start_bridge()
    assert repair(deployment, "public.t", [RepairKey(id_key(number)) for number in range(1, 1201)]).rows == 1200
    assert repair(deployment, "public.t", [RepairKey(id_key(4000))]).tombstones == 1
    assert deployment.backfills() == before
    assert_topic_is_table(deployment, "public.t")
    records = damage.others(deployment.records("public.t"))
    positions = [(each.partition, header_position(each.header)) for each in records]
    assert positions == sorted(positions)


def test_with_no_bridge_running(database: Database, deploy: Deploy) -> None:
    database.execute("CREATE TABLE t (id int PRIMARY KEY, v text)")
    database.execute("INSERT INTO t SELECT i, 'v' FROM generate_series(1, 1000) i")
    deployment = deploy()
    deployment.start_bridge()
    deployment.wait_backfilled()
    deployment.bridge.stop()
    damage = Damage(deployment)
    for number in (1, 1001):
        damage.write("public.t", id_key(number), b'{"id":1,"v":"forged"}')
    damage.done()
    result = repair(deployment, "public.t", [RepairKey(id_key(number)) for number in range(1, 1002)])
    assert (result.rows, result.tombstones, result.touched) == (1000, 1, 0)
    deployment.start_bridge()
    assert_topic_is_table(deployment, "public.t")


def test_refusals(database: Database, deploy: Deploy) -> None:
    database.execute("CREATE TABLE t (id int PRIMARY KEY)")
    database.execute("INSERT INTO t VALUES (1)")
    deployment = deploy()
    deployment.start_bridge()
    deployment.wait_backfilled()
    with pytest.raises(ConfigError, match=r"not captured: public\.nope\n  remedy: name some of public\.t"):
        repair(deployment, "public.nope", [RepairKey(id_key(1))])
    with pytest.raises(
        ConfigError, match=r"100,001 keys of public\.t .*\n  remedy: .*: cdc backfill public\.t --sweep"
    ):
        repair(deployment, "public.t", [RepairKey(id_key(number)) for number in range(MAX_KEYS + 1)])
    with psycopg.connect(database.dsn) as blocker:
        blocker.execute("LOCK TABLE t IN ACCESS EXCLUSIVE MODE")
        with pytest.raises(
            SourceUnavailable, match=r"did not take the repair in time\n  remedy: .* a lock on the table"
        ):
            repair(deployment, "public.t", [RepairKey(id_key(1))], timeout_s=4)
    eventually(lambda: published(deployment).repairs == (), message=deployment.bridge.tail)
    assert repair(deployment, "public.t", [RepairKey(id_key(1))]).rows == 1
    assert_topic_is_table(deployment, "public.t")


def test_a_replica_follows(database: Database, deploy: Deploy) -> None:
    """It knows rows by their keys' values, and reads the partitions side by side: neither may delete a repaired row."""
    database.execute("CREATE TABLE t (id int PRIMARY KEY, v text)")
    database.execute("INSERT INTO t SELECT i, 'v' FROM generate_series(1, 60) i")
    deployment = deploy()
    deployment.start()
    deployment.wait_backfilled()
    deployment.wait_mirrored()
    deployment.sink.stop()  # so that damage and repair come to it at once
    damage = Damage(deployment)
    keys = []
    header = deployment.records("public.t")[-1].header  # so that the sink takes it
    for number in range(1, 61):
        key = id_key(number)
        forged = b'{"id":%d,"v":"forged"}' % number
        if number % 2:
            damage.write("public.t", key, forged, misplaced(key), header)
            keys.append(RepairKey(key, misplaced(key)))
        else:
            alias = b'{"id": %d}' % number
            damage.write("public.t", alias, forged, header=header)
            keys.append(RepairKey(alias))
    damage.done()
    result = repair(deployment, "public.t", keys)
    assert (result.rows, result.tombstones) == (60, 60)
    assert_topic_is_table(deployment, "public.t")
    deployment.sink.start()
    database.execute("INSERT INTO t VALUES (61, 'still taken')")
    deployment.wait_mirrored()
    deployment.wait_table_equal("public.t")


def test_a_change_that_is_streamed_and_not_visible_yet(own_stack: OwnStack, kafka: Kafka, tmp_path: Path) -> None:
    """Nobody noted its keys, and the table still shows the rows before it: the repair has to wait."""
    server = own_stack.postgres()
    source = Database("postgres", server.dsn())
    source.execute("CREATE TABLE t (id int PRIMARY KEY, n int)")
    source.execute("INSERT INTO t SELECT i, 0 FROM generate_series(1, 10) i")
    keys = [RepairKey(id_key(1)), RepairKey(id_key(2))]
    with deployed(source, kafka.bootstrap, source, tmp_path) as deployment:
        deployment.start_bridge()
        deployment.wait_backfilled()
        source.execute("UPDATE t SET n = n WHERE id = 3")  # a table named for the first time waits for visibility
        deployment.wait_published()
        with hold_commits(server.dsn()) as held:
            held.start(["UPDATE t SET n = 1 WHERE id = 1", "DELETE FROM t WHERE id = 2"])
            eventually(lambda: values(deployment, id_key(2))[-1] is None, message=deployment.bridge.tail)
            with pytest.raises(SourceUnavailable, match="in time"):
                repair(deployment, "public.t", keys, timeout_s=4)
            held.release()
        result = repair(deployment, "public.t", keys)
        assert (result.rows, result.tombstones) == (1, 1)
        assert [orjson.loads(value)["n"] for value in values(deployment, id_key(1)) if value] in (
            [0, 1, 1],
            [0, 1, 1, 1],
        )
        assert values(deployment, id_key(2))[1:] in (
            [None, None],
            [None, None, None],
        )  # what was given up may be done as well


def test_a_change_that_is_streamed_while_keys_are_looked_up(own_stack: OwnStack, kafka: Kafka, tmp_path: Path) -> None:
    """The table still shows the rows before it, which are older than what the topic has."""
    server = own_stack.postgres()
    source = Database("postgres", server.dsn())
    source.execute("CREATE TABLE t (id int, n int, leaf int, PRIMARY KEY (id, leaf)) PARTITION BY LIST (leaf)")
    for leaf in (0, 1):
        source.execute(f"CREATE TABLE t_{leaf} PARTITION OF t FOR VALUES IN ({leaf})")
        source.execute(f"INSERT INTO t SELECT i, 0, {leaf} FROM generate_series(1, 10) i")
    keys = [b'{"id":%d,"leaf":1}' % number for number in (1, 2, 3)]
    with deployed(source, kafka.bootstrap, source, tmp_path) as deployment:
        deployment.start_bridge()
        deployment.wait_backfilled()
        source.execute("UPDATE t SET n = n WHERE id = 4")  # a table named for the first time waits for visibility
        deployment.wait_published()
        with psycopg.connect(server.dsn()) as blocker:
            # The reader stops here: keys are noted by now, and its snapshot is still to come
            blocker.execute("LOCK TABLE t_0 IN ACCESS EXCLUSIVE MODE")
            parts = parts_of("r", "public.t", map(RepairKey, keys))
            write_repair({"bootstrap.servers": deployment.bootstrap}, progress_topic(deployment.name), parts)
            eventually(lambda: waits_for_lock(source), message=deployment.bridge.tail)
            with hold_commits(server.dsn()) as held:
                held.start(["UPDATE t_1 SET n = 1 WHERE id = 1", "DELETE FROM t_1 WHERE id = 2"])
                eventually(lambda: values(deployment, keys[1])[-1] is None, message=deployment.bridge.tail)
                blocker.rollback()
                eventually(lambda: published(deployment).outcomes, message=deployment.bridge.tail)
                held.release()
        (result,) = published(deployment).outcomes
        assert (result.rows, result.tombstones, result.touched) == (1, 0, 2)
        assert [orjson.loads(value or b"")["n"] for value in values(deployment, keys[0])] == [0, 1]
        assert_topic_is_table(deployment, "public.t")


def waits_for_lock(source: Database) -> bool:
    """Whether a reader of the bridge does."""
    query = "SELECT count(*) FROM pg_stat_activity WHERE wait_event_type = 'Lock' AND application_name LIKE '%backfill'"
    return bool(source.execute(query)[0][0])


def values(deployment: Deployment, key: bytes) -> list[bytes | None]:
    """What the topic said of a row, in order."""
    return [each.value for each in deployment.records("public.t") if each.key == key]
