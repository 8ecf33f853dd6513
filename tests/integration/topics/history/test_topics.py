"""The history topic itself: made as configured, watched for drift, named in checks and grants."""

from __future__ import annotations

import json

from confluent_kafka.admin import AdminClient, ConfigResource, NewTopic, ResourceType
from typer.testing import CliRunner

from cdc.base.errors import TopicRefused
from cdc.cli.cli import app
from cdc.contract.naming import history_topic
from tests.support.deployment import Deploy, Deployment
from tests.support.topic_settings import create_topic, set_topic

DAY_MS = 86_400_000


def described(deployment: Deployment, topic: str) -> dict[str, str]:
    resource = ConfigResource(ResourceType.TOPIC, topic)
    admin = AdminClient({"bootstrap.servers": deployment.bootstrap})
    entries = admin.describe_configs([resource])[resource].result(30)
    return {name: str(entry.value) for name, entry in entries.items()}


def prepared(deploy: Deploy) -> tuple[Deployment, str]:
    deployment = deploy(topics={"history": ["public.kept", "public.absent"], "history_retention_ms": DAY_MS})
    deployment.source.execute("CREATE TABLE kept (id integer PRIMARY KEY)")
    deployment.source.execute("CREATE TABLE other (id integer PRIMARY KEY)")
    return deployment, history_topic(deployment.topic("public.kept"))


def test_made_as_configured_and_watched_for_drift(deploy: Deploy) -> None:
    deployment, topic = prepared(deploy)
    deployment.start_bridge()
    topics = AdminClient({"bootstrap.servers": deployment.bootstrap}).list_topics(timeout=30).topics
    assert [name for name in topics if name.startswith(deployment.name) and name.endswith(".history")] == [topic]
    assert len(topics[topic].partitions) == len(topics[deployment.topic("public.kept")].partitions) == 3
    found = described(deployment, topic)
    assert (found["cleanup.policy"], found["retention.ms"]) == ("delete", str(DAY_MS))
    assert (found["retention.bytes"], found["segment.ms"]) == ("-1", str(DAY_MS // 10))
    assert found["max.message.bytes"] == str(2 * 16_777_216 + 65_536)
    deployment.bridge.stop()
    set_topic(deployment.bootstrap, topic, "retention.ms", "3600000")
    deployment.start_bridge()
    assert f"topic '{topic}' has retention.ms=3600000, wanted {DAY_MS}" in deployment.bridge.said()
    assert f"--add-config retention.ms={DAY_MS}" in deployment.bridge.said()
    deployment.bridge.stop()
    set_topic(deployment.bootstrap, topic, "cleanup.policy", "compact")
    deployment.bridge.start()
    assert f"topic '{topic}' has cleanup.policy=compact" in deployment.bridge.refusal(TopicRefused.exit_code)


def test_a_history_with_other_partitions_is_refused(deploy: Deploy) -> None:
    deployment, topic = prepared(deploy)
    admin = AdminClient({"bootstrap.servers": deployment.bootstrap})
    create_topic(admin, NewTopic(topic, 2, config={"cleanup.policy": "delete"}))
    deployment.bridge.start()
    assert f"topic '{topic}' has partitions=2, wanted 3" in deployment.bridge.refusal(TopicRefused.exit_code)


def test_one_that_begins_behind_a_published_table_says_so(deploy: Deploy) -> None:
    deployment, _ = prepared(deploy)
    wanted = deployment.settings["topics"].pop("history")
    deployment.write()
    deployment.start_bridge()
    deployment.wait_published()
    deployment.bridge.stop()
    deployment.settings["topics"]["history"] = wanted
    deployment.write()
    deployment.start_bridge()
    said = deployment.bridge.said()
    assert "history begins now" in said
    assert "cdc backfill public.kept" in said
    assert "cdc backfill public.other" not in said
    deployment.bridge.stop()


def test_check_and_grants_know_it(deploy: Deploy) -> None:
    deployment, topic = prepared(deploy)
    deployment.settings["topics"]["names"] = {"public.kept": f"{deployment.name}-kept"}
    deployment.write()
    topic = f"{deployment.name}-kept.history"
    shown = CliRunner().invoke(app, ["check", "-c", str(deployment.config), "--json"])
    findings = {each["subject"]: each for each in json.loads(shown.stdout)["findings"] if each["part"] == "kafka"}
    assert findings[f"topic {topic}"]["text"] == "will be created with 3 partitions"
    assert findings["topics.history"]["level"] == "WARN"
    assert "public.absent matches no captured table" in findings["topics.history"]["text"]
    printed = CliRunner().invoke(app, ["grants", "kafka", "-c", str(deployment.config)]).stdout
    bridge, _, sink = printed.partition("# What sink")
    assert f"--topic {topic}" in bridge
    assert topic not in sink
