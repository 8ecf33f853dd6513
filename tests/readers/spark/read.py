"""Reads a compacted topic with Spark, and writes each row as a JSON object.

Arguments: brokers, topic, format, URL of the registry, jars, and the folder to write to.
"""

import json
import subprocess
import sys
import urllib.request
from pathlib import Path

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.avro.functions import from_avro
from pyspark.sql.functions import col, expr, from_json, max_by, struct, udf

SCHEMA = """
    id INT, code STRING, small SMALLINT, big BIGINT, price DECIMAL(12, 2), exact STRING, ratio FLOAT, measure DOUBLE,
    note STRING, ok BOOLEAN, day DATE, clock STRING, local_at TIMESTAMP_NTZ, seen_at TIMESTAMP, ref STRING, raw STRING,
    doc STRING, numbers ARRAY<INT>, words ARRAY<STRING>, mood STRING, added DECIMAL(6, 3)
"""
EVENT = SCHEMA.replace("day DATE, clock STRING, local_at TIMESTAMP_NTZ", "day INT, clock BIGINT, local_at BIGINT")
MESSAGE = (
    SCHEMA.replace("BIGINT", "STRING")
    .replace("ARRAY<INT>", "STRUCT<elements: ARRAY<STRUCT<value: INT>>>")
    .replace("ARRAY<STRING>", "STRUCT<elements: ARRAY<STRUCT<value: STRING>>>")
)
IN_JSON = {
    "json": (SCHEMA, "row.*"),
    "json-schema": (SCHEMA, "row.*"),
    "protobuf": (MESSAGE, "row.*"),
    "debezium": (f"after STRUCT<{EVENT}>", "row.after.*"),
    "debezium-schemas": (f"payload STRUCT<after: STRUCT<{EVENT}>>", "row.payload.after.*"),
    "connect": (f"payload STRUCT<{SCHEMA}>", "row.payload.*"),
}
"""The schema of a value in JSON, and where its columns are."""


def messages(live: DataFrame, schema: str) -> DataFrame:
    """Print Protobuf as JSON, by the module that protoc makes of a schema."""
    Path("orders.proto").write_text(schema, encoding="utf-8")
    subprocess.run([sys.executable, "-m", "grpc_tools.protoc", "-I.", "--python_out=.", "orders.proto"], check=True)
    live.sparkSession.sparkContext.addPyFile("orders_pb2.py")

    @udf("string")
    def as_json(value: bytes) -> str:
        from google.protobuf.json_format import MessageToJson
        from orders_pb2 import matrix  # type: ignore[import-not-found]

        text: str = MessageToJson(matrix.FromString(value[6:]), always_print_fields_with_no_presence=True)
        return text

    return live.select(as_json("value").alias("value"))


def of_registry(path: str) -> str:
    """A schema."""
    with urllib.request.urlopen(path) as answer:
        schema: str = json.load(answer)["schema"]
    return schema


def from_registry(live: DataFrame, registry: str) -> DataFrame:
    """Read the rows of each schema with it; a row of an older one lacks columns."""
    with_id = live.select("value", expr("cast(conv(hex(substring(value, 2, 4)), 16, 10) AS INT)").alias("id"))
    found: DataFrame | None = None
    for (schema_id,) in with_id.select("id").distinct().collect():
        schema = of_registry(f"{registry}/schemas/ids/{schema_id}")
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
    if value_format == "protobuf":
        live = messages(live, of_registry(f"{registry}/subjects/{topic}-value/versions/latest"))
    elif value_format == "json-schema":
        live = live.select(expr("substring(value, 6)").alias("value"))
    if value_format == "avro":
        rows = from_registry(live, registry)
    else:
        schema, columns_of = IN_JSON[value_format]
        rows = live.select(from_json(col("value").cast("string"), schema).alias("row")).select(columns_of)
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
