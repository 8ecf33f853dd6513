"""Plans on real topics: what is safe is done, the rest is refused; twice the same plan is nothing to do."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import yaml
from typer.testing import CliRunner, Result

from cdc.base.config import load
from cdc.cli.cli import app
from cdc.kafka.brokers import BrokerAdmin
from cdc.kafka.publish.topics import TopicAdmin, TopicSpecification, state_settings
from cdc.lab.stack import KafkaBroker
from cdc.topics.cluster import Cluster
from tests.integration.topics.looking import now_ms
from tests.support.topic_settings import set_topic
from tests.support.waiting import eventually
from tests.support.written_log import HOUR_MS, WrittenLog


def run(*arguments: object, answer: str | None = None) -> Result:
    return CliRunner().invoke(app, ["topics", *map(str, arguments)], input=answer)


def plan(broker: KafkaBroker, topic: str, *options: str) -> dict[str, bool]:
    """Safe or not, by setting."""
    shown = run("plan", topic, "-b", broker.bootstrap, "--json", *options)
    (found,) = json.loads(shown.stdout)["topics"]
    assert shown.exit_code == (1 if found["changes"] else 0), shown.output
    return {each["setting"]: each["safe"] for each in found["changes"]}


def setting(broker: KafkaBroker, topic: str, name: str) -> str:
    with Cluster({"bootstrap.servers": broker.bootstrap}) as cluster:
        return cluster.settings([topic])[topic][name]


def test_a_topic_of_another_program(cleaning: KafkaBroker) -> None:
    log = WrittenLog(cleaning.bootstrap, segment_ms=10_000)
    assert plan(cleaning, log.topic) == {"segment.ms": True, "max.compaction.lag.ms": True}

    refused = run("apply", log.topic, "-b", cleaning.bootstrap, answer="n\n")
    assert refused.exit_code == 1
    assert setting(cleaning, log.topic, "segment.ms") == "10000"

    made = run("apply", log.topic, "-b", cleaning.bootstrap, "--yes")
    assert made.exit_code == 0, made.output
    assert "2 changed" in made.output
    eventually(lambda: plan(cleaning, log.topic) == {})


@pytest.mark.parametrize(("keys", "safe"), [(["a", "b"], True), (["a", None], False)])
def test_records_without_a_key_forbid_compaction(cleaning: KafkaBroker, keys: list[Any], safe: bool) -> None:
    log = WrittenLog(cleaning.bootstrap, cleanup_policy="delete", max_compaction_lag_ms=86_400_000)
    log.append(keys, now_ms())

    assert plan(cleaning, log.topic) == {"cleanup.policy": False}  # nobody said that it holds state
    wish = ("--set", "cleanup.policy=compact")
    assert plan(cleaning, log.topic, *wish) == {"cleanup.policy": safe}
    made = run("apply", log.topic, "-b", cleaning.bootstrap, "--yes", *wish)

    assert made.exit_code == (0 if safe else 1)
    eventually(lambda: setting(cleaning, log.topic, "cleanup.policy") == ("compact" if safe else "delete"))
    if not safe:
        assert "1 record without a key would be dropped" in made.output


def test_a_wish_may_be_refused(cleaning: KafkaBroker) -> None:
    log = WrittenLog(cleaning.bootstrap, max_compaction_lag_ms=86_400_000)

    shown = run("apply", log.topic, "-b", cleaning.bootstrap, "--set", "delete.retention.ms=100", "--yes")

    assert shown.exit_code == 1
    assert "because a reader that is behind misses deletes" in shown.output
    assert setting(cleaning, log.topic, "delete.retention.ms") == "86400000"


def test_a_writer_whose_clock_is_ahead_is_not_stopped(cleaning: KafkaBroker) -> None:
    """``apply`` leaves the bound alone, for a broker refuses what is dated beyond it."""
    never = (1 << 63) - 1
    log = WrittenLog(
        cleaning.bootstrap, max_compaction_lag_ms=86_400_000, message_timestamp_after_max_ms=never
    )  # as brokers before Kafka 4.0 have it
    assert plan(cleaning, log.topic) == {"message.timestamp.after.max.ms": False}

    shown = run("apply", log.topic, "-b", cleaning.bootstrap, "--yes")

    assert shown.exit_code == 1
    assert "a writer whose clock is ahead by more would be refused" in shown.output
    assert setting(cleaning, log.topic, "message.timestamp.after.max.ms") == str(never)
    log.append(["a"], now_ms() + 2 * HOUR_MS)
    assert log.refusal(["a"], now_ms() + 2 * HOUR_MS) == ""
    log.set("message.timestamp.after.max.ms", HOUR_MS)
    eventually(lambda: "timestamp" in log.refusal(["a"], now_ms() + 2 * HOUR_MS).lower())


def test_topics_of_the_bridge_are_compared_with_its_configuration(cleaning: KafkaBroker, tmp_path: Path) -> None:
    file = tmp_path / "shop.yaml"
    content = {
        "name": f"plan{now_ms()}",
        "source": {"dsn": "host=nowhere dbname=shop"},
        "kafka": {"bootstrap": cleaning.bootstrap},
        "topics": {"partitions": 2},
    }
    file.write_text(yaml.safe_dump(content))
    config = load(file, {})
    topic = f"{config.name}.public.orders"
    TopicAdmin(BrokerAdmin({"bootstrap.servers": cleaning.bootstrap})).create_missing(
        [TopicSpecification(topic, 3, 1, state_settings(config.topics))]
    )
    set_topic(cleaning.bootstrap, topic, "segment.ms", "70000")

    shown = run("apply", "-c", file, "--yes")

    assert shown.exit_code == 1
    assert "to change: segment.ms 70000 → 3600000" in shown.output
    assert "refused: partitions 3 → 2" in shown.output
    eventually(lambda: setting(cleaning, topic, "segment.ms") == "3600000")
