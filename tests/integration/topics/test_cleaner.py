"""A cleaner that is switched off, and one whose thread died, on brokers of their own: what can be told from outside."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka import Producer
from typer.testing import CliRunner

from cdc.cli.cli import app
from cdc.kafka.brokers import BrokerAdmin
from cdc.lab.stack import KafkaBroker
from tests.integration.topics.looking import codes, now_ms, partition_of
from tests.support.servers import OwnStack
from tests.support.waiting import eventually
from tests.support.written_log import HOUR_MS, WrittenLog

QUICK = {"log.cleaner.dedupe.buffer.size": "1048577", "log.cleaner.backoff.ms": "100"}
HEAP_MB = 256
HUGE_BYTES = 2 * HEAP_MB * 1_048_576


class FragileBroker(KafkaBroker):
    """A broker as most are started: when memory runs out, a thread of it dies, and the others go on."""

    def command(self) -> list[str | Path]:
        return [word for word in super().command() if word != "-XX:+ExitOnOutOfMemoryError"]


@pytest.fixture
def fragile() -> Iterator[KafkaBroker]:
    """Its cleaner has one thread."""
    with FragileBroker.open(settings=QUICK, heap_mb=HEAP_MB, quick_start=True) as broker:
        yield broker


def dirty(broker: KafkaBroker) -> WrittenLog:
    """A log whose garbage lies in a closed segment, and has for hours."""
    log = WrittenLog(broker.bootstrap)
    for hours in (4, 2):
        log.append(["a", "b"] * 50, now_ms() - hours * HOUR_MS)
    log.append(["z"], now_ms())
    log.allow_cleaning()
    return log


def kill_cleaner(broker: KafkaBroker) -> WrittenLog:
    """Have the cleaner unpack a row that is larger than the broker's memory: 512 MB of zeros, packed into half a MB.

    The broker takes it, for it skips values; its cleaner unpacks them. An error, unlike an exception, ends the thread.
    """
    log = WrittenLog(broker.bootstrap)
    options = {"compression.type": "gzip", "message.max.bytes": 1_000_000_000, "queue.buffering.max.kbytes": 2_000_000}
    producer = Producer({"bootstrap.servers": broker.bootstrap, **options})
    producer.produce(log.topic, bytes(HUGE_BYTES), "huge", timestamp=now_ms() - 6 * HOUR_MS)
    assert producer.flush(60) == 0
    log.append(["huge", "z"], now_ms() - 2 * HOUR_MS)
    log.append(["z"], now_ms())
    log.allow_cleaning()
    eventually(lambda: "java.lang.OutOfMemoryError" in _said(broker), 60, lambda: _said(broker)[-3_000:])
    return log


def _said(broker: KafkaBroker) -> str:
    return broker.log_path.read_text(errors="replace")


def test_a_dead_cleaner_thread_is_suspected_in_every_partition(fragile: KafkaBroker) -> None:
    alive = dirty(fragile)
    eventually(lambda: codes(fragile.bootstrap, alive) == ["clean"], 60)
    poison = kill_cleaner(fragile)
    eventually(lambda: "[kafka-log-cleaner-thread-0]: Stopped" in _said(fragile))

    logs = [dirty(fragile), dirty(fragile)]

    for log in logs:
        (verdict,) = partition_of(fragile.bootstrap, log).verdicts
        assert verdict.code == "cleaner_stopped"
        assert "likely the cleaner's thread died" in verdict.text
        assert "DeadThreadCount" in verdict.remedy
    shown = CliRunner().invoke(app, ["topics", "inspect", logs[0].topic, "-b", fragile.bootstrap])
    assert shown.exit_code == 1

    # The remedy: what killed it goes, and the broker is started again.
    admin = BrokerAdmin({"bootstrap.servers": fragile.bootstrap})
    admin.delete_topics([poison.topic])[poison.topic].result()
    fragile.stop()
    fragile.start()
    for log in logs:
        eventually(lambda log=log: codes(fragile.bootstrap, log) == ["clean"], 60)  # type: ignore[misc]  # mypy does not type a lambda's default


def test_a_cleaner_that_is_switched_off_is_named(own_stack: OwnStack) -> None:
    broker = own_stack.kafka({**QUICK, "log.cleaner.enable": "false"})
    log = dirty(broker)

    (verdict,) = partition_of(broker.bootstrap, log).verdicts

    assert verdict.code == "cleaner_off"
    assert verdict.needs_someone
    assert "log.cleaner.enable=true" in verdict.remedy
