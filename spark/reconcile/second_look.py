"""The second look: decodes whole rows of the candidates, compares them column by column, and applies the rule.

It runs on Spark's workers, one key at a time. Its decoder of values shares no code with the bridge.
"""

from __future__ import annotations

import json
import re
import struct
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, Literal, NamedTuple, TypeAlias

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as fn

from cdc.base.errors import DecodeError
from cdc.contract import kinds
from cdc.contract.header import Header, parse_header
from cdc.contract.jobspec.deployment import JobTable
from cdc.contract.kinds import Kind
from cdc.contract.partition import partition_of
from cdc.contract.record import TableSchema
from cdc.spark.reconcile.causes import KnownDifference, RecordPlace, differing_columns, likely_cause
from cdc.spark.reconcile.origin import ForeignReason, PossibleRecords
from cdc.spark.reconcile.topic_records import RecordMoment
from cdc.spark.reconcile.verdict import TopicState, judge_scattered
from cdc.spark.topic import header_field, lsn_number
from cdc.spark.values.columns import kind_of, row_texts
from cdc.spark.values.objects import split_object

_FINDINGS: Final = pa.schema(
    [
        ("key", pa.string()),
        ("key_bytes", pa.binary()),
        ("difference", pa.string()),
        ("source", pa.map_(pa.string(), pa.string())),
        ("other", pa.map_(pa.string(), pa.string())),
        ("differing", pa.list_(pa.string())),
        ("partition", pa.int32()),
        ("offset", pa.int64()),
        ("op", pa.string()),
        ("lsn", pa.string()),
        ("seq", pa.int64()),
        ("xid", pa.int64()),
        ("commit_ts_us", pa.int64()),
        ("cause", pa.string()),
        ("bucket", pa.int32()),
        ("key_hash", pa.int64()),
        ("home_partition", pa.int32()),
        ("unsure", pa.bool_()),
    ]
)
_BLANKS: Final = " \t\n\r"
_FLOATS: Final = {Kind.FLOAT32: "<f", Kind.FLOAT64: "<d"}
_NUMBER: Final = re.compile(r"-?[0-9][^,{}]*")
_SAID: Final = 200
"""How many characters of a header are shown. The bridge's own headers have about a hundred."""
FINDINGS_DDL: Final = (
    "key string, key_bytes binary, difference string, source map<string,string>, other map<string,string>,"
    " differing array<string>,"
    " partition int, offset bigint, op string, lsn string, seq bigint, xid bigint, commit_ts_us bigint, cause string,"
    " bucket int, key_hash bigint, home_partition int, unsure boolean"
)
"""One row for each key that needed a second look, equal ones included (``difference`` is then ``identical``)."""

BUCKETS: Final = 64
"""How many bars the chart of key buckets has: enough to see a pattern, few enough to look at."""


class UnreadableValue(NamedTuple):
    """Stands for a value that does not hold a row by the topic contract, and says ``why``."""

    why: str


TopicRow: TypeAlias = Mapping[str, str | None] | UnreadableValue | None


@dataclass(frozen=True, slots=True)
class Rule:
    """Everything besides the key itself that the class of a key depends on.

    Attributes:
        table: the table, with its columns.
        partitions: how many partitions the topic has.
        kept_since_ms: the result of ``verdict.kept_since_ms``.
        outrun: the result of ``verdict.is_outrun``.
        compared: the columns that count; the others are only shown.
        definitions: the definitions that the table's records were written with, by fingerprint.
        side: as in ``comparison.Sides``.
        origin: as in ``comparison.Sides``.
    """

    table: JobTable
    partitions: int
    kept_since_ms: int
    outrun: bool
    compared: tuple[str, ...]
    definitions: Mapping[str, TableSchema] = field(default_factory=dict)
    side: Literal["topic", "replica", "lake"] = "topic"
    origin: PossibleRecords | None = None

    @property
    def documents(self) -> Collection[str]:
        """The columns of type json, which keep a document exactly as it was written."""
        return {each.name for each in self.table.columns if each.sql_type == "json"}

    @property
    def floats(self) -> Mapping[str, str]:
        """The columns of floating point numbers that were written in Avro, with the formats of ``struct``."""
        if all(each.format == "json-schema" for known in self.definitions.values() for each in known.written):
            return {}
        found = {each.name: kinds.kind_of(each.sql_type).kind for each in self.table.columns}
        return {name: _FLOATS[kind] for name, kind in found.items() if kind in _FLOATS}


def read_findings(spark: SparkSession, folder: str) -> DataFrame:
    """Reads stored findings. The schema is given, because Spark would run a job to read it from the files."""
    return spark.read.schema(FINDINGS_DDL).parquet(folder)


def latest_by_key(records: DataFrame, moment: RecordMoment, rule: Rule) -> DataFrame:
    """Reduces records to one row per key, with the latest record that counts in each partition.

    Returns:
        ``key`` binary, ``key_hash`` bigint, ``states``: an array with one struct per partition.
    """
    counts = moment.counts() if rule.origin is None else moment.counts() | rule.origin.is_foreign(rule.table.topic)
    position = fn.struct(lsn_number(header_field("lsn")), header_field("seq").cast("bigint"))
    counted = records.select(
        "*",
        fn.when(counts, moment.order()).alias("visible_at"),
        fn.when(counts, position).alias("position"),
    )
    latest = fn.struct("offset", "value", "header", "other_header", "position")
    by_partition = counted.groupBy("key", "key_hash", "partition").agg(
        fn.max_by(latest, "visible_at").alias("latest"),
        fn.max("position").alias("newest"),
        fn.min(fn.when(fn.col("visible_at").isNull(), fn.col("timestamp_ms"))).alias("oldest_invisible_ms"),
    )
    state = fn.struct(
        "partition",
        fn.col("latest.offset").alias("offset"),
        fn.col("latest.value").alias("value"),
        fn.col("latest.header").alias("header"),
        fn.col("latest.other_header").alias("other_header"),
        (fn.col("newest") > fn.col("latest.position")).alias("newer_before"),
        "oldest_invisible_ms",
    )
    return by_partition.groupBy("key", "key_hash").agg(fn.collect_list(state).alias("states"))


def findings(source: DataFrame, topic: DataFrame, rule: Rule) -> DataFrame:
    """Judges every key that either side has, except for rows of the source that ``--where`` leaves out.

    Args:
        source: from ``SourceRows.rows``.
        topic: from ``latest_by_key``.
        rule: how to judge.
    """
    left = source.select(fn.col("key").cast("binary").alias("key"), "key_hash", "source_columns", "chosen", "copies")
    joined = left.join(topic, ["key", "key_hash"], "full_outer")
    if rule.side == "topic":
        joined = joined.where(fn.coalesce("chosen", fn.lit(True)))
    return joined.mapInArrow(_judging(rule), FINDINGS_DDL)


def _judging(rule: Rule) -> Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    def judge_batches(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            yield pa.RecordBatch.from_pylist([_judged(rule, row) for row in batch.to_pylist()], schema=_FINDINGS)

    return judge_batches


def _judged(rule: Rule, row: Mapping[str, Any]) -> dict[str, Any]:
    key, columns = row["key"], rule.table.columns
    source = None
    if row["source_columns"] is not None:
        texts = json.loads(row["source_columns"])
        source = {column.name: text for column, text in zip(columns, texts, strict=True)}
    home = partition_of(key, rule.partitions)
    # The sink ignores records outside of the key's own partition, so they do not count against a replica.
    states = [each for each in row["states"] or [] if rule.side == "topic" or each["partition"] == home]
    topic_rows = {each["partition"]: topic_row(each, rule) for each in states}
    held, copies = compared_columns(source, rule), row["copies"] or 1
    difference = judge_scattered(
        held if copies == 1 else (copies, held),  # equals no row of a topic
        [_state(each, topic_rows[each["partition"]], rule) for each in states],
        home,
        rereads=rule.table.rereads,
        outrun=rule.outrun,
    )
    told = _telling_state(states, topic_rows, home)
    record, header = _place(told) if told is not None and told["offset"] is not None else (None, None)
    topic = topic_rows[told["partition"]] if told is not None else None
    unreadable, topic = (topic.why, {}) if isinstance(topic, UnreadableValue) else ("", topic)
    shown = _shown(source, topic, rule)
    foreign = None if told is None else _why_foreign(told, rule)
    finding = KnownDifference(
        difference=difference,
        source=shown[0],
        topic=shown[1],
        key=key,
        canonical_key=_canonical(key, rule.table),
        record=record,
        expected_partition=home,
        side=rule.side,
        types={column.name: column.sql_type for column in columns},
        unreadable=unreadable,
        foreign="" if foreign is None else foreign.text,
        copies=copies,
    )
    return {
        "key": key.decode("utf-8", "backslashreplace"),
        "key_bytes": key,
        "difference": difference.value,
        "source": source,
        "other": topic,
        "differing": list(differing_columns(shown[0], shown[1])) if shown[0] and shown[1] else [],
        "unsure": foreign is not None and foreign.may_be_ours,
        "partition": record.partition if record else None,
        "offset": record.offset if record else None,
        "op": header.op if header else None,
        "lsn": str(header.lsn) if header else None,
        "seq": header.seq if header else None,
        "xid": header.xid if header else None,
        "commit_ts_us": header.ts if header else None,
        "cause": likely_cause(finding) if difference.is_difference else "",
        "bucket": row["key_hash"] % BUCKETS,
        "key_hash": row["key_hash"],
        "home_partition": home,
    }


def _telling_state(states: Sequence[Mapping[str, Any]], rows: Mapping[int, Any], home: int) -> Mapping[str, Any] | None:
    """Returns the state to show. A live record in a wrong partition explains more than the one in the right one."""
    strays = [each for each in states if each["partition"] != home and rows[each["partition"]] is not None]
    return next(iter(strays), next((each for each in states if each["partition"] == home), None))


def _state(state: Mapping[str, Any], row: TopicRow, rule: Rule) -> TopicState:
    oldest = state["oldest_invisible_ms"]
    return TopicState(
        partition=state["partition"],
        offset=state["offset"],
        digest=compared_columns(row, rule),
        toast_newer=";toast=newer" in (state["header"] or ""),
        oldest_invisible_ms=oldest,
        kept=oldest is None or oldest > rule.kept_since_ms,
        is_foreign=_why_foreign(state, rule) is not None,
    )


def _why_foreign(state: Mapping[str, Any], rule: Rule) -> ForeignReason | None:
    """Returns why the bridge cannot have written the latest record that counts; None if it can, or if there is none."""
    if rule.origin is None or state["offset"] is None:
        return None
    return rule.origin.why_foreign(rule.table.topic, state["header"], state["other_header"])


def compared_columns(row: TopicRow, rule: Rule) -> tuple[object, ...] | None:
    """Returns the columns of a row that count.

    A column that an older record lacks is NULL, as for any reader of the topic. A replica does not keep the blanks
    around a JSON document (docs/exceptions.md), so they are stripped for it. Avro holds floating point numbers, not
    texts, and Java spells a few of them unlike PostgreSQL, so they are compared as numbers.
    """
    if row is None:
        return None
    if isinstance(row, UnreadableValue):
        return (row,)  # readers of the topic get this value as the row, so it must differ from every row
    documents, floats = (rule.documents if rule.side == "replica" else ()), rule.floats
    texts = ((name, row.get(name)) for name in rule.compared)
    return tuple(
        text.strip(_BLANKS) if text and name in documents
        else as_floats(text, floats[name]) if text and name in floats
        else text
        for name, text in texts
    )  # fmt: skip


def as_floats(text: str, form: str) -> str:
    """Returns a text with its floating point numbers in a form that the same numbers have in common.

    Args:
        text: a number or an array of numbers, as text.
        form: their format, for ``struct``.
    """

    def bits(found: re.Match[str]) -> str:
        try:
            return struct.pack(form, float(found[0])).hex()
        except (ValueError, OverflowError):
            return found[0]

    return _NUMBER.sub(bits, text)


def _shown(
    source: Mapping[str, str | None] | None, topic: Mapping[str, str | None] | None, rule: Rule
) -> tuple[Mapping[str, str | None] | None, Mapping[str, str | None] | None]:
    """Returns both rows, each with those of the compared columns that it has."""

    def only(row: Mapping[str, str | None] | None) -> Mapping[str, str | None] | None:
        return None if row is None else {name: row[name] for name in rule.compared if name in row}

    return only(source), only(topic)


def topic_row(state: Mapping[str, Any], rule: Rule) -> TopicRow:
    """Returns the row in the latest record that counts; None if that is a tombstone, or if there is none."""
    if state["offset"] is None or state["value"] is None:
        return None
    try:
        header = parse_header(state["header"].encode()) if state["header"] else None
        return _texts(state["value"], header, rule)
    except (DecodeError, UnicodeDecodeError) as error:
        return UnreadableValue(str(error))


def _texts(value: bytes, header: Header | None, rule: Rule) -> dict[str, str | None]:
    """Reads a record's columns with the definition it was written with, because the table may have changed since."""
    kinds = {column.name: kind_of(column.sql_type) for column in rule.table.columns}
    if header is None:
        return row_texts(value, kinds)
    written = rule.definitions.get(header.schema)
    if written is not None:
        kinds = {column.name: kind_of(column.sql_type) for column in written.columns}
    names = None if written is None else [column.name for column in written.columns]
    return row_texts(value, kinds, header.null_documents(names))


def _place(state: Mapping[str, Any]) -> tuple[RecordPlace, Header | None]:
    try:
        header = parse_header((state["header"] or "").encode())
    except DecodeError:
        return RecordPlace(None, None, None, None, state["partition"], state["offset"], said=_said(state)), None
    newer_before = bool(state["newer_before"])
    place = RecordPlace(
        header.op,
        header.lsn,
        header.xid,
        header.ts,
        state["partition"],
        state["offset"],
        newer_before,
        said=_said(state),
    )
    return place, header


def _said(state: Mapping[str, Any]) -> str:
    return (state["header"] or state["other_header"] or "")[:_SAID]


def _canonical(key: bytes, table: JobTable) -> bytes:
    """Returns the bytes that the contract prescribes for this logical key; the bytes given if they are not a key."""
    kinds = {column.name: column.kind for column in table.columns}
    try:
        members = split_object(key.decode())
        if set(members) != set(table.key):
            return key
        parts = []
        for name in table.key:
            value = json.loads(members[name], parse_float=str, parse_int=str)
            plain = kinds[name] in ("number", "bool")
            text = str(value).lower() if isinstance(value, bool) else str(value)
            parts.append(
                f"{json.dumps(name, ensure_ascii=False)}:{text if plain else json.dumps(text, ensure_ascii=False)}"
            )
    except (DecodeError, ValueError):
        return key
    return ("{" + ",".join(parts) + "}").encode()
