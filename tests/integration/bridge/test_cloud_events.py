"""Topics whose records have the headers of CloudEvents: what is there, and that all readers of ours go on as before."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, Final

import pytest
from confluent_kafka import Message, TopicPartition

from cdc.lab.proof.topic_side import open_consumer
from tests.support.deployment import Deploy, Deployment
from tests.support.servers import Database

_WAYS: Final[Mapping[str, Mapping[str, Any]]] = {
    "json": {},
    "history": {"topics": {"history": ["public.t"]}},
    "idempotent": {"delivery": "idempotent"},
    "debezium": {"topics": {"envelope": "debezium"}},
    "connect": {"values": {"documents": "string", "schemas": "connect"}},
}


def events(deployment: Deployment, topic: str) -> list[dict[str, str]]:
    """The headers of each committed record."""
    consumer = open_consumer(deployment.bootstrap)
    try:
        consumer.assign([TopicPartition(topic, 0, 0)])
        messages: list[Message] = []
        while not messages or messages[-1].error() is None:
            messages += consumer.consume(1, 10)
    finally:
        consumer.close()
    found: list[dict[str, Any]] = [dict(each.headers() or ()) for each in messages[:-1]]
    return [{name: text.decode() for name, text in each.items()} for each in found]


@pytest.mark.parametrize("way", _WAYS)
def test_each_record_is_an_event(deploy: Deploy, database: Database, way: str) -> None:
    database.execute("CREATE TABLE t (id integer PRIMARY KEY, a text)")
    database.execute("INSERT INTO t VALUES (1, 'x')")
    chosen = dict(_WAYS[way])
    topics = {"partitions": 1, "cloudevents": True, **chosen.pop("topics", {})}
    delivery = chosen.pop("delivery", "transactional")
    deployment = deploy(topics=topics, **chosen)
    deployment.deliver(delivery)
    deployment.start()
    deployment.wait_backfilled("public.t")
    database.execute("INSERT INTO t VALUES (2, 'y')")
    database.execute("UPDATE t SET a = 'z', id = 3 WHERE id = 2")
    database.execute("DELETE FROM t WHERE id = 3")
    database.execute("TRUNCATE t")
    deployment.assert_equal("public.t")
    found = events(deployment, deployment.topic("public.t"))
    assert [next(iter(each)) for each in found] == ["cdc"] * len(found)
    assert len({each["ce_id"] for each in found}) == len(found)
    assert {each["ce_source"] for each in found} == {f"/{deployment.name}/{deployment.topic('public.t')}"}
    assert {each.get("content-type") for each in found} == {"application/json", None}
    kinds = [(json.loads(each["ce_subject"])["id"], each["ce_type"].removeprefix("cdc.")) for each in found]
    twice = 2 if way == "debezium" else 1  # a delete is an event and a null value
    assert kinds == [
        (1, "backfill"),
        (2, "insert"),
        *[(2, "delete")] * twice,
        (3, "insert" if way == "debezium" else "update"),
        *[(3, "delete")] * twice,
        *[(1, "truncate")] * twice,
    ]
    if way == "history":
        assert {*events(deployment, deployment.topic("public.t") + ".history")[0]} == {"cdc"}
