"""The row as it was: answers compared with states that the test kept itself, from records and from the command."""

from __future__ import annotations

import json
import os
import random
import sys
from collections.abc import Iterator
from datetime import datetime

import pytest
from typer.testing import CliRunner, Result

from cdc.base.errors import CdcError, TopicRefused
from cdc.base.lsn import LSN
from cdc.cli.cli import app
from cdc.contract.naming import history_topic, schemas_topic
from cdc.contract.partition import partition_of
from cdc.kafka.brokers import BrokerAdmin
from cdc.kafka.replay.definitions import read_definitions
from cdc.topics.history.scan import KeyScan
from cdc.topics.history.trail import Moment, Row, row_at
from tests.integration.topics.history.reading import assert_history, history_of
from tests.support.deployment import Deploy, Deployment

KEYS = range(1, 7)
UNTOUCHED = 50
ROUNDS = 40

State = dict[int, Row]


class Told:
    """Two tables under random changes, and what they held after each of them."""

    def __init__(self, deployment: Deployment, seed: int) -> None:
        self.deployment = deployment
        self.log: list[tuple[LSN, datetime, State]] = []
        self._random = random.Random(seed)

    def change(self, table: str, *, may_truncate: bool = True) -> None:
        """Change something, and write down what is there."""
        with self.deployment.source.connect() as connection:
            with connection.transaction(force_rollback=self._random.random() < 0.15):
                for _ in range(self._random.randint(1, 3)):
                    connection.execute(self._statement(table, may_truncate).encode())
            self.look(table)

    def look(self, table: str) -> None:
        """Write down what is there."""
        with self.deployment.source.connect() as connection:
            rows = connection.execute(f"SELECT id, n, note FROM {table}".encode()).fetchall()
            now = connection.execute("SELECT pg_current_wal_flush_lsn()::text, clock_timestamp()").fetchone()
        assert now is not None
        state: State = {
            row[0]: {"id": str(row[0]), "n": str(row[1]), "note": json.dumps(row[2], ensure_ascii=False)}
            for row in rows
        }
        self.log.append((LSN.parse(now[0]), now[1], state))

    def _statement(self, table: str, may_truncate: bool) -> str:
        key, other, n = self._random.choice(KEYS), self._random.choice(KEYS), self._random.randrange(1000)
        upsert = f"INSERT INTO {table} VALUES ({key}, {n}, 'x{n}') ON CONFLICT (id) DO UPDATE SET n = excluded.n"
        move = (
            f"UPDATE {table} SET id = {other} WHERE id = {key} AND NOT EXISTS (SELECT FROM {table} WHERE id = {other})"
        )
        delete = f"DELETE FROM {table} WHERE id = {key}"
        truncate = f"TRUNCATE {table}; INSERT INTO {table} VALUES ({UNTOUCHED}, 0, 'again')"
        return self._random.choices((upsert, move, delete, truncate), weights=(10, 4, 3, 0.4 * may_truncate))[0]


@pytest.fixture(params=["DEFAULT", "FULL"])
def told(deploy: Deploy, request: pytest.FixtureRequest) -> Iterator[Told]:
    """A table with rows from before the bridge, changed at random beside its backfill and afterwards."""
    deployment = deploy(topics={"history": ["public.told"]})
    deployment.source.execute("CREATE TABLE told (id integer PRIMARY KEY, n integer, note text)")
    deployment.source.execute(f"ALTER TABLE told REPLICA IDENTITY {request.param}")
    deployment.source.execute(f"INSERT INTO told SELECT i, 0, 'é' FROM unnest(ARRAY[1, 2, 3, {UNTOUCHED}]) i")
    seed = int(os.environ.get("SEED", random.randrange(10**6)))
    sys.stdout.write(f"replay with: SEED={seed}\n")
    made = Told(deployment, seed)
    deployment.start_bridge()
    for _ in range(5):
        made.change("told", may_truncate=False)  # which leaves no trace of rows that the backfill had not read yet
    deployment.wait_backfilled("public.told")
    for _ in range(ROUNDS):
        made.change("told")
    assert_history(deployment, "public.told")
    yield made
    deployment.bridge.stop()


def scans(deployment: Deployment) -> Iterator[tuple[int, KeyScan]]:
    topic = deployment.topic("public.told")
    for number in (*KEYS, UNTOUCHED, 99):
        key = b'{"id":%d}' % number
        yield (
            number,
            KeyScan(BrokerAdmin({"bootstrap.servers": deployment.bootstrap}), topic, history_topic(topic), key),
        )


def test_the_row_at_every_moment(told: Told) -> None:
    deployment = told.deployment
    schemas = read_definitions(BrokerAdmin({"bootstrap.servers": deployment.bootstrap}), schemas_topic(deployment.name))
    answered, refused = 0, set()
    for number, scan in scans(deployment):
        trail = scan.trail(schemas)
        for lsn, time, state in told.log:
            moments: list[Moment] = [lsn, time]
            for moment in moments:
                try:
                    then = row_at(trail, moment, lambda: scan.current(trail, schemas))
                except TopicRefused as error:
                    refused.add(error.message.partition(" 20")[0])
                    continue
                assert then.row == state.get(number), f"{number} at {moment}: {then.because}"
                answered += 1
    assert answered > ROUNDS * len(KEYS)
    # Only of what was before the first records, in the partition or of the key
    assert refused <= {"the history reaches back to", "the history does not hold the row from before"}


def test_a_key_lies_where_it_is_looked_for(told: Told) -> None:
    records = [*history_of(told.deployment, "public.told"), *told.deployment.records("public.told")]
    assert {each.partition for each in records} > {0}
    for each in records:
        assert each.key is not None
        assert partition_of(each.key, 3) == each.partition


def test_the_command(deploy: Deploy) -> None:
    deployment = deploy(topics={"history": ["public.o*"], "partitions": 1})
    for table in ("orders", "silent"):
        deployment.source.execute(f"CREATE TABLE {table} (id integer PRIMARY KEY, state text, price numeric)")
    deployment.start_bridge()
    deployment.source.execute("INSERT INTO orders VALUES (1, 'new', 1.10), (2, 'other', 0)")
    inserted = deployment.now()
    deployment.source.execute("UPDATE orders SET state = 'paid' WHERE id = 1")
    paid = deployment.now()
    deployment.source.execute("DELETE FROM orders WHERE id = 1")
    end = deployment.wait_published()

    def run(*words: str) -> Result:
        return CliRunner().invoke(app, ["history", *words, "-c", str(deployment.config)])

    shown = run("public.orders", "id=1")
    assert run("public.orders", "1").stdout == run("public.orders", "--key", "id=1").stdout == shown.stdout
    assert shown.exit_code == 0, shown.output
    kinds = [line.split()[2] for line in shown.stdout.splitlines() if line.startswith("2")]
    assert kinds == ["insert", "update", "delete"]
    assert '    state: "new" → "paid"' in shown.stdout
    assert "the history reaches back to" in shown.stderr
    lines = run("public.orders", "--key", '{"id":1}', "--json", "--since", str(inserted)).stdout.splitlines()
    assert [(each["op"], each["key"]) for each in map(json.loads, lines)] == [("u", {"id": 1}), ("d", {"id": 1})]
    assert json.loads(lines[0])["new"] == {"id": 1, "state": "paid", "price": "1.10"}
    then = json.loads(run("public.orders", "--key", "id=1", "--as-of", str(paid), "--json").stdout)
    assert then["row"] == {"id": 1, "state": "paid", "price": "1.10"}
    assert "no such row" in run("public.orders", "--key", "id=1", "--as-of", str(end)).stdout
    assert run("public.orders", "--key", "id=7").stdout == "no change of this key is on record\n"

    def refused(*words: str) -> CdcError:
        error = run(*words).exception
        assert isinstance(error, CdcError), error
        return error

    off = refused("public.silent", "--key", "id=1")
    assert "no history is kept for table public.silent" in off.message
    assert "add public.silent to topics.history" in off.remedy
    assert "nothing was published of table public.other" in refused("public.other", "--key", "id=1").message
    early = refused("public.orders", "--key", "id=1", "--as-of", "0/10")
    assert "reaches back to" in early.message
    assert early.exit_code == 3
    late = refused("public.orders", "--key", "id=1", "--as-of", str(LSN(end + 2**32)))
    assert (late.exit_code, "not yet to" in late.message) == (4, True)
    assert "future" in refused("public.orders", "--key", "id=1", "--as-of", "2999-01-01").message
    assert (
        "--as-of is one moment" in refused("public.orders", "--key", "id=1", "--as-of", "0/1", "--since", "0/1").message
    )
    deployment.bridge.stop()
