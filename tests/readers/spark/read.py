"""Reads a compacted topic with Spark, and writes each row as a JSON object.

Arguments: brokers, topic, format (json or avro), URL of the registry, jars, and the folder to write to.
"""

import json
import sys
import urllib.request

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.avro.functions import from_avro
from pyspark.sql.functions import col, expr, from_json, max_by, struct

SCHEMA = """
    id INT, code STRING, small SMALLINT, big BIGINT, price DECIMAL(12, 2), exact STRING, ratio FLOAT, measure DOUBLE,
    note STRING, ok BOOLEAN, day DATE, clock STRING, local_at TIMESTAMP_NTZ, seen_at TIMESTAMP, ref STRING, raw STRING,
    doc STRING, numbers ARRAY<INT>, words ARRAY<STRING>, mood STRING, added DECIMAL(6, 3)
"""


def from_registry(live: DataFrame, registry: str) -> DataFrame:
    """Read the rows of each schema with it; a row of an older one lacks columns."""
    with_id = live.select("value", expr("cast(conv(hex(substring(value, 2, 4)), 16, 10) AS INT)").alias("id"))
    found: DataFrame | None = None
    for (schema_id,) in with_id.select("id").distinct().collect():
        with urllib.request.urlopen(f"{registry}/schemas/ids/{schema_id}") as answer:
            schema = json.load(answer)["schema"]
        own = with_id.where(col("id") == schema_id).select(from_avro(expr("substring(value, 6)"), schema).alias("row"))
        rows = own.select("row.*")
        found = rows if found is None else found.unionByName(rows, allowMissingColumns=True)
    assert found is not None, "the topic is empty"
    return found


def main() -> None:
    """Read, fold, write."""
    brokers, topic, value_format, registry, jars, target = sys.argv[1:]
    spark = (
        SparkSession.builder.master("local[2]")
        .config("spark.jars", jars)
        .config("spark.sql.session.timeZone", "UTC")
        .config("spark.ui.enabled", "false")
        .config("spark.sql.shuffle.partitions", "2")
        .getOrCreate()
    )
    records = (
        spark.read.format("kafka")
        .option("kafka.bootstrap.servers", brokers)
        .option("kafka.isolation.level", "read_committed")
        .option("subscribe", topic)
        .option("startingOffsets", "earliest")
        .load()
    )
    # A key is always in one partition, so the record with the greatest offset is its newest.
    newest = records.groupBy("key").agg(max_by(struct("value"), "offset").alias("newest")).select("newest.value")
    live = newest.where("value IS NOT NULL").cache()
    if value_format == "json":
        rows = live.select(from_json(col("value").cast("string"), SCHEMA).alias("row")).select("row.*")
    else:
        rows = from_registry(live, registry)
    shown = {"seen_at": "seen_at || '+00'"}
    if value_format == "avro":
        shown["raw"] = "'\\\\x' || lower(hex(raw))"
    as_they_are = {"ok", "numbers", "words"}
    columns = [
        name if name in as_they_are else f"cast({shown.get(name, name)} AS STRING) AS {name}" for name in rows.columns
    ]
    rows.selectExpr(f"to_json(struct({', '.join(columns)})) AS value").write.text(target)
    spark.stop()


main()
