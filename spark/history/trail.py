"""Turns history records into the audit trail: what each change did to a key. Values are read in Python workers."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Final

import pyarrow as pa
from pyspark.sql import DataFrame
from pyspark.sql import functions as fn

from cdc.base.errors import DecodeError
from cdc.spark.values.objects import split_object, unquote

_VERSION: Final = "1"
_TEXTS: Final = pa.schema(
    [
        ("key", pa.string()),
        ("op", pa.string()),
        ("xid", pa.int64()),
        ("changed", pa.list_(pa.string())),
        ("old_is_whole", pa.bool_()),
        ("old", pa.string()),
        ("new", pa.string()),
        ("schema", pa.string()),
        ("lsn", pa.string()),
        ("seq", pa.int64()),
        ("commit_us", pa.int64()),
        ("partition", pa.int32()),
        ("offset", pa.int64()),
    ]
)
_SPARK_TYPES: Final = (
    "key string, op string, xid bigint, changed array<string>, old_is_whole boolean, old string, new string,"
    " schema string, lsn string, seq bigint, commit_us bigint, partition int, offset bigint"
)


def trail(records: DataFrame) -> DataFrame:
    """Returns one row per change.

    Args:
        records: the records of a history topic, from ``read_topic``.

    Returns:
        ``key``, ``op`` (what happened to this key), ``lsn``, ``seq``, ``xid``, ``commit_time``, ``changed`` (the
        columns that an update changed; null if the whole old row is not known), ``old``, ``new`` (JSON as the stream
        had it), ``old_is_whole``, ``schema``, ``partition``, ``offset``.
    """
    told = records.select("key", "value", "partition", "offset").mapInArrow(_decode, _SPARK_TYPES)
    return told.select(
        "key", "op", "lsn", "seq", "xid", fn.timestamp_micros("commit_us").alias("commit_time"), "changed", "old",
        "new", "old_is_whole", "schema", "partition", "offset",
    )  # fmt: skip


def change(value: bytes) -> dict[str, Any]:
    """Parses the fields of a history value.

    Raises:
        DecodeError: the value is not a history value of version 1.
    """
    try:
        fields = split_object(value.decode())
        if fields["v"] != _VERSION:
            raise DecodeError("unknown version")
        old, new = _row(fields["old"]), _row(fields["new"])
        op = unquote(fields["op"])
        whole = old is not None and (new is None or old.keys() == new.keys())
        compared = op == "u" and whole and new is not None
        return {
            "op": op,
            "lsn": unquote(fields["lsn"]),
            "seq": int(fields["seq"]),
            "xid": None if fields["xid"] == "null" else int(fields["xid"]),
            "commit_us": int(fields["ts"]),
            "schema": unquote(fields["schema"]),
            "old": None if old is None else fields["old"],
            "new": None if new is None else fields["new"],
            "old_is_whole": whole,
            "changed": [name for name in new or () if (old or {})[name] != (new or {})[name]] if compared else None,
        }
    except (KeyError, ValueError, DecodeError) as error:
        raise DecodeError(f"history record is not of topic contract version 1: {value[:200]!r}") from error


def _row(text: str) -> Mapping[str, str] | None:
    return None if text == "null" else split_object(text)


def _decode(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    for batch in batches:
        rows = [
            {
                **change(each["value"]),
                "key": each["key"].decode(),
                "partition": each["partition"],
                "offset": each["offset"],
            }
            for each in batch.to_pylist()
        ]
        yield pa.RecordBatch.from_pylist(rows, schema=_TEXTS)
