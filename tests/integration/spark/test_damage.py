"""Damage in topics, in each format and envelope: jobs refuse it, a reconciliation finds it and repairs it.

There is a deployment for each form. The tests here are its life, and Spark runs for as few of them as possible.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from contextlib import ExitStack
from datetime import UTC
from pathlib import Path
from typing import Any, Final

import pytest
from pyspark.sql import SparkSession

from cdc.contract.jobspec.deployment import KafkaSettings, SparkSettings
from cdc.contract.jobspec.health import HealthJob, HealthTopic
from cdc.contract.naming import schemas_topic, subject
from cdc.lab.proof.comparison import describe, difference, pinned, table_rows
from cdc.lab.stack import Kafka, Postgres, RegistryServer
from cdc.spark.errors import JobError, TopicUnreadable
from cdc.spark.health.main import check
from tests.integration.bridge.test_formats import be_compatible
from tests.integration.spark import accounts, mirrors
from tests.integration.spark.accounts import TOLD, Account, Accounts
from tests.integration.spark.snapshots import Snapshots
from tests.integration.spark.test_debezium import go_on_with_events
from tests.support.deployment import Deployment, deployed
from tests.support.reconciling import table_of
from tests.support.sampling import sampled
from tests.support.servers import fresh_database

pytestmark = [pytest.mark.timeout(900), pytest.mark.pg(16, matrix=False)]

ROWS: Final = ("avro", "protobuf", "json-schema")
EVENTS: Final = ("debezium", "debezium in avro")
SAMPLED: Final = sampled(TOLD, (ROWS[0], EVENTS[0]))
MODES: Final[dict[str, Any]] = {"time_precision_mode": "microseconds", "binary_handling_mode": "hex"}


@pytest.fixture(scope="module")
def damaged(
    request: pytest.FixtureRequest,
    spark: SparkSession,
    postgres: Postgres,
    other_postgres: Postgres,
    kafka: Kafka,
    registry: RegistryServer,
    tmp_path_factory: Any,
) -> Iterator[Accounts]:
    """A deployment with accounts in one form, whose topic was damaged after all was published."""
    form: str = request.param
    table, formats = accounts.table(form), accounts.formats((form,))
    sections: dict[str, dict[str, Any]] = {
        "topics": {"partitions": 2, "formats": formats},
        "registry": {"url": registry.url},
        "source": {"on_gap": "rebackfill"},
    }
    with ExitStack() as stack:
        source, replica = (stack.enter_context(fresh_database(each)) for each in (postgres, other_postgres))
        folder = tmp_path_factory.mktemp("accounts")
        deployment = stack.enter_context(deployed(source, kafka.bootstrap, replica, folder, sections))
        for each in formats:
            be_compatible(registry, subject(deployment.topic(each)), "NONE")
        execute(deployment, table, *accounts.BEGIN)
        deployment.start_bridge()
        deployment.wait_backfilled(*formats)
        if form in ROWS:
            go_on_with_rows(deployment, table)
        else:
            go_on_as_events(deployment, table)
        found = Accounts(deployment, {form: Account(deployment, form)}, folder)
        if form in EVENTS:  # a mirror has read all that was before the damage
            lake = mirrors.job_for(deployment, found.lake)
            mirrors.run(spark, lake)
            mirrors.assert_equal(deployment, lake, [table])
            assert errors(deployment, [table], spark) == []
        found.accounts[form].damage()
        yield found
        deployment.stop()


def execute(deployment: Deployment, table: str, *statements: str) -> None:
    for statement in statements:
        deployment.source.execute(statement.format(table, accounts.ROWS))


def go_on_with_rows(deployment: Deployment, table: str) -> None:
    """The replica stays as it was before the damage."""
    deployment.sink.start()
    execute(deployment, table, *accounts.GO_ON)
    deployment.wait_mirrored()
    deployment.sink.stop()


def go_on_as_events(deployment: Deployment, table: str) -> None:
    """The topic began with rows."""
    go_on_with_events(deployment, MODES, table)
    execute(deployment, table, *accounts.GO_ON)
    deployment.wait_published()


def errors(deployment: Deployment, tables: list[str], spark: SparkSession) -> list[str]:
    """What is wrong, according to ``cdc health``."""
    job = HealthJob(
        spark=SparkSettings(),
        kafka=KafkaSettings(options={"bootstrap.servers": deployment.bootstrap}),
        topics=tuple(HealthTopic(topic=deployment.topic(table)) for table in tables),
        schemas_topic=schemas_topic(deployment.name),
    )
    return [str(each) for topic in check(spark, job).topics for each in topic.findings if each.severity == "error"]


@pytest.mark.parametrize("damaged", SAMPLED, indirect=True)
def test_it_is_refused(damaged: Accounts, spark: SparkSession, tmp_path: Path) -> None:
    """By a snapshot and by a mirror, with its place."""
    (form,) = damaged.accounts
    # A snapshot shows the beginning of the text
    told = f"(?:{'|'.join(re.escape(each[:20]) for each in (*vars(TOLD[form]).values(), '(a change event'))})"
    table, deployment = accounts.table(form), damaged.deployment
    with pytest.raises(TopicUnreadable, match=told):
        Snapshots(spark, deployment, tmp_path).take(table)
    name = re.escape(deployment.topic(table))
    with pytest.raises(JobError, match=rf"topic {name}, partition .* key .*{told}"):
        mirrors.run(spark, mirrors.job_for(deployment, damaged.lake, [table]))


@pytest.mark.parametrize("damaged", SAMPLED, indirect=True)
def test_it_is_found_and_healed(damaged: Accounts) -> None:
    healed, (account,) = damaged.healed, damaged.accounts.values()
    found = table_of(healed.found, account.table)
    of_topic = [each for each in found.samples if each.side == "topic"]  # the replica's are the same keys
    told = {json.loads(each.key)["id"]: f"{each.cause} {each.other}" for each in of_topic}
    expected = account.expected()
    assert set(told) == set(expected), healed.said
    assert {number: told[number] for number, text in expected.items() if text not in told[number]} == {}
    counts, missing = found.counts, {12, 17} & set(expected)
    assert (counts.missing_in_topic, counts.extra_in_topic) == (len(missing), 2), healed.said
    assert counts.value_mismatch == len(expected) - len(missing) - 2, healed.said
    assert found.rounds[0].keys == len(expected)
    repair = table_of(healed.again, account.table).repair
    assert repair is not None
    assert repair.still_different == 0, healed.said


@pytest.mark.parametrize("damaged", ROWS[:1], indirect=True)
def test_a_replica_in_which_nothing_is_committed_is_not_compared_again(damaged: Accounts) -> None:
    """Its sink stands still."""
    said = damaged.healed.said
    assert said.count(": comparing the replica ") >= len(damaged.tables), said
    # Three more rounds each, but now and then the server commits statistics of its own
    assert said.count(", again\n") < 3 * len(damaged.tables), said


@pytest.mark.parametrize("damaged", sampled((ROWS[0], EVENTS[0]), (ROWS[0],)), indirect=True)
def test_what_is_healed_is_copied(damaged: Accounts, spark: SparkSession, tmp_path: Path) -> None:
    """Into a snapshot and into a lake."""
    deployment, tables = damaged.deployment, damaged.tables
    assert [each.counts.differences for each in damaged.healed.again.tables] == [0] * len(tables)
    _, frames = Snapshots(spark, deployment, tmp_path / "snapshots").take(*tables)
    for table in tables:
        rows = deployment.source.execute(f"SELECT id, balance, note, rate::text, day, at FROM {table} ORDER BY id")
        # pyspark returns timestamps in the machine's time zone, without naming it
        found = frames[table].select("id", "balance", "note", "rate", "day", "at").sort("id").collect()
        assert [(*row[:3], f"{row[3]}".replace("nan", "NaN"), row[4], row[5].astimezone(UTC)) for row in found] == rows
    lake = mirrors.job_for(deployment, tmp_path / "lake", tables)
    mirrors.run(spark, lake)
    with pinned(deployment.source.dsn) as source:
        for table in tables:
            shape = describe(source, table)
            expected = mirrors.typed(table_rows(source, shape), shape, lake)
            copy = mirrors.lake_rows(lake, deployment.topic(table), shape)
            assert difference("lake", expected, copy, shape) is None, table
