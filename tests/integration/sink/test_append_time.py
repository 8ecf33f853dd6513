"""Topics whose records have the time at which the broker took them, as some companies set for all topics."""

from __future__ import annotations

from pathlib import Path

from confluent_kafka import TIMESTAMP_LOG_APPEND_TIME, TopicPartition

from cdc.lab.proof.topic_side import open_consumer
from cdc.lab.stack import KafkaBroker
from tests.support.deployment import deployed
from tests.support.servers import Database


def test_records_may_have_the_time_of_the_broker(database: Database, replica: Database, tmp_path: Path) -> None:
    database.execute("create table items (id integer primary key, note text)")
    database.execute("insert into items select i, 'old' from generate_series(1, 50) i")
    settings = {"log.message.timestamp.type": "LogAppendTime"}
    with (
        KafkaBroker.open(settings=settings, heap_mb=512, quick_start=True) as broker,
        deployed(database, broker.bootstrap, replica, tmp_path, {"topics": {"partitions": 1}}) as live,
    ):
        live.start()
        live.wait_backfilled()
        database.execute("update items set note = 'new' where id > 10")
        database.execute("delete from items where id > 40")
        live.assert_equal("public.items")
        consumer = open_consumer(broker.bootstrap)
        consumer.assign([TopicPartition(live.topic("public.items"), 0, 0)])
        kinds = {message.timestamp()[0] for message in consumer.consume(50, 30)}
        consumer.close()
        assert kinds == {TIMESTAMP_LOG_APPEND_TIME}
        live.stop()
