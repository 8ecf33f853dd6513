"""Which records count is said twice: by the rule, and by Spark's expressions. Random snapshots, the same answers."""

from __future__ import annotations

import os
import random

from pyspark.sql import SparkSession

from cdc.base.lsn import LSN
from cdc.contract.header import BACKFILL, UPDATE, HeaderStamp
from cdc.spark.reconcile.topic_records import RecordMoment
from cdc.spark.source.visibility import VisibleTransactions


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
