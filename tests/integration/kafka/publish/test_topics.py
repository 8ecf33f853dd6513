"""Topics against a real broker: made as specified, and every difference found afterwards."""

from __future__ import annotations

import pytest

from cdc.base.config import TopicsConfig
from cdc.base.errors import TopicRefused, TopicUnavailable
from cdc.kafka.brokers import BrokerAdmin
from cdc.kafka.publish.topics import TopicAdmin, TopicSpecification, batches, bookkeeping_settings, state_settings
from cdc.lab.stack import Kafka
from cdc.lab.stack.embedded import free_port
from tests.support.names import unique

STATE = state_settings(TopicsConfig())


@pytest.fixture
def admin(kafka: Kafka) -> TopicAdmin:
    return TopicAdmin(BrokerAdmin({"bootstrap.servers": kafka.bootstrap}))


def name() -> str:
    return unique("topics.")


def test_what_was_created_shows_no_drift_and_is_created_once(admin: TopicAdmin) -> None:
    state = TopicSpecification(name(), 3, 1, STATE)
    bookkeeping = TopicSpecification(name(), 1, 1, bookkeeping_settings(TopicsConfig()))
    assert admin.create_missing([state, bookkeeping]) == [state.name, bookkeeping.name]
    assert admin.create_missing([state, bookkeeping]) == []
    assert admin.drift([state, bookkeeping]) == []
    assert admin.partitions()[state.name] == 3


@pytest.mark.parametrize(
    ("setting", "made", "is_fatal"),
    [
        ("cleanup.policy", "delete", True),
        ("cleanup.policy", "compact,delete", True),
        ("delete.retention.ms", "100", False),
        ("min.cleanable.dirty.ratio", "0.9", False),
    ],
)
def test_a_setting_that_differs_is_named_with_the_command(
    admin: TopicAdmin, setting: str, made: str, is_fatal: bool
) -> None:
    topic = name()
    admin.create_missing([TopicSpecification(topic, 1, 1, {**STATE, setting: made})])
    (drift,) = admin.drift([TopicSpecification(topic, 1, 1, STATE)])
    assert (drift.topic, drift.setting, drift.found, drift.is_fatal) == (topic, setting, made, is_fatal)
    assert f"--entity-name {topic} --add-config {setting}={STATE[setting]}" in drift.remedy


def test_another_partition_count_is_fatal(admin: TopicAdmin) -> None:
    topic = name()
    admin.create_missing([TopicSpecification(topic, 2, 1, STATE)])
    (drift,) = admin.drift([TopicSpecification(topic, 4, 1, STATE)])
    assert drift.is_fatal
    assert "topics.partitions to 2" in drift.remedy


def test_a_cluster_that_cannot_hold_the_copies_is_told(admin: TopicAdmin) -> None:
    with pytest.raises(TopicRefused, match="create topic") as caught:
        admin.create_missing([TopicSpecification(name(), 1, 3, STATE)])
    assert "`topics` section" in caught.value.remedy


def test_no_broker_is_worth_another_try(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("cdc.kafka.publish.topics.TIMEOUT_S", 1.0)
    with pytest.raises(TopicUnavailable) as caught:
        TopicAdmin(BrokerAdmin({"bootstrap.servers": f"127.0.0.1:{free_port()}"})).partitions()
    assert "kafka.bootstrap" in caught.value.remedy


def test_a_name_that_kafka_takes_for_another_is_refused_by_both_names(admin: TopicAdmin) -> None:
    taken = name()
    admin.create_missing([TopicSpecification(taken, 1, 1, STATE)])
    with pytest.raises(TopicRefused, match=f"create topic '{taken.replace('.', '_')}' beside '{taken}'") as caught:
        admin.create_missing([TopicSpecification(taken.replace(".", "_"), 1, 1, STATE)])
    assert "topics.names" in caught.value.remedy
    with pytest.raises(TopicRefused, match="cannot create topic"):
        admin.create_missing(
            [TopicSpecification(f"{taken}.x.y", 1, 1, STATE), TopicSpecification(f"{taken}.x_y", 1, 1, STATE)]
        )


def test_many_topics_are_made_with_requests_that_a_broker_takes() -> None:
    many = [TopicSpecification(f"t{number}", 4, 1, STATE) for number in range(2_000)]
    made = list(batches([*many, TopicSpecification("wide", 1_000, 1, STATE)]))
    assert [each for batch in made for each in batch][:2_000] == many
    assert len(made) > 4
    assert all(sum(1 + each.partitions + len(each.settings) for each in batch) < 10_000 for batch in made)
