"""A record of another system, whose LSNs are ahead: it is left out and named, and its table is not exact until mended.

What the bridge writes behind it in its partition is taken all the same.
"""

from __future__ import annotations

import re

import pytest

from cdc.base.lsn import LSN
from cdc.contract.header import UPDATE, HeaderStamp
from tests.support.deployment import Deploy, Deployment
from tests.support.servers import Database
from tests.support.topic_damage import Damage, assert_topic_is_table
from tests.support.waiting import eventually


class Shop:
    """A mirrored deployment, another system that writes into one of its topics, and what the replica says."""

    def __init__(self, source: Database, deployment: Deployment) -> None:
        self.source, self.deployment, self.damage = source, deployment, Damage(deployment)
        header = deployment.records("public.planted")[0].header.decode()
        self.schema = dict(each.split("=", 1) for each in header.split(";"))["schema"]
        self.rows = dict.fromkeys(range(1, 11), "right")

    def plant(self, *keys: int) -> None:
        """As a bridge of another database would write them, whose WAL is ahead."""
        for key in keys:
            stamp = HeaderStamp(LSN(self.deployment.now() + (1 << 40) + key), 50_000_000, 1)
            row = b'{"id":%d,"note":"STAGING"}' % key
            self.damage.write("public.planted", b'{"id":%d}' % key, row, header=stamp.header(UPDATE, 1, self.schema))
        self.damage.done()

    def states(self) -> dict[str, str]:
        self.source.execute("UPDATE beside SET note = clock_timestamp()::text WHERE id = 1")
        rows = self.deployment.replica.execute("SELECT topic, state FROM cdc.mirrored_table")
        return {topic.rpartition(".")[2]: state for topic, state in rows}

    def is_right(self) -> bool:
        self.states()
        return self.rows == dict(self.deployment.replica.execute("SELECT id, note FROM planted"))

    def said(self) -> str:
        return f"{self.states()}\n{self.deployment.replica.execute('TABLE planted')}\n{self.deployment.sink.tail()}"


def shop_of(database: Database, deploy: Deploy, delivery: str, *, partitions: int) -> Shop:
    """Two tables, published and mirrored."""
    for table in ("planted", "beside"):
        database.execute(f"CREATE TABLE {table} (id int PRIMARY KEY, note text)")
        database.execute(f"INSERT INTO {table} SELECT n, 'right' FROM generate_series(1, 10) n")
    deployment = deploy(topics={"partitions": partitions})
    deployment.deliver(delivery)
    deployment.start()
    deployment.wait_backfilled()
    deployment.wait_mirrored()
    return Shop(database, deployment)


@pytest.mark.pg(16, matrix=False)
@pytest.mark.parametrize("delivery", ["transactional", pytest.param("idempotent", marks=pytest.mark.long)])
def test_a_table_that_has_a_foreign_record_is_not_exact_and_goes_on(
    database: Database, deploy: Deploy, delivery: str
) -> None:
    """It was held back for ever, and with it all that came behind; or taken, with older ones that came with it."""
    shop, wanted = shop_of(database, deploy, delivery, partitions=1), {"planted": "catching_up", "beside": "exact"}
    deployment = shop.deployment

    shop.plant(3, 4)
    database.execute("UPDATE planted SET note = 'later' WHERE id = 5; DELETE FROM planted WHERE id = 6")
    eventually(lambda: shop.states() == wanted, 10, shop.said)
    shop.rows[5] = "later"
    del shop.rows[6]
    eventually(shop.is_right, 60, shop.said)
    offset, log = min(offset for _, _, offset in shop.damage.places), deployment.sink.said()
    assert "a record lies beyond everything that the bridge has published" in log
    assert re.search(rf'offset"?[=:] ?{offset}\b', log), log
    assert re.search(r'more"?[=:] ?1\b', log), log
    assert shop.states() == wanted
    # A sink that was killed meets them again
    deployment.sink.kill()
    shop.plant(7)
    database.execute("UPDATE planted SET note = 'while it was dead' WHERE id = 8")
    deployment.sink.start()
    shop.rows[8] = "while it was dead"
    eventually(shop.is_right, 60, shop.said)
    assert shop.states() == wanted
    # The bridge writes the keys again, as a repair asks it to
    database.execute("UPDATE planted SET note = 'mended' WHERE id IN (3, 4)")
    shop.rows |= {3: "mended", 4: "mended"}
    eventually(shop.is_right, 60, shop.said)
    assert shop.states() == wanted, "one of three is there"
    database.execute("DELETE FROM planted WHERE id = 7")
    eventually(lambda: set(shop.states().values()) == {"exact"}, 60, shop.said)
    deployment.wait_table_equal("public.planted")
    assert_topic_is_table(deployment, "public.planted")
    deployment.stop()


@pytest.mark.long
@pytest.mark.pg(16, matrix=False)
@pytest.mark.parametrize("delivery", ["transactional", "idempotent"])
def test_the_printed_remedy_makes_the_table_exact_again(database: Database, deploy: Deploy, delivery: str) -> None:
    shop = shop_of(database, deploy, delivery, partitions=2)
    deployment = shop.deployment
    shop.plant(3, 4, 5, 11)
    database.execute("DELETE FROM planted WHERE id = 5")
    del shop.rows[5]
    told = "The sink leaves it out. Its table is not exact"
    eventually(lambda: shop.is_right() and deployment.sink.said().count(told) == 2, 60, shop.said)
    assert "then run cdc reconcile --repair" in deployment.sink.said()
    options = ["--report", str(deployment.directory / "report")]
    assert "public.planted" in deployment.command("reconcile", "--repair", "--yes", *options)
    eventually(lambda: set(shop.states().values()) == {"exact"}, 60, shop.said)
    deployment.wait_table_equal("public.planted")
    assert_topic_is_table(deployment, "public.planted")
    deployment.command("reconcile", *options)
    deployment.stop()
