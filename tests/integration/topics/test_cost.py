"""What the estimate says beforehand is what the broker's cleaner tells of itself afterwards, within 20 %."""

from __future__ import annotations

import json
import random
import re
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import pytest
from typer.testing import CliRunner

from cdc.cli.cli import app
from cdc.lab.stack import KafkaBroker
from tests.integration.topics.looking import now_ms, partition_of
from tests.support.waiting import eventually
from tests.support.written_log import HOUR_MS, WrittenLog

MB = 1_048_576
"""What Kafka's log calls MB."""


class Done(NamedTuple):
    """What the cleaner's log tells, summed over its passes; ``until`` is the end of the last one's dirty section."""

    passes: int
    until: int
    indexed_mb: float
    copied_mb: float
    written_mb: float


def run(broker: KafkaBroker, *arguments: str, exit_code: int = 0) -> dict[str, Any]:
    shown = CliRunner().invoke(app, ["topics", *arguments, "-b", broker.bootstrap, "--json"])
    assert shown.exit_code == exit_code, shown.output
    document: dict[str, Any] = json.loads(shown.stdout)
    return document


def told(broker: KafkaBroker, log: WrittenLog) -> Done:
    text = broker.log_path.read_text(encoding="utf-8", errors="replace")
    begin = f"cleaned log {log.topic}-0 (dirty section = ["
    ours = [each for each in text.split("Log cleaner thread") if begin in each and "End size:" in each]

    def sums(line: str) -> float:
        found = (re.search(rf"{line} ([\d,.]+) MB", each) for each in ours)
        return sum(float(each[1].replace(",", "")) for each in found if each)

    ends = [int(each.partition(begin)[2].partition("]")[0].split(",")[1]) for each in ours]
    return Done(len(ours), max(ends, default=0), sums("Indexed"), sums("Start size:"), sums("End size:"))


def keys(numbers: Sequence[int]) -> list[str]:
    return [f"customer-{number:08d}" for number in numbers]


def updates_of_few_keys(log: WrittenLog, hours: Sequence[int]) -> None:
    """One pass; hardly anything survives."""
    for hour in hours:
        log.append(keys(range(2_000)) * 10, now_ms() - hour * HOUR_MS, value=b"." * 150)


def new_keys(log: WrittenLog, hours: Sequence[int]) -> None:
    """Everything survives, and the map holds a third of the keys."""
    for number, hour in enumerate(hours):
        log.append(keys(range(number * 40_000, (number + 1) * 40_000)), now_ms() - hour * HOUR_MS, value=b"." * 100)


def random_updates(log: WrittenLog, hours: Sequence[int]) -> None:
    """Keys come again in later passes."""
    chosen = random.Random(5)
    for hour in hours:
        drawn = [chosen.randrange(120_000) for _ in range(40_000)]
        log.append(keys(drawn), now_ms() - hour * HOUR_MS, value=b"." * 100)


@pytest.mark.parametrize(
    ("workload", "passes"), [(updates_of_few_keys, 1), (new_keys, 4), (random_updates, 3)]
)  # fmt: skip
def test_passes_and_bytes(
    cleaning: KafkaBroker, workload: Callable[[WrittenLog, Sequence[int]], None], passes: int
) -> None:
    log = WrittenLog(cleaning.bootstrap)
    workload(log, (12, 10, 8))
    log.append(["last"], now_ms())  # closes the segment before it

    estimated = run(cleaning, "estimate", log.topic)
    log.allow_cleaning()
    closed_until = partition_of(cleaning.bootstrap, log).ends.high_watermark - 1
    eventually(lambda: told(cleaning, log).until == closed_until)

    (partition,) = estimated["partitions"]
    done = told(cleaning, log)
    assert done.passes == passes
    assert len(partition["passes"]) == pytest.approx(passes, rel=0.2)
    assert estimated["indexed_bytes"] / MB == pytest.approx(done.indexed_mb, rel=0.2)
    assert estimated["copied_bytes"] / MB == pytest.approx(done.copied_mb, rel=0.2)
    assert estimated["written_bytes"] / MB == pytest.approx(done.written_mb, rel=0.2)


def test_a_larger_buffer_is_advised_and_would_do(cleaning: KafkaBroker) -> None:
    log = WrittenLog(cleaning.bootstrap)
    new_keys(log, (12, 10))
    log.append(["last"], now_ms())

    before = run(cleaning, "estimate", log.topic)
    (advice,) = [each for each in before["advice"] if "dedupe.buffer" in each["remedy"]]
    wanted = advice["remedy"].partition("log.cleaner.dedupe.buffer.size=")[2]
    after = run(cleaning, "estimate", log.topic, "--buffer", wanted, "--throughput", "2")

    assert [len(each["partitions"][0]["passes"]) for each in (before, after)] == [3, 1]
    moved = after["indexed_bytes"] + after["copied_bytes"] + after["written_bytes"]
    assert after["seconds"] == pytest.approx(moved / 2e6)


def test_a_rebuild_is_measured(cleaning: KafkaBroker) -> None:
    log = WrittenLog(cleaning.bootstrap, partitions=2)
    log.append(keys(range(3_000)) * 2, now_ms(), value=b"." * 50)
    log.append(keys(range(1_000)), now_ms(), value=None)
    log.append(keys(range(3_000, 3_500)), now_ms(), partition=1)

    found = run(cleaning, "rebuild-test", log.topic)

    assert (found["records"], found["keys"], found["tombstones"], found["whole"]) == (7_500, 2_500, 1_000, True)
    assert found["records_per_second"] == pytest.approx(7_500 / found["seconds"])
    assert found["memory_per_million_keys"] > 1e6 * (17 + 50)


def test_the_slowest_group_decides_about_tombstones(cleaning: KafkaBroker) -> None:
    log = WrittenLog(cleaning.bootstrap, delete_retention_ms=10 * HOUR_MS)
    log.append(["a"], now_ms() - 8 * HOUR_MS)
    log.append(["b"], now_ms() - 7 * HOUR_MS)
    log.commit("fast", 2)
    assert run(cleaning, "tombstones", log.topic)["state"] == "kept"
    log.commit("slow", 1)

    found = run(cleaning, "tombstones", log.topic, exit_code=1)
    assert (found["state"], found["whose"]) == ("tight", f"group slow-{log.topic}")
    assert found["needed_ms"] == pytest.approx(7 * HOUR_MS, rel=0.01)

    broken = run(cleaning, "tombstones", log.topic, "--slowest-reader", "11h", "--rebuild-time", "1h", exit_code=1)
    assert (broken["state"], broken["whose"], broken["rebuild_ms"]) == ("broken", "the slowest reader", HOUR_MS)


def test_people_get_sentences(cleaning: KafkaBroker) -> None:
    log = WrittenLog(cleaning.bootstrap)
    log.append(["a", "b"] * 50, now_ms())

    for command, words in (
        ("estimate", "the next cleaning reads"),
        ("rebuild-test", "until exact"),
        ("tombstones", "kept: a tombstone is sure to be there for 24 h"),
    ):
        shown = CliRunner().invoke(app, ["topics", command, log.topic, "-b", cleaning.bootstrap])
        assert shown.exit_code == 0, shown.output
        assert words in shown.output
