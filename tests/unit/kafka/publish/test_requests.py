"""A person's request either is in the progress topic, whole, or the command says why not and nothing arrives later."""

from __future__ import annotations

import re

import pytest
from confluent_kafka import KafkaError

from cdc.base.errors import CdcError, TopicRefused, TopicUnavailable
from cdc.contract.backfill import request_key, request_value
from cdc.contract.record import BackfillRequest, RepairKey, RepairRequest
from cdc.contract.repair import repair_request_key, repair_request_value
from cdc.kafka.publish.requests import withdraw_repair, withdraw_request, write_repair, write_request
from tests.unit.kafka.publish.in_memory import InMemory

BACKFILL = BackfillRequest("r1", "start", ("public.t",), None, 5, sweep=True)
REPAIRS = [RepairRequest("r2", part, "public.t", (RepairKey(b"%d" % part),)) for part in range(4)]


def test_a_request_is_a_record_of_the_first_partition_until_it_is_withdrawn(brokers: InMemory) -> None:
    brokers.create("p", 2)
    write_request(brokers.options, "p", BACKFILL)
    assert brokers.records("p") == [(request_key("r1"), request_value(BACKFILL))]
    withdraw_request(brokers.options, "p", "r1")
    assert brokers.records("p")[1:] == [(request_key("r1"), None)]


def test_each_part_of_a_repair_is_a_record(brokers: InMemory) -> None:
    brokers.create("p")
    write_repair(brokers.options, "p", REPAIRS)
    assert brokers.records("p") == [
        (repair_request_key("r2", each.part), repair_request_value(each)) for each in REPAIRS
    ]
    withdraw_repair(brokers.options, "p", "r2", [1, 3])
    assert brokers.records("p")[4:] == [(repair_request_key("r2", part), None) for part in (1, 3)]


def test_the_first_part_goes_alone(brokers: InMemory) -> None:
    """A broker that refuses it for a moment, and takes the next one, would skip it."""
    brokers.create("p")
    brokers.cluster.faults.late_leaders = 1.0
    write_repair(brokers.options, "p", REPAIRS)
    assert len(brokers.records("p")) == len(REPAIRS)


def test_without_a_topic_the_bridge_is_to_be_started(brokers: InMemory) -> None:
    with pytest.raises(TopicRefused, match="topic 'p' does not exist") as caught:
        write_request(brokers.options, "p", BACKFILL)
    assert "cdc run" in caught.value.remedy


@pytest.mark.parametrize("parts", [1, 4])
def test_a_request_that_no_broker_takes_in_time_never_arrives(brokers: InMemory, parts: int) -> None:
    brokers.create("p")
    brokers.cluster.is_silent = True
    began = brokers.turns.now
    with pytest.raises(TopicUnavailable, match="cannot write the request to topic 'p'"):
        write_repair(brokers.options, "p", REPAIRS[:parts])
    assert 20 <= brokers.turns.now - began < 25
    brokers.cluster.is_silent = False
    assert brokers.records("p") == []


def test_brokers_that_refuse_the_connection_are_not_waited_for(
    brokers: InMemory, monkeypatch: pytest.MonkeyPatch
) -> None:
    brokers.create("p")
    brokers.cluster.is_silent = True
    monkeypatch.setattr(
        "tests.world.kafka.Session.lose_brokers",
        lambda session: session.events.append(KafkaError(KafkaError._AUTHENTICATION, "wrong password")),
    )
    brokers.cluster.is_away = True
    began = brokers.turns.now
    with pytest.raises(TopicRefused, match="wrong password"):
        write_request(brokers.options, "p", BACKFILL)
    assert brokers.turns.now - began < 5


@pytest.mark.parametrize(
    ("code", "kind", "says"),
    [
        (KafkaError.TOPIC_AUTHORIZATION_FAILED, TopicRefused, "--operation Write --operation Describe --topic p"),
        (KafkaError._UNKNOWN_TOPIC, TopicRefused, "^start the bridge \\(cdc run\\), which creates it$"),
        (KafkaError.UNKNOWN_TOPIC_OR_PART, TopicRefused, "^start the bridge \\(cdc run\\), which creates it$"),
        (
            KafkaError._TRANSPORT,
            TopicUnavailable,
            "^check that the broker is up and kafka.bootstrap is right, then ask again$",
        ),
    ],
)
def test_what_kafka_refuses_says_what_to_do(brokers: InMemory, code: int, kind: type[CdcError], says: str) -> None:
    brokers.create("p")
    brokers.fail("produce", KafkaError(code))
    with pytest.raises(kind) as caught:
        write_request(brokers.options, "p", BACKFILL)
    assert re.search(says, caught.value.remedy)
    assert "'p'" in caught.value.message
    assert brokers.records("p") == []


def test_what_the_configuration_says_about_reports_does_not_hide_the_outcome(brokers: InMemory) -> None:
    brokers.create("p")
    options = {**brokers.options, "delivery.report.only.error": True, "message.timeout.ms": 1}
    write_request(options, "p", BACKFILL)
    assert len(brokers.records("p")) == 1
    assert brokers.made[0]["acks"] == "all"
    assert brokers.made[0]["enable.idempotence"] is True
