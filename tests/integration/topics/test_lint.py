"""What only a broker knows of a topic: its settings, records without keys, share groups that read it."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager

from confluent_kafka import ShareConsumer
from typer.testing import CliRunner

from cdc.cli.cli import app
from cdc.lab.stack import KafkaBroker
from cdc.topics.cluster import Cluster
from cdc.topics.share_groups import share_groups
from tests.integration.topics.looking import now_ms
from tests.support.waiting import eventually
from tests.support.written_log import WrittenLog


def findings(broker: KafkaBroker, log: WrittenLog, *options: str) -> list[str]:
    """Codes of what the command finds."""
    shown = CliRunner().invoke(app, ["topics", "lint", log.topic, "-b", broker.bootstrap, "--json", *options])
    (topic,) = json.loads(shown.stdout)["topics"]
    assert shown.exit_code == (1 if topic["findings"] else 0), shown.output
    return [each["code"] for each in topic["findings"]]


@contextmanager
def share_group(broker: KafkaBroker, topic: str) -> Iterator[str]:
    """A share group whose member reads the topic."""
    group = f"share-{topic}"
    consumer = ShareConsumer({"bootstrap.servers": broker.bootstrap, "group.id": group})
    consumer.subscribe([topic])

    def is_known() -> bool:
        consumer.poll(0.1)
        with Cluster({"bootstrap.servers": broker.bootstrap}) as cluster:
            cluster.places([topic])
            return topic in share_groups(cluster.wire(1)).get(group, ())

    try:
        eventually(is_known)
        yield group
    finally:
        consumer.close()


def test_settings_of_a_real_topic(cleaning: KafkaBroker) -> None:
    good = WrittenLog(cleaning.bootstrap, max_compaction_lag_ms=86_400_000)
    bad = WrittenLog(cleaning.bootstrap, cleanup_policy="compact,delete", delete_retention_ms=100, segment_ms=10_000)

    assert findings(cleaning, good) == ["one_replica"]  # there is but one broker
    assert findings(cleaning, good, "--rebuild-time", "36h") == ["tombstones_too_short", "one_replica"]
    assert findings(cleaning, bad) == [
        "compact_delete",
        "tombstones_too_short",
        "one_replica",
        "short_segments",
        "no_max_lag",
    ]


def test_records_without_a_key_are_counted(cleaning: KafkaBroker) -> None:
    log = WrittenLog(cleaning.bootstrap, cleanup_policy="delete")
    log.append([None, "a", None], now_ms())

    assert "keyless" in findings(cleaning, log)
    assert "keyless" not in findings(cleaning, log, "--newest", "0")


def test_empty_values_are_told_from_tombstones(cleaning: KafkaBroker) -> None:
    deleted, emptied = WrittenLog(cleaning.bootstrap), WrittenLog(cleaning.bootstrap)
    deleted.append(["a"], now_ms(), value=None)
    emptied.append(["a"], now_ms(), value=b"")

    assert "empty_values" not in findings(cleaning, deleted)
    assert "empty_values" in findings(cleaning, emptied)


def test_rows_in_two_formats_are_told_from_former_values(cleaning: KafkaBroker) -> None:
    log = WrittenLog(cleaning.bootstrap)
    log.append(["a", "b"], now_ms(), value=b'{"id":1}')
    log.append(["a"], now_ms(), value=b"\0\0\0\0\7\2")
    assert "mixed_formats" in findings(cleaning, log)
    log.append(["b"], now_ms(), value=None)
    assert "mixed_formats" not in findings(cleaning, log)


def test_a_share_group_that_reads_it_is_named(cleaning: KafkaBroker) -> None:
    log, other = WrittenLog(cleaning.bootstrap), WrittenLog(cleaning.bootstrap)
    with share_group(cleaning, log.topic) as group:
        shown = CliRunner().invoke(app, ["topics", "lint", log.topic, "-b", cleaning.bootstrap])
        assert f"share group '{group}' reads it" in shown.output
        assert "share_group" not in findings(cleaning, other)


def test_a_duration_that_is_none_is_refused(cleaning: KafkaBroker) -> None:
    shown = CliRunner().invoke(app, ["topics", "lint", "-b", cleaning.bootstrap, "--rebuild-time", "soon"])

    assert shown.exit_code == 2
    assert "invalid duration 'soon'" in shown.output
