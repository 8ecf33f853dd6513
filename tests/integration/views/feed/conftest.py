"""A view under test: topics written by the test, a store in memory or in a folder, and the feed in a thread."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import orjson
import pytest

from cdc.base.config import Config
from cdc.contract.record import TableSchema
from cdc.lab.stack import Kafka
from cdc.sink.apply.loop import CutReport, run_mirror
from cdc.sink.apply.topics import RebuildOrder
from cdc.views.store.memory import Contents, MemoryStore
from cdc.views.store.port import Store
from cdc.views.table.writer import ViewPlace
from tests.support.reading import fold_topic
from tests.support.topic_writer import TopicWriter
from tests.support.views import Seen, look, state_of
from tests.support.waiting import eventually


@dataclass
class View:
    """A running feed, and a reader of its store."""

    config: Config
    open_store: Callable[[], Store]
    reader: Store
    stop: threading.Event = field(default_factory=threading.Event)
    reports: list[CutReport] = field(default_factory=list)
    order: RebuildOrder = field(default_factory=RebuildOrder)
    error: BaseException | None = None

    def run(self) -> None:
        assert self.config.view is not None
        place = ViewPlace(self.open_store, self.config.name, self.config.view)
        try:
            run_mirror(self.config, place, self.stop, self.reports.append, self.order)
        except BaseException as error:  # noqa: BLE001 - handed to the test
            self.error = error

    def wait_for_cut(self, lsn: int, timeout_s: float = 30) -> None:
        def there() -> bool:
            if self.error is not None:
                raise self.error
            return bool(self.reports) and self.reports[-1].is_true and self.reports[-1].progress.lsn >= lsn

        eventually(there, timeout_s, lambda: f"a cut at {lsn}; reports: {[each.progress.lsn for each in self.reports]}")

    def wait_for_state(self, table: str, wanted: str) -> Seen:
        def there() -> bool:
            if self.error is not None:
                raise self.error
            return state_of(self.reader, table) == wanted

        eventually(there, message=lambda: f"{table} {wanted}, is {state_of(self.reader, table)}")
        return self.look(table)

    def look(self, table: str) -> Seen:
        seen = look(self.reader, table)
        assert seen is not None, f"the view does not know {table}"
        return seen

    def wait_for_error(self) -> BaseException:
        found = eventually(lambda: self.error)
        assert found is not None
        return found


@contextmanager
def running(config: Config, place: Contents | Callable[[], Store], order: RebuildOrder | None = None) -> Iterator[View]:
    """A feed into a store which outlives it: in memory, in ``Contents``, or one that is opened."""
    opens = place if callable(place) else partial(MemoryStore, place)
    view = View(config, opens, opens(), order=order or RebuildOrder())
    thread = threading.Thread(target=view.run)
    thread.start()
    try:
        yield view
    finally:
        view.stop.set()
        thread.join()
        view.reader.close()


def view_config(topics: TopicWriter, **view: Any) -> Config:
    return Config.model_validate(
        {
            "name": topics.name,
            "kafka": {"bootstrap": topics.bootstrap},
            "view": {"store": "memory", **view},
        }
    )


def publish(
    topics: TopicWriter,
    table: TableSchema,
    lsn: int,
    rows: Sequence[Mapping[str, Any]],
    gone: Sequence[Mapping[str, Any]] = (),
) -> None:
    """One source transaction of one table, in one Kafka transaction."""
    with topics.kafka_transaction():
        topics.define(table)
        for seq, row in enumerate(rows, 1):
            topics.upsert(table, row, lsn, seq)
        for seq, row in enumerate(gone, len(rows) + 1):
            topics.delete(table, row, lsn, seq)
        topics.progress(lsn + 1)


def rows_of(*ids: int, v: int = 0) -> list[Mapping[str, Any]]:
    return [{"id": each, "v": v} for each in ids]


def assert_holds(view: View, topics: TopicWriter, table: TableSchema) -> Seen:
    """See that the table is the fold of its topic, byte by byte, with each row's coordinates."""
    seen = view.look(f"{table.namespace}.{table.name}")
    folded = fold_topic(topics.options, table.topic)
    assert {key: row.row for key, row in seen.rows.items()} == {key: each.value for key, each in folded.items()}
    assert seen.table.state == "exact", seen.table.reason
    assert all(orjson.loads(row.key) for row in seen.rows.values())
    return seen


@pytest.fixture
def topics(kafka: Kafka) -> TopicWriter:
    return TopicWriter(kafka.bootstrap)


@pytest.fixture
def contents() -> Contents:
    return Contents()
