"""A plan changes what is safe, and says why it refuses the rest."""

from __future__ import annotations

import pytest

from cdc.base.errors import ConfigError
from cdc.contract.compaction import SETTING_RULES
from cdc.topics.lint import Subject, lint
from cdc.topics.plan import TopicStanding, changes, check_wishes, general_settings

HOUR = 3_600_000
FOUND = {
    "cleanup.policy": "compact",
    "delete.retention.ms": str(24 * HOUR),
    "max.compaction.lag.ms": str(24 * HOUR),
    "max.message.bytes": "1048588",
    "message.timestamp.after.max.ms": str(HOUR),
    "min.cleanable.dirty.ratio": "0.5",
    "min.insync.replicas": "2",
    "partitions": "4",
    "retention.bytes": "-1",
    "retention.ms": str(24 * HOUR),
    "segment.ms": str(HOUR),
    "unclean.leader.election.enable": "false",
}


def planned(
    setting: str, wanted: str, *, found: str | None = None, keyless: int | None = None
) -> list[tuple[bool, str]]:
    settings = {**FOUND, **({} if found is None else {setting: found})}
    made = changes(TopicStanding("t", settings, 3, keyless, is_state=True), {setting: wanted})
    return [(each.is_safe, each.refusal) for each in made]


@pytest.mark.parametrize(
    ("setting", "wanted"),
    [
        ("min.cleanable.dirty.ratio", "0.3"),
        ("delete.retention.ms", str(48 * HOUR)),
        ("segment.ms", "60000"),
        ("max.compaction.lag.ms", str(HOUR)),
        ("max.message.bytes", "2097152"),
        ("message.timestamp.after.max.ms", str(2 * HOUR)),
        ("retention.ms", "-1"),
        ("min.insync.replicas", "3"),
    ],
)
def test_safe_changes(setting: str, wanted: str) -> None:
    assert planned(setting, wanted) == [(True, "")]


@pytest.mark.parametrize(
    ("setting", "wanted", "words"),
    [
        ("partitions", "8", "keys would move"),
        ("delete.retention.ms", str(HOUR), "misses deletes"),
        ("max.message.bytes", "1000", "would be stopped"),
        ("message.timestamp.after.max.ms", "60000", "a writer whose clock is ahead by more would be refused"),
        ("retention.ms", str(HOUR), "deleted at once"),
        ("min.insync.replicas", "4", "nobody could write"),
        ("segment.ms", "59999", "Kafka 5.0"),
        ("cleanup.policy", "compact,delete", "retention would delete"),
        ("retention.bytes", "1", "deleted at once"),
        ("unclean.leader.election.enable", "true", "nobody here knows whether it loses anything"),
    ],
)
def test_refused_changes(setting: str, wanted: str, words: str) -> None:
    ((is_safe, refusal),) = planned(setting, wanted)

    assert not is_safe
    assert words in refusal


@pytest.mark.parametrize(
    ("found", "keyless", "words"),
    [
        ("delete", 0, ""),
        ("delete", 7, "7 records without a key would be dropped by the cleaner"),
        ("delete", None, "nobody looked for records without a key, which the cleaner drops"),
        ("compact,delete", None, ""),  # keyless ones are gone since the cleaner passed
    ],
)
def test_a_policy_becomes_compact_only_if_every_record_has_a_key(found: str, keyless: int | None, words: str) -> None:
    assert planned("cleanup.policy", "compact", found=found, keyless=keyless) == [(not words, words)]


@pytest.mark.parametrize("found", ["delete", ""])
def test_a_log_of_events_is_not_made_a_state_topic(found: str) -> None:
    standing = TopicStanding("t", {**FOUND, "cleanup.policy": found}, 3, keyless=0)
    ((made),) = changes(standing, general_settings(standing))
    assert (made.setting, made.is_safe) == ("cleanup.policy", False)
    assert "only the newest record of each key would stay" in made.refusal
    assert changes(TopicStanding("t", standing.settings, 3, 0, is_state=True), {"cleanup.policy": "compact"})[0].is_safe


@pytest.mark.parametrize(
    ("setting", "found", "wanted"),
    [("min.cleanable.dirty.ratio", "0.30", "0.3"), ("cleanup.policy", "delete,compact", "compact, delete")],
)
def test_the_same_in_other_words_is_no_change(setting: str, found: str, wanted: str) -> None:
    assert planned(setting, wanted, found=found) == []


def test_a_setting_that_the_broker_does_not_know_is_not_asked_for() -> None:
    assert changes(TopicStanding("t", {}, 3), {"message.timestamp.after.max.ms": "1"}) == []


def test_a_sensible_topic_of_another_program_is_left_alone() -> None:
    standing = TopicStanding("t", FOUND, 3)

    assert changes(standing, general_settings(standing)) == []


@pytest.mark.parametrize(
    ("kind", "planned_settings"), [("CreateTime", {"message.timestamp.after.max.ms": False}), ("LogAppendTime", {})]
)
def test_how_far_ahead_records_may_be_dated_is_a_persons_decision(kind: str, planned_settings: dict[str, bool]) -> None:
    """Where the broker dates them itself, it is no question."""
    settings = {**FOUND, "message.timestamp.after.max.ms": str((1 << 63) - 1), "message.timestamp.type": kind}
    standing = TopicStanding("t", settings, 3)

    made = changes(standing, general_settings(standing))

    assert {each.setting: each.is_safe for each in made} == planned_settings
    assert all("--add-config message.timestamp.after.max.ms=3600000" in each.by_hand for each in made)


def test_kafkas_defaults_are_bounded() -> None:
    never = str((1 << 63) - 1)
    defaults = {**FOUND, "max.compaction.lag.ms": never, "min.insync.replicas": "1", "segment.ms": "10000"}
    standing = TopicStanding("t", defaults, 3)

    made = changes(standing, general_settings(standing))

    assert {each.setting: each.wanted for each in made} == {
        "max.compaction.lag.ms": str(7 * 24 * HOUR),
        "min.insync.replicas": "2",
        "segment.ms": "60000",
    }
    assert all(each.is_safe and each.reason == SETTING_RULES[each.setting].reason for each in made)


@pytest.mark.parametrize(
    ("setting", "wanted", "words"),
    [
        ("segments.ms", "1", "did you mean segment.ms?"),
        ("zzz", "1", "choose one of cleanup.policy, "),
        ("segment.ms", "1h", "invalid number in --set segment.ms=1h"),
        ("segment.ms", "1.5", "invalid number"),
        ("retention.ms", "", "invalid number"),
        ("min.cleanable.dirty.ratio", "half", "invalid number in --set min.cleanable.dirty.ratio=half"),
        ("partitions", "many", "invalid number"),
    ],
)
def test_wishes_that_no_broker_could_take(setting: str, wanted: str, words: str) -> None:
    with pytest.raises(ConfigError) as caught:
        check_wishes(FOUND, {setting: wanted})
    assert words in str(caught.value)


def test_wishes_that_a_broker_could_take() -> None:
    check_wishes(FOUND, {**FOUND, "min.cleanable.dirty.ratio": "1", "retention.ms": "-1", "cleanup.policy": "delete"})


def test_what_a_plan_makes_of_a_topic_passes_lint() -> None:
    never = str((1 << 63) - 1)
    found = {
        "cleanup.policy": "delete",
        "delete.retention.ms": "100",
        "max.compaction.lag.ms": never,
        "message.timestamp.after.max.ms": never,
        "min.insync.replicas": "1",
        "segment.ms": "10000",
    }
    wanted = general_settings(TopicStanding("t", found, 3))
    assert set(wanted) == set(found)
    assert lint(Subject("t", found, 3))
    assert lint(Subject("t", wanted, 3)) == []
