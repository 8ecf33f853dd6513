"""A million rows with a hundred bad ones, half of them for the topic and half for the replica, under kills."""

from __future__ import annotations

import json
import os
import random
import signal
from typing import Final

import pytest

from tests.integration.bridge.test_quarantine import LARGE, SMALLEST, keys
from tests.support.deployment import Deploy, Deployment
from tests.support.servers import Database

COUNT: Final = int(os.environ.get("QUARANTINE_ROWS", "1000000"))
BAD: Final = 50
"""For the topic, which they are too large for; and as many for the replica, whose constraint they break."""
PART: Final = 5_000
KILLS: Final = 12


def insert(database: Database, first: int, large: set[int], negative: set[int]) -> None:
    """A part of the rows, in one source transaction."""
    last = first + PART - 1
    database.execute(f"INSERT INTO orders SELECT n, n, 'x' FROM generate_series({first}, {last}) n")
    for of, value in (large, f"note = {LARGE}"), (negative, "v = -1"):
        if chosen := sorted(each for each in of if first <= each <= last):
            database.execute(f"UPDATE orders SET {value} WHERE id = ANY(ARRAY{chosen})")


def assert_lacking(deployment: Deployment, large: set[int], negative: set[int]) -> None:
    """See that no key is silent: each row is in topic and replica, or in the quarantine that names it."""
    deployment.wait_mirrored(timeout_s=600)
    assert keys(deployment) == sorted(large)
    kept = deployment.replica.execute("SELECT key FROM cdc.quarantined_row")
    assert sorted(json.loads(key)["id"] for (key,) in kept) == sorted(negative)
    query = "SELECT count(*), sum(hashtextextended(orders::text, 0)) FROM orders"
    (wanted,) = deployment.source.execute(f"{query} WHERE id <> ALL(ARRAY{sorted(large | negative)})")
    assert deployment.replica.execute(query) == [wanted], deployment.sink.tail()


@pytest.mark.long
def test_no_key_is_silent(database: Database, deploy: Deploy) -> None:
    chance = random.Random(int(os.environ.get("SEED", "7")))
    bad = chance.sample(range(1, COUNT + 1), 2 * BAD)
    large, negative = set(bad[:BAD]), set(bad[BAD:])
    database.execute(
        "CREATE TABLE orders (id int PRIMARY KEY, v int, note text); CREATE TABLE plain (id int PRIMARY KEY)"
    )
    deployment = deploy(
        source={"quarantine": {"public.orders": {"budget": BAD}}},
        sink={"quarantine": {"public.orders": {"budget": BAD}}},
        topics={"partitions": 4, "max_message_bytes": SMALLEST},
    )
    deployment.replica.execute("CREATE TABLE orders (id int PRIMARY KEY, v int CHECK (v >= 0), note text)")
    deployment.start()
    firsts = range(1, COUNT + 1, PART)
    kills = set(chance.sample(range(len(firsts)), min(KILLS, len(firsts))))
    for number, first in enumerate(firsts):
        insert(database, first, large, negative)
        database.execute(f"INSERT INTO plain VALUES ({number})")
        if number in kills:
            process = chance.choice([deployment.bridge, deployment.sink])
            process.signal(signal.SIGKILL)
            assert process.wait() == -signal.SIGKILL
            process.start()
    assert_lacking(deployment, large, negative)
    deployment.assert_equal("public.plain")
    database.execute("UPDATE orders SET v = 0, note = 'mended' WHERE v < 0 OR length(note) > 1")
    deployment.assert_equal("public.orders", "public.plain")
    assert keys(deployment) == []
    assert deployment.replica.execute("SELECT count(*) FROM cdc.quarantined_row") == [(0,)]
    deployment.stop()
