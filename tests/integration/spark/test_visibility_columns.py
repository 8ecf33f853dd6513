"""What is said twice, by a rule in Python and by Spark's expressions: which records count, and digests. Both agree."""

from __future__ import annotations

import os
import random

from pyspark.sql import SparkSession
from pyspark.sql import functions as fn

from cdc.base.lsn import LSN
from cdc.contract.header import BACKFILL, UPDATE, HeaderStamp
from cdc.spark.certify.digests import ROW_HASH, bucket_digests, with_row_hashes
from cdc.spark.reconcile.topic_records import RecordMoment, folded, hashed
from cdc.spark.source.visibility import VisibleTransactions
from tests.support.certified_rows import CertifiedRow, buckets_of


def random_snapshot(rng: random.Random) -> VisibleTransactions:
    xmin = rng.randrange(100, 110)
    xmax = rng.randrange(xmin, 116)
    return VisibleTransactions(xmin, xmax, frozenset(xid for xid in range(xmin, xmax) if rng.random() < 0.4))


def test_both_say_the_same(spark: SparkSession) -> None:
    seed = int(os.environ.get("SEED") or random.randrange(2**32))
    rng = random.Random(seed)
    for _ in range(6):
        moment = random_snapshot(rng)
        authors = [*range(98, 118), *(random_snapshot(rng) for _ in range(300))]
        rows, expected = [], []
        for number, author in enumerate(authors):
            if isinstance(author, int):
                header = HeaderStamp(LSN(1), author, 1).header(UPDATE, 1, "0" * 16)
                expected.append(moment.sees(author))
            else:
                header = HeaderStamp(LSN(1), None, 1, str(author)).header(BACKFILL, 1, "0" * 16)
                expected.append(moment.covers(author))
            rows.append((number, header.decode()))
        frame = spark.createDataFrame(rows, "number int, header string")
        counted = (
            frame.select("number", RecordMoment(snapshot=moment).counts().alias("counts")).orderBy("number").collect()
        )
        assert [row["counts"] for row in counted] == expected, f"SEED={seed}, {moment}"


def test_digests_are_the_same_in_spark(spark: SparkSession) -> None:
    seed = int(os.environ.get("SEED") or random.randrange(2**32))
    rng = random.Random(seed)
    newest: dict[bytes, CertifiedRow | None] = {}
    records = []
    for offset in range(400):
        key = b'{"id":%d}' % rng.randrange(150) if rng.random() < 0.9 else rng.randbytes(rng.randrange(1, 20))
        value = None if rng.random() < 0.2 else rng.randbytes(rng.randrange(40))
        nulls = rng.choice(("", "0", "3,11"))
        header = HeaderStamp(LSN(1), 5, 1).header(UPDATE, 1, "0" * 16).decode()
        records.append((key, value, 0, offset, offset, header + (f";json_null={nulls}" if nulls else "")))
        newest[key] = None if value is None else CertifiedRow(key, value, nulls)
    columns = "key binary, value binary, partition int, offset bigint, timestamp_ms bigint, header string"
    read = spark.createDataFrame(records, columns).repartition(3)
    moment = RecordMoment(snapshot=VisibleTransactions(9, 9, frozenset()))
    lines = hashed(with_row_hashes(read), 1, fn.lit(False), *ROW_HASH)
    expected = buckets_of(row for row in newest.values() if row is not None)
    assert bucket_digests(folded(lines, moment)) == expected, f"SEED={seed}"
