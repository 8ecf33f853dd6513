"""Rows of a bridge that stood still: the active bridge publishes their keys again."""

from __future__ import annotations

from structlog.testing import capture_logs

from cdc.base.config.load import load
from cdc.bridge.late_rows import ask_again
from tests.support.deployment import Deploy
from tests.support.servers import Database
from tests.support.topic_damage import Damage, assert_topic_is_table
from tests.support.waiting import eventually

TABLE = "public.items"


def test_keys_with_old_rows_behind_newer_ones_are_published_again(database: Database, deploy: Deploy) -> None:
    """Of one row the newest version, and a tombstone of one that is deleted: right for whoever reads only the last."""
    database.execute("CREATE TABLE items (id integer PRIMARY KEY, n integer)")
    database.execute("INSERT INTO items SELECT i, 1 FROM generate_series(1, 20) i")
    deployment = deploy()
    deployment.deliver("idempotent")
    deployment.start_bridge()
    deployment.wait_backfilled(TABLE)
    database.execute("UPDATE items SET n = 2 WHERE id = 1; DELETE FROM items WHERE id = 2")
    deployment.wait_published()
    first = {each.key: each for each in reversed(deployment.records(TABLE))}
    late = Damage(deployment)
    for key in (b'{"id":1}', b'{"id":2}'):
        late.write(TABLE, key, first[key].value, header=first[key].header)
    late.done()
    topic = deployment.topic(TABLE)
    with capture_logs() as said:
        ask_again(
            load(deployment.config, {}),
            {topic: [TABLE]},
            {topic: {b'{"id":1}', b'{"id":2}'}, "of a table that is not captured any more": {b"1"}},
        )
    assert [each["event"] for each in said if "asked to publish" in each["event"]]
    eventually(lambda: len(deployment.records(TABLE)) == 26, message=deployment.bridge.tail)
    assert_topic_is_table(deployment, TABLE)
