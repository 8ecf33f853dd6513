"""SIGKILL at each step of a bridge whose table is filtered: the topic holds SELECT … WHERE, also after another rule."""

from __future__ import annotations

import random
import signal

import pytest

from tests.integration.bridge.test_row_filters import fold, make_orders, wait_filtered
from tests.support.deployment import Deploy
from tests.support.sampling import sampled
from tests.support.servers import Database

_POINTS = (
    "bridge.before_kafka_commit:2",
    "bridge.before_kafka_commit:4",
    "bridge.after_kafka_commit:2",
    "bridge.after_confirm:3",
    "bridge.inside_begin_anew:1",
    "bridge.inside_begin_anew:2",
    "backfill.before_chunk_done:1",
)


def change(database: Database, chance: random.Random, count: int) -> None:
    """Rows enter and leave, get other keys and large values, come and go."""
    with database.connect() as connection:
        for _ in range(count):
            row, region = chance.randrange(1, 120), chance.choice(["'eu'", "'us'", "'asia'"])
            connection.execute(
                chance.choice(
                    [
                        f"UPDATE orders SET region = {region} WHERE id = {row}",
                        f"UPDATE orders SET note = note || 'x' WHERE id BETWEEN {row} AND {row + 9}",
                        f"UPDATE orders SET id = {chance.randrange(1000, 10**9)}, region = {region} WHERE id = {row}",
                        f"DELETE FROM orders WHERE id = {row}",
                        f"INSERT INTO orders VALUES ({row}, {region}, false, 'n', repeat('{row} ', 900))"
                        " ON CONFLICT DO NOTHING",
                    ]
                ).encode()
            )


@pytest.mark.parametrize("delivery", ["transactional", "idempotent"])
@pytest.mark.parametrize("point", sampled(_POINTS, (_POINTS[1], _POINTS[4], _POINTS[6])))
def test_bridge_killed_at(point: str, delivery: str, database: Database, deploy: Deploy) -> None:
    make_orders(database, "index")
    database.execute(
        "INSERT INTO orders SELECT n, (ARRAY['eu', 'us', 'asia'])[n % 3 + 1], false, 'a', repeat('x' || n, 1500) "
        "FROM generate_series(1, 120) n"
    )
    chance = random.Random(5)
    deployment = deploy(source={"rows": {"public.orders": "region <> 'us'"}}, topics={"partitions": 2})
    deployment.deliver(delivery)
    deployment.start()
    change(database, chance, 100)
    wait_filtered(deployment, "region <> 'us'")
    deployment.bridge.signal(signal.SIGKILL)
    deployment.bridge.wait()
    change(database, chance, 100)
    deployment.settings["source"]["rows"] = {"public.orders": "region <> 'asia'"}
    deployment.write()
    deployment.bridge.start(crashpoint=point)
    change(database, chance, 100)
    assert deployment.bridge.wait() == -signal.SIGKILL
    change(database, chance, 50)
    deployment.start_bridge()
    change(database, chance, 50)
    wait_filtered(deployment, "region <> 'asia'")
    assert {row["region"] for row in fold(deployment)} == {"eu", "us"}
    deployment.stop()
