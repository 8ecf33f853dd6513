"""A sink under test: topics written by the test, a replica database of its own, and the mirror in a thread."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import pytest

from cdc.base.config import Config
from cdc.lab.stack import Kafka
from cdc.sink.apply.loop import CutReport, run_mirror
from cdc.sink.apply.topics import RebuildOrder
from cdc.sink.dialects import open_replica
from tests.support.servers import Database
from tests.support.topic_writer import TopicWriter
from tests.support.waiting import eventually


@dataclass
class Mirror:
    """A running sink and what it reported."""

    config: Config
    replica: Database
    stop: threading.Event = field(default_factory=threading.Event)
    reports: list[CutReport] = field(default_factory=list)
    order: RebuildOrder = field(default_factory=RebuildOrder)
    error: BaseException | None = None
    waits: dict[str, float] = field(default_factory=dict)

    def run(self) -> None:
        try:
            run_mirror(
                self.config,
                open_replica(self.config, application_name="test", on_wait=self.waits.__setitem__),
                self.stop,
                self.reports.append,
                self.order,
            )
        except BaseException as error:  # noqa: BLE001 - handed to the test
            self.error = error

    def wait_for_cut(self, lsn: int, timeout_s: float = 30) -> None:
        def there() -> bool:
            if self.error is not None:
                raise self.error
            return bool(self.reports) and self.reports[-1].is_true and self.reports[-1].progress.lsn >= lsn

        eventually(there, timeout_s, lambda: f"a cut at {lsn}; reports: {[each.progress.lsn for each in self.reports]}")

    def wait_for_error(self) -> BaseException:
        return eventually(lambda: self.error)


def plain_config(topics: TopicWriter, replica: Database, **sink: Any) -> dict[str, Any]:
    return {
        "name": topics.name,
        "source": {"dsn": "host=nowhere"},
        "kafka": {"bootstrap": topics.bootstrap},
        "sink": {"dsn": replica.dsn, **sink},
    }


def sink_config(topics: TopicWriter, replica: Database, **sink: Any) -> Config:
    return Config.model_validate(plain_config(topics, replica, **sink))


@contextmanager
def running(config: Config, replica: Database, order: RebuildOrder | None = None) -> Iterator[Mirror]:
    mirror = Mirror(config, replica, order=order or RebuildOrder())
    thread = threading.Thread(target=mirror.run)
    thread.start()
    try:
        yield mirror
    finally:
        mirror.stop.set()
        thread.join()


@pytest.fixture
def topics(kafka: Kafka) -> TopicWriter:
    return TopicWriter(kafka.bootstrap)


@pytest.fixture
def config(topics: TopicWriter, database: Database) -> Config:
    return sink_config(topics, database)


@pytest.fixture
def mirror(config: Config, database: Database) -> Iterator[Mirror]:
    with running(config, database) as started:
        yield started
