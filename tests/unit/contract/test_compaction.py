"""What DescribeConfigs says of a topic that holds state, and what is wrong with its policy."""

from __future__ import annotations

from cdc.contract.compaction import (
    NEVER_MS,
    TopicSettings,
    policies,
    policy_fault,
    superseded_at_most_ms,
    topic_settings,
)


def test_each_setting_is_read_and_one_that_the_broker_does_not_know_keeps_kafkas_default() -> None:
    found = {
        "cleanup.policy": "compact, delete",
        "segment.ms": "1",
        "segment.bytes": "2",
        "min.cleanable.dirty.ratio": "0.25",
        "min.compaction.lag.ms": "3",
        "max.compaction.lag.ms": "4",
        "delete.retention.ms": "5",
    }
    assert topic_settings(found) == TopicSettings(frozenset({"compact", "delete"}), 1, 2, 0.25, 3, 4, 5)
    assert topic_settings({}) == TopicSettings(frozenset(), 604_800_000, 1_073_741_824, 0.5, 0, NEVER_MS, 86_400_000)


def test_times_follow_from_two_settings_each() -> None:
    settings = TopicSettings(segment_ms=100, max_compaction_lag_ms=70, min_compaction_lag_ms=7, delete_retention_ms=50)
    assert settings.roll_ms == 70
    assert settings.tombstone_window_ms == 57
    assert TopicSettings(frozenset({"delete"}), segment_ms=100, max_compaction_lag_ms=70).roll_ms == 100
    assert superseded_at_most_ms(100, 70) == 170


def test_a_policy_that_does_not_suit_state_says_what_goes() -> None:
    assert policy_fault(policies("compact"), "7 days") is None
    for text, code, words, loses_rows in (
        ("compact,delete", "compact_delete", "not changed within 7 days", True),
        ("delete", "delete", "older than 7 days are deleted", True),
        ("", "keeps_all", "every record stays for ever", False),
    ):
        fault = policy_fault(policies(text), "7 days")
        assert fault is not None
        assert (fault.code, fault.loses_rows) == (code, loses_rows)
        assert words in fault.text
