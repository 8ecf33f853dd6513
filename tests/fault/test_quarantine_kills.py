"""SIGKILL at each step of a bridge that puts rows aside: topic and quarantine together are the table."""

from __future__ import annotations

import random
import signal

import pytest

from tests.integration.bridge.test_quarantine import LARGE, MAKE, assert_aside, orders
from tests.support.deployment import Deploy
from tests.support.sampling import sampled
from tests.support.servers import Database

_POINTS = (
    "bridge.before_kafka_commit:2",
    "bridge.before_kafka_commit:4",
    "bridge.after_kafka_commit:2",
    "bridge.after_kafka_commit:4",
    "bridge.after_confirm:3",
    "backfill.before_chunk_done:1",
)


def change(database: Database, chance: random.Random, count: int) -> None:
    """Rows become bad and good again, get other keys, come and go."""
    with database.connect() as connection:
        for _ in range(count):
            row = chance.randrange(1, 30)
            note = LARGE if chance.random() < 0.4 else f"'{chance.randrange(1000)}'"
            connection.execute(
                chance.choice(
                    [
                        f"UPDATE orders SET note = {note} WHERE id = {row}",
                        f"UPDATE orders SET id = {chance.randrange(1000, 10**9)}, note = {note} WHERE id = {row}",
                        f"DELETE FROM orders WHERE id = {row}",
                        f"INSERT INTO orders VALUES ({row}, {note}) ON CONFLICT DO NOTHING",
                    ]
                ).encode()
            )


@pytest.mark.parametrize("delivery", ["transactional", "idempotent"])
@pytest.mark.parametrize("point", sampled(_POINTS, (_POINTS[1], _POINTS[3], _POINTS[5])))
def test_bridge_killed_at(point: str, delivery: str, database: Database, deploy: Deploy) -> None:
    database.execute(MAKE)
    database.execute(
        f"INSERT INTO orders SELECT n, CASE WHEN n % 7 = 0 THEN {LARGE} ELSE 'a' END FROM generate_series(1, 30) n"
    )
    chance = random.Random(7)
    deployment = orders(deploy, budget=1_000, delivery=delivery)
    deployment.bridge.start(crashpoint=point)
    if point.startswith("bridge"):
        deployment.bridge.wait_said("streaming")
        change(database, chance, 25)
    assert deployment.bridge.wait() == -signal.SIGKILL
    change(database, chance, 25)
    deployment.start_bridge()
    change(database, chance, 25)
    deployment.wait_backfilled()
    bad = [row[0] for row in database.execute("SELECT id FROM orders WHERE length(note) > 1000000")]
    assert len(bad) > 3
    assert_aside(deployment, *bad)
    database.execute("UPDATE orders SET note = 'mended' WHERE length(note) > 1000000")
    assert_aside(deployment)
    deployment.assert_published("public.orders", "public.plain")
    deployment.stop()
