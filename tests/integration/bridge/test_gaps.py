"""Each way in which changes go missing behind the bridge's back is said by name, and ``on_gap: rebackfill`` heals it.

Most are only judged, in this process: what a start of the bridge would say. Some are lived through with the process.
"""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import NewPartitions, NewTopic

from cdc.base.config import Config, load
from cdc.base.errors import CdcError, GapError, TopicUnavailable
from cdc.bridge.order.demand import Demand
from cdc.bridge.resume import Resumption
from cdc.bridge.source.catalog import find_tables
from cdc.bridge.source.connect import connect
from cdc.bridge.source.membership import memberships
from cdc.bridge.topic_watch import TopicWatch
from cdc.contract.gaps import SlotGap, TopicGap
from cdc.contract.naming import progress_topic, schemas_topic
from cdc.contract.record import Progress
from cdc.kafka.brokers import BrokerAdmin
from cdc.kafka.replay.topic_state import look_at, newest_lsn
from cdc.lab.stack import Kafka, Postgres
from tests.support.deployment import Deploy, Deployment, deployed
from tests.support.names import unique
from tests.support.servers import Database, OwnStack, fresh_database
from tests.support.topic_audit import audit
from tests.support.topic_settings import create_topic, delete_records
from tests.support.waiting import eventually

REFUSED = GapError.exit_code
HEAL = "CDC_SOURCE__ON_GAP=rebackfill cdc run"
TABLES = ("public.items", "public.others")


def populate(source: Database) -> None:
    source.execute(
        "CREATE TABLE items (id integer PRIMARY KEY, note text); CREATE TABLE others (id integer PRIMARY KEY);"
        "INSERT INTO items SELECT i, 'before' FROM generate_series(1, 300) i; INSERT INTO others VALUES (1)"
    )


def publish_and_stop(deployment: Deployment) -> None:
    deployment.start_bridge()
    deployment.wait_backfilled(*TABLES)
    deployment.source.execute("UPDATE items SET note = 'streamed' WHERE id <= 50")
    deployment.assert_published(*TABLES)
    deployment.bridge.stop()


@pytest.fixture
def items(database: Database, deploy: Deploy) -> Deployment:
    """Published and stopped."""
    populate(database)
    deployment = deploy()
    publish_and_stop(deployment)
    return deployment


def change_unseen(deployment: Deployment) -> None:
    """Rows come, change and go, and no slot sees it."""
    deployment.source.execute(
        "DELETE FROM items WHERE id <= 20; INSERT INTO items VALUES (1000, 'unseen');"
        "UPDATE items SET note = 'unseen' WHERE id = 30"
    )


def another_client(*_: object) -> None:
    """Each cost the start a twentieth of a second."""
    raise AssertionError("a session has one admin client")


def resume(deployment: Deployment, *, on_gap: str = "fail") -> tuple[Progress, list[Demand]]:
    """What a start of the bridge decides, without the start; all that it asks the brokers, through one admin client."""
    deployment.settings["source"]["on_gap"] = on_gap
    deployment.write()
    config = load(deployment.config, {})
    options = {"bootstrap.servers": deployment.bootstrap, "transactional.id": f"cdc-{deployment.name}"}
    Producer(options).init_transactions(30)  # what a killed bridge left open hides the end of a topic
    topics = {deployment.topic(table): [table] for table in TABLES} | {schemas_topic(config.name): list(TABLES)}
    admin = BrokerAdmin(config.kafka.client_options())
    with (
        connect(config.source.connection(), application_name="cdc test") as sql,
        pytest.MonkeyPatch.context() as patched,
    ):
        patched.setattr(BrokerAdmin, "__init__", another_client)
        resumption = Resumption(config, admin, sql)
        resumption.refuse()
        tables = [each for each in find_tables(sql, ["public.*"], (), {}) if each.qualified_name in TABLES]
        return resumption.resume(topics, memberships(sql, config.source.publication, tables), threading.Event())


def gap(deployment: Deployment, kind: type[GapError]) -> GapError:
    """What a start of the bridge refuses to go on from."""
    with pytest.raises(GapError) as caught:
        resume(deployment)
    assert type(caught.value) is kind
    return caught.value


def heal(deployment: Deployment, *tables: str) -> None:
    """Start with ``on_gap: rebackfill``, and see these tables and no others published again and equal."""
    deployment.settings["source"]["on_gap"] = "rebackfill"
    deployment.write()
    deployment.start_bridge()
    assert "closing a gap" in deployment.bridge.said()
    wait_healed(deployment, *tables)
    assert {table for table, each in deployment.backfills().items() if each.cause == "gap"} == set(tables)
    deployment.source.execute("UPDATE items SET note = 'streamed again' WHERE id > 290")
    deployment.assert_published(*TABLES)
    assert audit(deployment.records(*TABLES)) == []
    deployment.bridge.stop()
    resume(deployment)  # and nothing is left to say


def wait_healed(deployment: Deployment, *tables: str) -> None:
    def healed() -> bool:
        assert not deployment.bridge.ended, deployment.bridge.tail()
        found = deployment.backfills()
        return all(table in found and (found[table].cause, found[table].state) == ("gap", "done") for table in tables)

    eventually(healed, 60, deployment.bridge.tail)


def test_a_slot_that_is_gone(items: Deployment) -> None:
    items.source.execute("SELECT pg_drop_replication_slot(%s)", [items.slot()])
    change_unseen(items)
    items.bridge.start()
    said = items.bridge.refusal(REFUSED)
    assert f"replication slot '{items.slot()}' is gone" in said
    assert "changes since then may be missing" in said
    assert HEAL in said
    items.settings["source"]["on_gap"] = "rebackfill"
    items.write()
    items.bridge.start(crashpoint="bridge.before_kafka_commit")
    assert items.bridge.wait() == -signal.SIGKILL
    assert "was confirmed up to" in gap(items, SlotGap).message, "the slot is there again, and the gap still known"
    heal(items, *TABLES)
    assert items.backfills()["public.items"].swept == 20


def test_a_slot_that_was_made_anew_or_read_by_somebody_else(items: Deployment) -> None:
    items.source.execute("INSERT INTO items VALUES (2000, 'read by somebody else')")
    items.source.execute("SELECT pg_replication_slot_advance(%s, pg_current_wal_lsn())", [items.slot()])
    found = gap(items, SlotGap)
    assert f"replication slot '{items.slot()}' was confirmed up to" in found.message
    assert "it was recreated, or somebody else read from it" in found.message
    items.source.execute("SELECT pg_drop_replication_slot(%s)", [items.slot()])
    items.source.execute("SELECT pg_create_logical_replication_slot(%s, 'pgoutput')", [items.slot()])
    assert "it was recreated, or somebody else read from it" in gap(items, SlotGap).message
    heal(items, *TABLES)


@pytest.mark.pg(18)
def test_a_slot_that_the_server_gave_up_while_it_was_read(own_stack: OwnStack, kafka: Kafka, tmp_path: Path) -> None:
    server = own_stack.postgres(18, {"max_slot_wal_keep_size": "1MB", "wal_sender_timeout": "1h"})
    source = Database("postgres", server.dsn())
    populate(source)
    with deployed(source, kafka.bootstrap, source, tmp_path) as deployment:
        deployment.start_bridge()
        deployment.wait_backfilled(*TABLES)
        deployment.bridge.signal(signal.SIGSTOP)
        try:
            lost = "SELECT wal_status = 'lost' FROM pg_replication_slots WHERE slot_name = %s"

            def given_up() -> bool:
                for statement in ("DELETE FROM items WHERE id <= 20", "SELECT pg_switch_wal()", "CHECKPOINT"):
                    source.execute(statement)
                return source.execute(lost, [deployment.slot()]) == [(True,)]

            eventually(given_up)
        finally:
            deployment.bridge.signal(signal.SIGCONT)
        said = deployment.bridge.refusal(REFUSED)
        assert f"replication slot '{deployment.slot()}' is lost (wal_removed: " in said
        assert "max_slot_wal_keep_size" in said
        assert "the replication stream" in said, "the server's own words"
        assert HEAL in said
        assert "is lost (wal_removed: " in gap(deployment, SlotGap).message
        heal(deployment, *TABLES)


def test_another_server_or_database_never_overwrites_topics(
    items: Deployment, other_postgres: Postgres, postgres: Postgres
) -> None:
    own = items.settings["source"]["dsn"]
    for server, words in (
        (other_postgres, "published from another server: its system"),
        (postgres, "another database"),
    ):
        with fresh_database(server) as other:
            populate(other)
            items.settings["source"]["dsn"] = other.dsn
            with pytest.raises(GapError, match=words) as caught:
                resume(items)
            assert type(caught.value) is GapError
            assert "correct source.dsn" in caught.value.remedy
            items.settings["source"]["on_gap"] = "rebackfill"
            items.write()
            items.bridge.start()
            assert words in items.bridge.refusal(REFUSED)
            assert other.execute("SELECT count(*) FROM pg_publication") == [(0,)], "nothing was touched"
    items.settings["source"]["dsn"] = own
    resume(items)


@pytest.fixture
def admin(kafka: Kafka) -> BrokerAdmin:
    return BrokerAdmin({"bootstrap.servers": kafka.bootstrap})


def delete_topic(admin: BrokerAdmin, topic: str) -> None:
    admin.delete_topics([topic])[topic].result(30)
    eventually(lambda: topic not in admin.list_topics(timeout=10).topics)


def test_topics_that_lost_records_or_were_made_anew(items: Deployment, admin: BrokerAdmin) -> None:
    topic, other = items.topic("public.items"), items.topic("public.others")
    delete_records(items.bootstrap, topic)
    found = gap(items, TopicGap)
    assert f"topic '{topic}' lost records: partition 0 begins at offset" in found.message
    assert "publishes public.items again" in found.remedy
    delete_topic(admin, other)
    said = gap(items, GapError).message
    assert f"topic '{topic}' lost records" in said
    assert f"topic '{other}' is gone" in said
    delete_topic(admin, topic)
    items.bridge.start()
    said = items.bridge.refusal(REFUSED)
    assert f"topic '{topic}' was deleted and recreated" in said
    assert HEAL in said
    heal(items, *TABLES)


def test_a_topic_with_more_partitions_is_not_healed_by_a_backfill(items: Deployment, admin: BrokerAdmin) -> None:
    topic = items.topic("public.items")
    admin.create_partitions([NewPartitions(topic, 4)])[topic].result(30)
    eventually(lambda: len(admin.list_topics(topic, 10).topics[topic].partitions) == 4)
    items.settings["source"]["on_gap"] = "rebackfill"
    items.write()
    items.bridge.start()
    said = items.bridge.refusal(REFUSED)
    assert f"topic '{topic}' has 4 partitions now, but 3 when" in said
    assert f"--delete --topic {topic}" in said
    delete_topic(admin, topic)  # as the remedy says
    heal(items, "public.items")


def test_a_progress_that_was_forgotten(items: Deployment, admin: BrokerAdmin) -> None:
    topic = progress_topic(items.name)
    newest = newest_lsn(admin, look_at(admin, [items.topic("public.items")]))
    delete_records(items.bootstrap, topic)
    words = f"topic '{topic}' holds no progress, but topics hold records up to {newest}"
    assert words in gap(items, SlotGap).message
    delete_topic(admin, topic)
    change_unseen(items)
    found = gap(items, SlotGap)
    assert words in found.message
    assert HEAL in found.remedy
    items.close()  # its reader of the progress topic, too
    heal(items, *TABLES)


@pytest.fixture
def watched(kafka: Kafka, admin: BrokerAdmin) -> tuple[str, Callable[..., TopicWatch]]:
    """A topic, and watches that look at it all the time."""
    topic = f"{unique('watched')}.public.items"
    create_topic(admin, NewTopic(topic, 1))
    eventually(lambda: look_at(admin, [topic]))

    def watch(*, heals: bool, captured: Any = None, written: list[Any] | None = None) -> TopicWatch:
        config = Config.model_validate(
            {
                "name": "watched",
                "source": {"dsn": "host=127.0.0.1", "on_gap": "rebackfill" if heals else "fail"},
                "kafka": {"bootstrap": kafka.bootstrap},
            }
        )
        captured = captured or SimpleNamespace(topics={topic: ["public.items"]})
        recorded = look_at(admin, [topic])
        write = [] if written is None else written
        return TopicWatch(config, admin, captured, recorded, lambda *record: write.append(record), interval_s=0)

    return topic, watch


def test_a_table_that_joins_while_the_brokers_are_asked_has_not_lost_its_topic(
    watched: tuple[str, Callable[..., TopicWatch]], admin: BrokerAdmin
) -> None:
    """It was captured before, and gets its name back: the answer is about the topics of the others."""
    topic, watch = watched
    other, written = f"{unique('watched')}.public.others", list[Any]()
    create_topic(admin, NewTopic(other, 1))
    eventually(lambda: look_at(admin, [other]))
    captured = SimpleNamespace(topics={other: ["public.others"]})
    with closing(watch(heals=False, captured=captured, written=written)) as watching:
        watching.look()
        captured.topics = {topic: ["public.items"], other: ["public.others"]}

        def is_judged() -> bool:
            watching.look()
            return bool(written)

        eventually(is_judged)
        admin.delete_topics([topic])[topic].result(30)
        with pytest.raises(TopicGap, match=f"topic '{topic}'"):
            eventually(lambda: watching.look())


@pytest.mark.parametrize(("heals", "raised"), [(False, TopicGap), (True, TopicUnavailable)])
def test_a_topic_that_is_deleted_while_the_bridge_runs(
    watched: tuple[str, Callable[..., TopicWatch]], admin: BrokerAdmin, heals: bool, raised: type[CdcError]
) -> None:
    topic, watch = watched
    with closing(watch(heals=heals)) as watching:
        for _ in range(3):
            watching.look()
        admin.delete_topics([topic])[topic].result(30)
        with pytest.raises(raised, match=f"topic '{topic}'") as caught:
            eventually(lambda: watching.look())
        assert caught.value.retryable is heals
