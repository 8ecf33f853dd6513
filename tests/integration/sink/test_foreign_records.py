"""A record of another system, whose LSNs are ahead: its table is not exact, and the log says which record it is."""

from __future__ import annotations

import pytest

from cdc.contract.header import UPDATE, HeaderStamp
from cdc.lsn import LSN
from tests.support.deployment import Deploy
from tests.support.servers import Database
from tests.support.topic_damage import Damage
from tests.support.waiting import eventually


@pytest.mark.pg(16, matrix=False)
@pytest.mark.parametrize("delivery", ["transactional", pytest.param("idempotent", marks=pytest.mark.long)])
def test_a_table_that_holds_back_a_foreign_record_is_not_exact(
    database: Database, deploy: Deploy, delivery: str
) -> None:
    """It was held back for ever, and whatever the sink left out behind it, the replica said ``exact``."""
    for table in ("planted", "beside"):
        database.execute(f"CREATE TABLE {table} (id int PRIMARY KEY, note text)")
        database.execute(f"INSERT INTO {table} SELECT n, 'right' FROM generate_series(1, 10) n")
    deployment = deploy(topics={"partitions": 1})
    deployment.deliver(delivery)
    deployment.start()
    deployment.wait_backfilled()
    deployment.wait_mirrored()
    header = deployment.records("public.planted")[0].header.decode()
    schema = dict(each.split("=", 1) for each in header.split(";"))["schema"]
    damage = Damage(deployment)
    foreign = HeaderStamp(LSN(deployment.now() + (1 << 40)), 50_000_000, 1).header(UPDATE, 1, schema)
    damage.write("public.planted", b'{"id":3}', b'{"id":3,"note":"STAGING"}', header=foreign)
    damage.done()

    def states() -> dict[str, str]:
        database.execute("UPDATE beside SET note = clock_timestamp()::text WHERE id = 1")
        query = "SELECT topic, state FROM cdc.mirrored_table"
        return {topic.rpartition(".")[2]: state for topic, state in deployment.replica.execute(query)}

    wanted = {"planted": "catching_up", "beside": "exact"}
    eventually(lambda: states() == wanted, 60, lambda: f"{states()}\n{deployment.sink.tail()}")
    ((_, partition, offset),) = damage.places
    said = deployment.sink.tail()
    assert "a record lies beyond everything that the bridge has published" in said
    assert f"offset={offset}" in said or f'"offset": {offset}' in said or f'"offset":{offset}' in said, said
    assert deployment.replica.execute("SELECT note FROM planted WHERE id = 3") == [("right",)]
    assert partition == 0
    deployment.stop()
