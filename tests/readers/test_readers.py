"""Each foreign reader folds the topic to the rows of the source, in each format; what it cannot hold is listed."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from pathlib import Path
from typing import NamedTuple, TypeAlias

import pytest

from tests.readers import flink_sql, jdbc_sink, programs, python
from tests.readers.canonical import Rows, differences, rows_of
from tests.readers.conftest import FeedFor
from tests.readers.fed import FORMATS, Fed, ValueFormat
from tests.readers.losses import JSON_NULL, LOSSES, altered, losses

Read: TypeAlias = Callable[[Fed, Path], Iterable[str | bytes] | Rows]


class Reader(NamedTuple):
    """A foreign reader.

    Attributes:
        read: returns the rows that it holds: each a JSON object, or as a database prints them.
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
    "Flink SQL": Reader(flink_sql.upsert_kafka, is_long=True),
    "Spark": Reader(programs.spark, is_long=True),
    jdbc_sink.NAME: Reader(jdbc_sink.jdbc_sink, is_long=True),
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
    given = reader.read(fed, tmp_path)
    found = given if isinstance(given, dict) else rows_of(given)
    expected = fed.expected
    for loss in losses(name, value_format):
        before, expected = expected, altered(expected, loss)
        assert before != expected, f"no row shows that {loss.says}"
    assert not (lines := differences(expected, found)), "\n".join(lines[:40])


def test_who_reads_uncommitted_records_takes_aborted_ones_for_rows(feed_for: FeedFor, tmp_path: Path) -> None:
    """The default of Java's consumer."""
    fed = feed_for("json")
    found = differences(fed.expected, rows_of(programs.java_consumer(fed, tmp_path, "read_uncommitted")))
    assert any(line.startswith("missing") for line in found)
    assert any("in the source" in line and " doc: " not in line for line in found)


def test_the_page_tells_of_each_reader_and_of_what_it_cannot_hold() -> None:
    text = (Path(__file__).parents[2] / "docs" / "readers.md").read_text(encoding="utf-8")
    _, _, rest = text.partition("## Readers that are tested")
    cells = [
        [cell.strip() for cell in line.strip("|").split("|")] for line in rest.splitlines() if line.startswith("|")
    ]
    said = {name: dict(zip(FORMATS, of_formats, strict=True)) for name, *of_formats in cells[2 : 2 + len(READERS)]}
    assert set(said) == set(READERS)
    for (name, value_format), own in LOSSES.items():
        for loss in own:
            assert loss.says in said[name][value_format], f"{name}: {loss.says}"
    assert JSON_NULL.says in rest
