"""Topics are made as they were asked for, and what differs is told."""

from __future__ import annotations

import re
from collections.abc import Iterable
from concurrent.futures import Future
from types import SimpleNamespace
from typing import Any

import pytest
from confluent_kafka import KafkaError, KafkaException
from confluent_kafka.admin import OffsetSpec

from cdc.base.config import TopicsConfig
from cdc.base.errors import CdcError, TopicRefused, TopicUnavailable
from cdc.kafka.publish import topics
from cdc.kafka.publish.topics import (
    Drift,
    TopicAdmin,
    TopicSpecification,
    batches,
    bookkeeping_settings,
    history_settings,
    state_settings,
)
from tests.unit.kafka.publish.in_memory import InMemory
from tests.world.kafka_clients import AdminClient

COMPACT = {"cleanup.policy": "compact"}


class Admin(AdminClient):
    """The model's admin client, as a ``BrokerAdmin``.

    Attributes:
        failures: by name of a topic, what creating or describing it says.
        leaderless: how many times metadata lacks a leader; afterwards broker 0 leads.
        offset_error: what the leaders say.
        requests: names of the topics that were created together.
    """

    def __init__(self, brokers: InMemory) -> None:
        super().__init__(brokers.options)
        self.options = brokers.options
        self.failures: dict[str, KafkaError] = {}
        self.leaderless = 0
        self.offset_error: KafkaError | None = None
        self.requests: list[list[str]] = []
        self.led: list[tuple[str, int]] = []

    def metadata(self, topic: str | None = None, *, timeout_s: float) -> Any:
        assert timeout_s > 0
        found = self.list_topics(topic, timeout_s)
        is_leaderless = self.requests and self.leaderless
        self.leaderless -= int(bool(is_leaderless))
        for each in found.topics.values():
            each.partitions[0].leader = -1 if is_leaderless else 0
        return found

    def create_topics(self, new_topics: Any, **options: Any) -> dict[str, Future[None]]:
        self.requests.append([each.topic for each in new_topics])
        return self._failed(super().create_topics(new_topics, **options), str)

    def describe_configs(self, resources: Any, **options: Any) -> dict[Any, Future[Any]]:
        return self._failed(super().describe_configs(resources, **options), lambda resource: resource.name)

    def offsets(self, places: Iterable[tuple[str, int]], spec: Any, *, timeout_s: float) -> dict[Any, Any]:
        assert timeout_s > 0
        assert spec is OffsetSpec.latest()  # type: ignore[no-untyped-call]  # the client gives it no types
        asked = list(places)
        self.led += asked
        return dict.fromkeys(asked, 0) | ({asked[-1]: self.offset_error} if self.offset_error else {})

    def _failed(self, answers: dict[Any, Future[Any]], name_of: Any) -> dict[Any, Future[Any]]:
        for each in answers:
            if (error := self.failures.get(name_of(each))) is not None:
                answers[each] = Future()
                answers[each].set_exception(KafkaException(error))
        return answers


@pytest.fixture
def admin(brokers: InMemory, monkeypatch: pytest.MonkeyPatch) -> Admin:
    def sleep(seconds: float) -> None:
        assert seconds > 0
        brokers.turns.now += seconds

    monkeypatch.setattr(topics, "time", SimpleNamespace(monotonic=brokers.monotonic, sleep=sleep))
    return Admin(brokers)


def of(admin: Admin) -> TopicAdmin:
    standing_in: Any = admin
    return TopicAdmin(standing_in)


def specification(name: str, partitions: int = 1, copies: int = 1, **settings: str) -> TopicSpecification:
    return TopicSpecification(
        name, partitions, copies, COMPACT | {key.replace("_", "."): value for key, value in settings.items()}
    )


class TestCreate:
    def test_a_missing_topic_is_made_as_it_was_asked_for(self, admin: Admin, brokers: InMemory) -> None:
        brokers.create("there", 5)
        wanted = [specification("there"), specification("a", 3, segment_ms="7"), specification("b")]
        assert of(admin).create_missing(wanted) == ["a", "b"]
        assert of(admin).partitions() == {"there": 5, "a": 3, "b": 1}
        assert brokers.cluster.topics["a"].settings == {"cleanup.policy": "compact", "segment.ms": "7"}
        assert admin.led == [("a", 0), ("a", 1), ("a", 2), ("b", 0)], "each leader was asked"
        assert admin.requests == [["a", "b"]]
        assert of(admin).create_missing(wanted) == []
        assert admin.requests == [["a", "b"]]

    def test_a_topic_that_another_process_made_meanwhile_is_fine(self, admin: Admin, brokers: InMemory) -> None:
        brokers.create("a")
        admin.metadata = _first_without("a", admin.metadata)  # type: ignore[method-assign]
        assert of(admin).create_missing([specification("a")]) == ["a"]

    def test_names_that_kafka_takes_for_equal_are_refused_before_anything_is_made(
        self, admin: Admin, brokers: InMemory
    ) -> None:
        brokers.create("s.a_b")
        for wanted, other in (
            ([specification("x"), specification("s.a.b")], "s.a_b"),
            ([specification("y.z"), specification("y_z")], "y"),
        ):
            with pytest.raises(TopicRefused, match="in topic names as equal") as caught:
                of(admin).create_missing(wanted)
            assert f"'{wanted[-1].name}'" in caught.value.message
            assert other in caught.value.message
            assert caught.value.remedy == (
                "give one of the two tables another topic under topics.names (for a new table, that costs nothing); "
                "or choose another `name`, if the other topic does not belong to this bridge"
            )
        assert admin.requests == []

    @pytest.mark.parametrize(
        ("code", "kind", "says"),
        [
            (KafkaError.TOPIC_AUTHORIZATION_FAILED, TopicRefused, "--operation Create"),
            (KafkaError.CLUSTER_AUTHORIZATION_FAILED, TopicRefused, "--topic a"),
            *(
                (code, TopicRefused, "^change the `topics` section of the configuration to what the cluster allows$")
                for code in (
                    KafkaError.INVALID_REPLICATION_FACTOR,
                    KafkaError.INVALID_CONFIG,
                    KafkaError.POLICY_VIOLATION,
                )
            ),
            (KafkaError._TIMED_OUT, TopicUnavailable, "^check that the brokers are up$"),
        ],
    )
    def test_a_topic_that_cannot_be_made_is_named(
        self, admin: Admin, code: int, kind: type[CdcError], says: str
    ) -> None:
        admin.failures["a"] = KafkaError(code)
        with pytest.raises(kind) as caught:
            of(admin).create_missing([specification("a")])
        assert "create topic 'a'" in caught.value.message
        assert re.search(says, caught.value.remedy)

    def test_more_copies_than_brokers_are_refused(self, admin: Admin) -> None:
        with pytest.raises(TopicRefused, match="There is one broker"):
            of(admin).create_missing([specification("a", copies=3)])

    def test_leaders_are_waited_for_up_to_a_minute(self, admin: Admin, brokers: InMemory) -> None:
        admin.leaderless = 20
        of(admin).create_missing([specification("a", 2)])
        assert admin.leaderless == 0
        admin.leaderless = 1_000_000
        began = brokers.turns.now
        with pytest.raises(TopicUnavailable, match="2, 'b' among them"):
            of(admin).create_missing([specification("c"), specification("b")])
        assert 60 < brokers.turns.now - began < 61

    def test_a_broker_that_does_not_lead_yet_is_told(self, admin: Admin) -> None:
        """A producer's first request would be refused for a moment, and not every producer keeps its order then."""
        admin.offset_error = KafkaError(KafkaError.NOT_LEADER_FOR_PARTITION)
        with pytest.raises(TopicUnavailable, match="partition 1 of the new topic 'a' has no leader"):
            of(admin).create_missing([specification("a", 2)])

    def test_many_topics_are_made_in_requests_that_a_controller_takes(self, admin: Admin) -> None:
        wanted = [specification(f"t{number}", 1_000) for number in range(9)]
        assert of(admin).create_missing(wanted) == [each.name for each in wanted]
        assert [len(each) for each in admin.requests] == [4, 4, 1]


def _first_without(topic: str, ask: Any) -> Any:
    """Metadata from before a topic was made, once."""
    answers: list[Any] = []

    def metadata(*args: Any, **named: Any) -> Any:
        found = ask(*args, **named)
        if not answers:
            answers.append(found)
            del found.topics[topic]
        return found

    return metadata


class TestBatches:
    def test_a_batch_is_filled_to_the_bound(self) -> None:
        one = specification("t", 998)  # with its topic and a setting, 1,000 records
        assert [len(each) for each in batches([one] * 11)] == [5, 5, 1]

    def test_a_record_more_begins_another(self) -> None:
        one, larger = specification("t", 998), specification("t", 999)
        assert [len(each) for each in batches([one] * 4 + [larger])] == [4, 1]
        assert [len(each) for each in batches([larger, one, one, one, one])] == [4, 1]

    def test_a_topic_beyond_the_bound_goes_alone(self) -> None:
        huge, small = specification("t", 10_000), specification("s", 1)
        assert [len(each) for each in batches([huge, small, huge])] == [1, 1, 1]
        assert list(batches([])) == []


class TestDrift:
    def test_only_what_differs_is_told(self, admin: Admin, brokers: InMemory) -> None:
        brokers.create("a", 2, cleanup_policy="compact", segment_ms="100", min_cleanable_dirty_ratio="0.50")
        wanted = [
            specification("a", 3, segment_ms="200", min_cleanable_dirty_ratio="0.5"),
            specification("missing"),
        ]
        found = of(admin).drift(wanted)
        assert found == [Drift("a", "segment.ms", "200", "100"), Drift("a", "partitions", "3", "2")]
        assert [each.is_fatal for each in found] == [False, True]
        assert found[0].remedy.endswith("--entity-name a --add-config segment.ms=200")
        assert "set topics.partitions to 2" in found[1].remedy
        assert of(admin).drift([specification("missing")]) == []

    def test_each_topic_is_looked_at(self, admin: Admin, brokers: InMemory) -> None:
        for name in ("a", "b", "c"):
            brokers.create(name, cleanup_policy="delete" if name < "c" else "compact")
        found = of(admin).drift([specification(name) for name in ("a", "b", "c")])
        assert [each.topic for each in found] == ["a", "b"]

    def test_another_cleanup_policy_is_fatal(self, admin: Admin, brokers: InMemory) -> None:
        brokers.create("a", cleanup_policy="delete")
        (found,) = of(admin).drift([specification("a")])
        assert (found.setting, found.wanted, found.found, found.is_fatal) == (
            "cleanup.policy",
            "compact",
            "delete",
            True,
        )

    def test_a_setting_that_the_brokers_do_not_know_differs(self, admin: Admin, brokers: InMemory) -> None:
        brokers.create("a", cleanup_policy="compact")
        assert of(admin).drift([specification("a", no_such="1")]) == [Drift("a", "no.such", "1", "?")]

    def test_who_may_not_look_is_told_the_right(self, admin: Admin, brokers: InMemory) -> None:
        brokers.create("a")
        admin.failures["a"] = KafkaError(KafkaError.TOPIC_AUTHORIZATION_FAILED)
        with pytest.raises(TopicRefused, match="not authorised to describe topic 'a'") as caught:
            of(admin).drift([specification("a")])
        assert "--operation DescribeConfigs" in caught.value.remedy


class TestSettings:
    TOPICS = TopicsConfig(
        min_compaction_lag_ms=1,
        max_compaction_lag_ms=700_000,
        delete_retention_ms=90_000_000,
        segment_ms=600_000,
        min_cleanable_dirty_ratio=0.25,
        min_insync_replicas=2,
        max_message_bytes=2_000_000,
        replication_factor=3,
    )

    def test_a_state_topic_is_compacted_as_configured(self) -> None:
        assert state_settings(self.TOPICS) == {
            "cleanup.policy": "compact",
            "min.compaction.lag.ms": "1",
            "max.compaction.lag.ms": "700000",
            "delete.retention.ms": "90000000",
            "segment.ms": "600000",
            "min.cleanable.dirty.ratio": "0.25",
            "min.insync.replicas": "2",
            "max.message.bytes": "2000000",
        }

    @pytest.mark.parametrize(
        ("retention_ms", "segment_ms"),
        [(-1, 604_800_000), (10 * 604_800_000 + 10, 604_800_000), (604_800_000, 60_480_000), (86_400_000, 8_640_000)],
    )
    def test_a_history_is_deleted_by_age_alone(self, retention_ms: int, segment_ms: int) -> None:
        configured = self.TOPICS.model_copy(update={"history_retention_ms": retention_ms})
        assert history_settings(configured) == {
            "cleanup.policy": "delete",
            "retention.ms": str(retention_ms),
            "retention.bytes": "-1",
            "segment.ms": str(segment_ms),
            "min.insync.replicas": "2",
            "max.message.bytes": str(2 * 2_000_000 + 65_536),
        }

    def test_bookkeeping_is_cleaned_early(self) -> None:
        assert bookkeeping_settings(self.TOPICS) == {
            "cleanup.policy": "compact",
            "segment.ms": "60000",
            "min.cleanable.dirty.ratio": "0.1",
            "min.insync.replicas": "2",
        }
