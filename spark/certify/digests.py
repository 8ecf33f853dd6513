"""Digests of a topic's rows by bucket, in Spark's own expressions: what a certificate says about the topic.

``cdc.contract.jobspec.certificate`` defines them. A hash of 128 bits is carried as two bigints per key. Sums are taken
over its four parts of 32 bits, which cannot overflow below 2^31 rows in a bucket.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from typing import Any, Final

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as fn

from cdc.contract.jobspec.certificate import (
    BUCKETS,
    Bucket,
    CertifiedDefinition,
    CertifiedFold,
    as_digest,
)
from cdc.contract.record import TableSchema
from cdc.spark.offsets import Extent
from cdc.spark.source.held_snapshot import HeldSnapshot
from cdc.spark.topic import header_field

ROW_HASH: Final = ("row_high", "row_low")
"""The columns with the two halves of each row's hash; null for a tombstone."""

_PART_DIGITS: Final = 8
_PART_BITS: Final = 32
_PART: Final = (1 << _PART_BITS) - 1
_PARTS: Final = 4
_RULES_DIGITS: Final = 16


def with_row_hashes(records: DataFrame) -> DataFrame:
    """Adds ``ROW_HASH`` to records from ``read_topic``, before their values are opened: the bytes themselves count."""
    nulls = fn.coalesce(header_field("json_null"), fn.lit(""))
    text = fn.concat(_counted("key"), _counted("value"), nulls.cast("binary"))
    digest = fn.sha2(text, 256)
    high, low = (fn.shiftleft(_part(digest, 2 * n), _PART_BITS).bitwiseOR(_part(digest, 2 * n + 1)) for n in (0, 1))
    return records.withColumns(dict(zip(ROW_HASH, (high, low), strict=True)))


def has_row_hashes(lines: DataFrame) -> bool:
    """Tells whether the lines have ``ROW_HASH``."""
    return set(ROW_HASH) <= set(lines.columns)


def bucket() -> Column:
    """Returns the bucket of a key, from ``key_hash``."""
    return (fn.col("key_hash") % BUCKETS).cast("int")


def sums() -> list[Column]:
    """Returns aggregates over keys with ``ROW_HASH``: ``rows`` counts those that have a row, and ``sum0`` … add up."""
    parts = (
        fn.shiftrightunsigned(column, shift).bitwiseAND(fn.lit(_PART))
        for column in ROW_HASH
        for shift in (_PART_BITS, 0)
    )
    return [fn.count(ROW_HASH[0]).alias("rows"), *(fn.sum(part).alias(f"sum{n}") for n, part in enumerate(parts))]


def digest_in(row: Mapping[str, Any]) -> str:
    """Returns the digest of collected ``sums``."""
    total = 0
    for number in range(_PARTS):
        total = (total << _PART_BITS) + (row[f"sum{number}"] or 0)
    return as_digest(total)


def bucket_digests(folded: DataFrame) -> tuple[Bucket, ...]:
    """Returns the digests of one topic, from ``topic_records.folded``."""
    return digests_by_topic(folded.withColumn("topic", fn.lit(""))).get("", ())


def digests_by_topic(folded: DataFrame) -> dict[str, tuple[Bucket, ...]]:
    """Returns the digests of several topics, which a column ``topic`` tells apart; topics without rows are missing."""
    rows = folded.where(fn.col(ROW_HASH[0]).isNotNull()).groupBy("topic", bucket().alias("bucket")).agg(*sums())
    found: dict[str, list[Bucket]] = {}
    for row in rows.collect():
        told = row.asDict()
        found.setdefault(row["topic"], []).append(Bucket(row["bucket"], row["rows"], digest_in(told)))
    return {topic: tuple(sorted(each)) for topic, each in found.items()}


def certified_fold(
    held: HeldSnapshot, extent: Extent, definitions: Mapping[str, TableSchema], buckets: tuple[Bucket, ...]
) -> CertifiedFold:
    """Returns what a certificate says about a topic.

    Args:
        held: the snapshot of the comparison.
        extent: the offsets that were read, from the topic's beginning.
        definitions: all definitions of the topic, by fingerprint.
        buckets: the digests.
    """
    return CertifiedFold(
        topic_id=extent.topic_id,
        offsets=tuple(zip(extent.starts, extent.ends, strict=True)),
        snapshot=held.text,
        lsn=str(held.lsn),
        definitions=tuple(CertifiedDefinition(name, _rules(each)) for name, each in sorted(definitions.items())),
        buckets=buckets,
    )


def _rules(definition: TableSchema) -> str:
    """Returns a hash of the rules as the schemas topic tells them. They hold a mark of the salt, never the salt."""
    if not definition.rules and definition.rows is None:
        return ""
    told = json.dumps([definition.rules, definition.rows])
    return hashlib.sha256(told.encode()).hexdigest()[:_RULES_DIGITS]


def _counted(name: str) -> Column:
    """Returns the bytes of a column after their number and a colon; null without a value."""
    return fn.concat(fn.concat(fn.octet_length(name).cast("string"), fn.lit(":")).cast("binary"), fn.col(name))


def _part(digest: Column, number: int) -> Column:
    digits = fn.substring(digest, 1 + _PART_DIGITS * number, _PART_DIGITS)
    return fn.conv(digits, 16, 10).cast("bigint")
