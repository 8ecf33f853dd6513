"""Each foreign reader folds the topic to the rows of the source, in each format; what it cannot hold is listed."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple, TypeAlias

import pytest

from tests.readers import flink_sql, jdbc_sink, programs, python
from tests.readers.canonical import Rows, differences, rows_of
from tests.readers.conftest import FeedFor
from tests.readers.fed import FORMATS, Fed, ValueFormat
from tests.readers.losses import JSON_NULL, LOSSES, REFUSALS, held

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
    "Flink SQL": Reader(flink_sql.flink_sql, is_long=True),
    "Spark": Reader(programs.spark, is_long=True),
    jdbc_sink.NAME: Reader(jdbc_sink.jdbc_sink, is_long=True),
}


def _cases(*, are_refused: bool) -> list[Any]:
    return [
        pytest.param(name, each, id=f"{name}-{each}", marks=[pytest.mark.long] if _is_long(reader, each) else [])
        for name, reader in READERS.items()
        for each in FORMATS
        if ((name, each) in REFUSALS) == are_refused
    ]


def _is_long(reader: Reader, value_format: ValueFormat) -> bool:
    """Whether the reader takes long, or needs one more topic of its own."""
    return reader.is_long or (reader.compression != "" and value_format not in ("json", "avro"))


@pytest.mark.parametrize(("name", "value_format"), _cases(are_refused=False))
def test_reads_the_table(name: str, value_format: ValueFormat, feed_for: FeedFor, tmp_path: Path) -> None:
    reader = READERS[name]
    fed = feed_for(value_format, compression=reader.compression)
    given = reader.read(fed, tmp_path)
    found = given if isinstance(given, dict) else rows_of(given)
    assert not (lines := differences(held(fed.expected, name, value_format), found)), "\n".join(lines[:40])


@pytest.mark.parametrize(("name", "value_format"), _cases(are_refused=True))
def test_does_not_read_the_table(name: str, value_format: ValueFormat, feed_for: FeedFor, tmp_path: Path) -> None:
    with pytest.raises(AssertionError, match=REFUSALS[name, value_format].error):
        list(READERS[name].read(feed_for(value_format), tmp_path))


@pytest.mark.long
def test_the_sink_takes_rows_out_of_events_as_well(feed_for: FeedFor, tmp_path: Path) -> None:
    fed = feed_for("debezium-schemas")
    unwrap = {"transforms": "unwrap", "transforms.unwrap.type": "io.debezium.transforms.ExtractNewRecordState"}
    found = jdbc_sink.jdbc_sink(fed, tmp_path, unwrap)
    assert not differences(held(fed.expected, jdbc_sink.NAME, fed.value_format), found)


@pytest.mark.long
def test_the_sink_reads_decimals_as_debezium_writes_them_by_default(feed_for: FeedFor, tmp_path: Path) -> None:
    fed = feed_for("debezium-schemas", decimals="precise")
    assert not differences(held(fed.expected, jdbc_sink.NAME, fed.value_format), jdbc_sink.jdbc_sink(fed, tmp_path))


@pytest.mark.long
def test_flinks_debezium_json_wants_each_old_row(feed_for: FeedFor, tmp_path: Path) -> None:
    """As the source sends it with REPLICA IDENTITY FULL only."""
    fed = replace(feed_for("debezium-schemas"), value_format="debezium")
    with pytest.raises(AssertionError, match='The "before" field of UPDATE message is null'):
        list(flink_sql.flink_sql(fed, tmp_path, {"debezium-json.schema-include": "true"}))


def test_who_reads_uncommitted_records_takes_aborted_ones_for_rows(feed_for: FeedFor, tmp_path: Path) -> None:
    """The default of Java's consumer."""
    fed = feed_for("json")
    found = differences(fed.expected, rows_of(programs.java_consumer(fed, tmp_path, "read_uncommitted")))
    assert any(line.startswith("missing") for line in found)
    assert any("in the source" in line and " doc: " not in line for line in found)


def test_the_page_tells_of_each_reader_and_of_what_it_cannot_hold() -> None:
    text = (Path(__file__).parents[2] / "docs" / "readers.md").read_text(encoding="utf-8")
    _, _, rest = text.partition("## Readers that are tested")
    matrix, losses_there = (_cells(each) for each in re.findall(r"(?:^\|.*\n)+", rest, re.MULTILINE)[:2])
    heads = dict(zip(FORMATS, matrix[0][1:], strict=True))
    said = {
        (re.sub(r"\[(.*)\].*", r"\1", name), each): cell
        for name, *cells in matrix[1:]
        for each, cell in zip(FORMATS, cells, strict=True)
    }
    assert said == {
        (name, each): "no" if (name, each) in REFUSALS else "loses" if (name, each) in LOSSES else "yes"
        for name in READERS
        for each in FORMATS
    }
    why = {
        (name, each): said_of_it
        for name, in_these, said_of_it in losses_there[1:]
        for each, head in heads.items()
        if head in in_these.split(", ")
    }
    assert why.keys() == LOSSES.keys() | REFUSALS.keys()
    says = [(case, each.says) for case, own in LOSSES.items() for each in own]
    says += [(case, refusal.says) for case, refusal in REFUSALS.items()]
    for case, words in says:
        assert words in why[case], case
    assert JSON_NULL.says in rest


def _cells(rows: str) -> list[list[str]]:
    cells = [[cell.strip() for cell in row.strip("|").split("|")] for row in rows.splitlines()]
    return [each for each in cells if set(each) != {"---"}]
