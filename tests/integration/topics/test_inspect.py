"""Each reason for a partition not to be compacted, made on a real broker, is named; and its remedy helps."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

from cdc.cli.cli import app
from cdc.lab.stack import KafkaBroker
from cdc.topics.batches import parse_batches
from tests.integration.topics.looking import codes, looked_at, now_ms, partition_of
from tests.support.waiting import eventually
from tests.support.written_log import HOUR_MS, WrittenLog

MINUTE_MS = 60_000
_FIRST_RECORD = 61
_KEY_VERSION = _FIRST_RECORD + 5


def cleaned(broker: KafkaBroker) -> WrittenLog:
    """A log that the cleaner has passed over: four live keys, and one record in the active segment."""
    log = WrittenLog(broker.bootstrap)
    for hours in (10, 8, 6):
        log.append(["a", "b", "c", "d"] * 100, now_ms() - hours * HOUR_MS)
    log.append(["z"], now_ms() - 4 * HOUR_MS)
    log.allow_cleaning()
    eventually(lambda: codes(broker.bootstrap, log) == ["clean"])
    return log


def test_an_idle_partition_waits_for_an_append_and_one_record_helps(cleaning: KafkaBroker) -> None:
    log = WrittenLog(cleaning.bootstrap)
    log.allow_cleaning()
    log.append(["a", "b"] * 50, now_ms() - 3 * HOUR_MS)

    found = partition_of(cleaning.bootstrap, log)

    assert [each.code for each in found.verdicts] == ["idle"]
    assert (found.records, found.keys, found.garbage_records, found.cleaned_until) == (100, 2, 98, None)
    assert "only an append closes a segment" in found.verdicts[0].text

    log.append(["a"], now_ms())  # the remedy
    # What the record itself made superfluous waits in the new segment.
    eventually(lambda: codes(cleaning.bootstrap, log) == ["active_segment"])
    after = partition_of(cleaning.bootstrap, log)
    assert (after.records, after.garbage_records) == (3, 1)


def test_a_segment_that_is_written_to_is_not_called_idle(cleaning: KafkaBroker) -> None:
    log = WrittenLog(cleaning.bootstrap)
    log.append(["a", "b"] * 50, now_ms() - MINUTE_MS)

    assert codes(cleaning.bootstrap, log) == ["active_segment"]


def test_a_hanging_transaction_is_named_with_its_producer(cleaning: KafkaBroker) -> None:
    log = WrittenLog(cleaning.bootstrap)
    log.allow_cleaning()
    producer = log.leave_open(["k"], now_ms() - 6 * HOUR_MS)
    for hours in (4, 2):
        log.append(["a", "b"] * 50, now_ms() - hours * HOUR_MS)
    log.append(["z"], now_ms())

    (verdict,) = partition_of(cleaning.bootstrap, log).verdicts

    assert verdict.code == "hanging_transaction"
    assert "of producer id" in verdict.text
    assert "it hangs" in verdict.text
    assert f"abort --topic {log.topic} --partition 0 --start-offset 0" in verdict.remedy

    producer.abort_transaction(30)
    # Its marker is of now, so nothing new closes a segment; the old ones are cleaned.
    eventually(lambda: codes(cleaning.bootstrap, log) == ["clean"])


def test_a_record_of_the_future_keeps_its_segment_from_being_cleaned(cleaning: KafkaBroker) -> None:
    log = WrittenLog(cleaning.bootstrap, min_compaction_lag_ms=MINUTE_MS)
    log.allow_cleaning()
    log.append(["a", "b"] * 50, now_ms() - 10 * MINUTE_MS)
    log.append(["b"], now_ms() + 45 * MINUTE_MS)
    log.append(["z"], now_ms() + 55 * MINUTE_MS)

    (verdict,) = partition_of(cleaning.bootstrap, log).verdicts

    assert verdict.code == "future_timestamp"
    assert "min.compaction.lag.ms keeps the cleaner away" in verdict.text

    log.set("min.compaction.lag.ms", 0)
    eventually(lambda: codes(cleaning.bootstrap, log) == ["clean"])


def test_a_segment_that_begins_in_the_future_is_not_closed_by_time(cleaning: KafkaBroker) -> None:
    log = WrittenLog(cleaning.bootstrap)
    log.append(["z"], now_ms() + 50 * MINUTE_MS)
    log.append(["a", "b"] * 50, now_ms())

    (verdict,) = partition_of(cleaning.bootstrap, log).verdicts

    assert verdict.code == "future_timestamp"
    assert "segments are closed by their records' time" in verdict.text


def test_the_ratio_must_be_exceeded(cleaning: KafkaBroker) -> None:
    log = cleaned(cleaning)
    log.set("min.cleanable.dirty.ratio", 0.9)
    log.append(["a", "a"], now_ms() - 2 * HOUR_MS)
    log.append(["y"], now_ms())

    found = partition_of(cleaning.bootstrap, log)

    assert [each.code for each in found.verdicts] == ["ratio_not_reached"]
    assert 0 < found.reach.ratio <= 0.9
    assert "is not above min.cleanable.dirty.ratio 0.9" in found.verdicts[0].text

    log.allow_cleaning()
    eventually(lambda: codes(cleaning.bootstrap, log) == ["clean"])


def test_young_records_wait_for_the_compaction_lag(cleaning: KafkaBroker) -> None:
    log = WrittenLog(cleaning.bootstrap, min_compaction_lag_ms=5 * HOUR_MS)
    log.allow_cleaning()
    log.append(["a", "b"] * 50, now_ms() - 3 * HOUR_MS)
    log.append(["z"], now_ms())

    assert codes(cleaning.bootstrap, log) == ["min_compaction_lag"]


def test_a_cleaner_that_gave_up_on_a_partition_is_suspected(cleaning: KafkaBroker) -> None:
    """A damaged transaction marker makes the cleaner put the partition into quarantine; readers do not notice it."""
    log = WrittenLog(cleaning.bootstrap, segment_bytes=1_048_576)
    for hours in (10, 8):
        log.append(["a", "b"] * 50, now_ms() - hours * HOUR_MS)
    log.leave_open(["k"], now_ms() - 6 * HOUR_MS).commit_transaction(30)
    log.append(["x", "y", "z"], now_ms(), value=b"." * 600_000)  # closes the marker's segment by size
    damage_marker(cleaning.directory / "data" / f"{log.topic}-0")
    log.allow_cleaning()
    eventually(lambda: f"{log.topic}-0) as uncleanable" in cleaning.log_path.read_text(errors="replace"))

    verdict, *_ = partition_of(cleaning.bootstrap, log).verdicts

    assert verdict.code == "cleaner_stopped"
    assert "likely" in verdict.text
    assert "uncleanable-partitions-count" in verdict.remedy


def damage_marker(directory: Path) -> None:
    """Give a transaction's marker a version that does not exist."""
    for path in directory.glob("*.log"):
        data, place = bytearray(path.read_bytes()), 0
        for batch in parse_batches(bytes(data)):
            if batch.is_control:
                data[place + _KEY_VERSION : place + _KEY_VERSION + 2] = b"\xff\xff"
                with path.open("r+b") as file:
                    file.seek(place)
                    file.write(data[place : place + batch.size])
                return
            place += batch.size
    raise AssertionError(f"no transaction marker in {directory}")


def test_a_topic_that_is_not_compacted_says_so(cleaning: KafkaBroker) -> None:
    log = WrittenLog(cleaning.bootstrap, cleanup_policy="delete")
    log.append(["a", "a"], now_ms())

    assert codes(cleaning.bootstrap, log) == ["not_compacted"]


def test_tombstones_are_told_apart_by_their_clock(cleaning: KafkaBroker) -> None:
    log = WrittenLog(cleaning.bootstrap, delete_retention_ms=2_000)
    log.append(["a", "b", "c"], now_ms() - 10 * HOUR_MS)
    log.append(["a", "b"], now_ms() - 8 * HOUR_MS, value=None)
    log.append(["e"], now_ms() - 6 * HOUR_MS, value=b"")  # an empty value is a row
    before = partition_of(cleaning.bootstrap, log).tombstones
    assert (before.waiting, before.fresh, before.expired) == (2, 0, 0)

    log.allow_cleaning()
    eventually(lambda: partition_of(cleaning.bootstrap, log).tombstones.fresh == 2)
    eventually(lambda: codes(cleaning.bootstrap, log) == ["tombstones_stuck"])
    assert partition_of(cleaning.bootstrap, log).tombstones.expired == 2

    log.append(["c"], now_ms() - 4 * HOUR_MS)
    log.append(["f"], now_ms() - 2 * HOUR_MS)
    eventually(lambda: partition_of(cleaning.bootstrap, log).tombstones.total == 0)


def test_a_bounded_reading_says_that_it_is_one(cleaning: KafkaBroker) -> None:
    log = WrittenLog(cleaning.bootstrap)
    for _ in range(4):
        log.append(["a", "b"] * 50, now_ms())

    (found,) = looked_at(cleaning.bootstrap, log.topic, newest=150).partitions

    assert not found.is_whole
    assert (found.read_from, found.records) == (250, 150)


@pytest.mark.parametrize("form", ["table", "json"])
def test_the_command_shows_it_and_its_exit_code_answers(cleaning: KafkaBroker, form: str) -> None:
    log = WrittenLog(cleaning.bootstrap, partitions=2)
    log.append(["a", "b"] * 50, now_ms() - 3 * HOUR_MS, partition=1)
    arguments = ["topics", "inspect", log.topic, "-b", cleaning.bootstrap]

    shown = CliRunner().invoke(app, [*arguments, *(["--json"] if form == "json" else [])])

    assert shown.exit_code == 1, shown.output
    if form == "json":
        (topic,) = json.loads(shown.stdout)["topics"]
        assert [each["verdicts"][0]["code"] for each in topic["partitions"]] == ["clean", "idle"]
        assert topic["partitions"][1]["garbage_records"] == 98
    else:
        assert "! idle (partition 1): " in shown.stdout
        assert f"write one record to partition 1 of {log.topic}" in shown.stdout


def test_a_topic_that_is_not_there_is_no_answer(cleaning: KafkaBroker) -> None:
    shown = CliRunner().invoke(app, ["topics", "inspect", "nobody", "-b", cleaning.bootstrap])

    assert shown.exit_code == 2
    assert "topic 'nobody' does not exist" in shown.output
