"""Each foreign reader folds the topic to the rows of the source, in each format; what it cannot hold is listed."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from pathlib import Path
from typing import NamedTuple, TypeAlias

import pytest

from tests.readers import programs, python
from tests.readers.canonical import differences, rows_of
from tests.readers.conftest import FeedFor
from tests.readers.fed import FORMATS, Fed, ValueFormat
from tests.readers.losses import altered, losses

Read: TypeAlias = Callable[[Fed, Path], Iterable[str | bytes]]


class Reader(NamedTuple):
    """A foreign reader.

    Attributes:
        read: returns the rows that it holds, each a JSON object.
        compression: what it can read, if that is not the bridge's default.
        is_long: whether ``make test`` leaves it to ``make test-readers``.
    """

    read: Read
    compression: str = ""
    is_long: bool = False


READERS = {
    "confluent-kafka": Reader(python.confluent_kafka),
    "pandas": Reader(python.in_pandas),
    "DuckDB": Reader(python.in_duckdb),
    "franz-go": Reader(programs.franz_go, is_long=True),
    "kafkajs": Reader(programs.kafkajs, compression="gzip"),
    "Java consumer": Reader(programs.java_consumer),
    "Kafka Streams": Reader(programs.kafka_streams, is_long=True),
}
CASES = [
    pytest.param(name, value_format, id=f"{name}-{value_format}", marks=[pytest.mark.long] if reader.is_long else [])
    for name, reader in READERS.items()
    for value_format in FORMATS
]


@pytest.mark.parametrize(("name", "value_format"), CASES)
def test_reads_the_table(name: str, value_format: ValueFormat, feed_for: FeedFor, tmp_path: Path) -> None:
    reader = READERS[name]
    fed = feed_for(value_format, compression=reader.compression)
    found = rows_of(reader.read(fed, tmp_path))
    expected = fed.expected
    for loss in losses(name, value_format):
        before, expected = expected, altered(expected, loss)
        assert before != expected, f"no row shows that {loss.says}"
    assert not (lines := differences(expected, found)), "\n".join(lines[:40])
