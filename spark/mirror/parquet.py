"""A lake of Parquet files: each micro-batch adds its latest records, and every few batches they become one row per key.

Types: boolean, integers and floats are Parquet's; everything else is PostgreSQL's text, because nothing else holds
every value (``NaN`` and 1000 digits of a numeric, ``infinity`` of a date).
"""

from __future__ import annotations

import fcntl
import uuid
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

from pyspark.sql import Column, DataFrame, SparkSession, Window
from pyspark.sql import functions as fn

from cdc.jobspec.deployment import Table
from cdc.jobspec.mirror import ParquetTarget
from cdc.kinds import Kind, kind_of
from cdc.spark.errors import JobError
from cdc.spark.mirror import manifest as manifests
from cdc.spark.mirror.definitions import Definitions
from cdc.spark.mirror.manifest import Manifest
from cdc.spark.mirror.position import Batch, Offsets, Position, admits
from cdc.spark.mirror.rows import RecordForm

_META: Final = ("cdc_key", "cdc_partition", "cdc_offset", "cdc_deleted")
SPARK_TYPES: Final[Mapping[Kind, str]] = {
    Kind.BOOL: "boolean",
    Kind.INT16: "smallint",
    Kind.INT32: "int",
    Kind.INT64: "bigint",
    Kind.FLOAT32: "float",
    Kind.FLOAT64: "double",
    **dict.fromkeys((Kind.DECIMAL, Kind.DATE, Kind.TIMESTAMP, Kind.TIMESTAMPTZ), "string"),
    **dict.fromkeys((Kind.BYTES, Kind.DOCUMENT, Kind.ASCII, Kind.TEXT), "string"),
}


class ParquetMirror:
    """A target of Parquet files, one writer at a time.

    Args:
        spark: writes and compacts.
        target: where.
        tables: to mirror.

    Raises:
        JobError: the folder cannot be written, or another process writes there.
    """

    def __init__(self, spark: SparkSession, target: ParquetTarget, tables: Sequence[Table]) -> None:
        self._spark = spark
        self._root = Path(target.path).absolute()
        self._compact_every = target.compact_every
        self._forms: dict[str, RecordForm] = {}
        try:
            for table in tables:
                (self._root / table.topic).mkdir(parents=True, exist_ok=True)
            self._lock = (self._root / ".lock").open("w")
            fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            raise JobError(f"another process mirrors into {self._root}", remedy="stop it first") from error
        except OSError as error:
            raise JobError(f"{self._root}: {error.strerror}", remedy="name a folder that can be written") from error
        self._manifests = {table.topic: manifests.read(self._root / table.topic, table.topic) for table in tables}
        for topic, manifest in self._manifests.items():
            manifests.sweep(self._root / topic, manifest)

    def close(self) -> None:
        """Let the next one write."""
        self._lock.close()

    def establish(self, definitions: Definitions) -> None:
        """Take notice of the columns; files are not touched."""
        for topic, manifest in self._manifests.items():
            self._forms[topic] = definitions.form(topic)
            if taken := set(_META) & set(self._forms[topic].columns):
                raise JobError(
                    f"the source of {topic} has a column {taken.pop()}", remedy="this table cannot be mirrored this way"
                )
            self._manifests[topic] = replace(
                manifest, columns=definitions.columns(topic), key=definitions.newest(topic).key
            )

    def positions(self) -> Mapping[str, Position]:
        """By topic."""
        return {topic: manifest.position for topic, manifest in self._manifests.items()}

    def forget(self) -> None:
        """Begin with empty tables."""
        for topic in self._manifests:
            self._switch(Manifest(topic))

    def apply(self, topic: str, latest: DataFrame, batch: Batch, ends: Offsets) -> bool:
        """Files first, then the manifest that names them: a crash between leaves files that nobody reads."""
        manifest = self._manifests[topic]
        if not admits(manifest.position, batch, ends):
            return False
        changes = manifest.changes
        if ends:
            name = f"changes-{batch.number}-{uuid.uuid4().hex}"
            self._rows(topic, latest).write.parquet(str(self._root / topic / name))
            changes = (*changes, name)
        self._switch(replace(manifest, changes=changes, position=manifest.position.after(batch, ends)))
        if len(changes) >= self._compact_every:
            self._compact(topic)
        return True

    def note_current(self, topic: str, position: Position, ends: Offsets, at_ms: int) -> None:
        """In the manifest."""
        manifest = self._manifests[topic]
        if manifest.position == position:
            self._switch(replace(manifest, position=position.current(ends, at_ms)))

    def finish(self) -> None:
        """Leave one row per key, and nothing for a reader to merge."""
        for topic, manifest in self._manifests.items():
            if manifest.changes or not manifest.state:
                self._compact(topic)

    def _rows(self, topic: str, latest: DataFrame) -> DataFrame:
        form, types = self._forms[topic], self._manifests[topic].columns
        nothing = [None] * len(form.columns)

        def convert(batches: Iterator[Any]) -> Iterator[Any]:
            import pyarrow

            for batch in batches:
                rows = [
                    (key, partition, offset, texts is None, *(nothing if texts is None else texts))
                    for key, partition, offset, texts in form.rows(batch)
                ]
                arrow = [pyarrow.string(), pyarrow.int32(), pyarrow.int64(), pyarrow.bool_()]
                arrow += [pyarrow.string()] * len(form.columns)
                arrays = [
                    pyarrow.array([row[place] for row in rows], type=kind) for place, kind in enumerate(arrow)
                ]  # fmt: skip
                yield pyarrow.RecordBatch.from_arrays(arrays, names=[*_META, *map(str, range(len(form.columns)))])

        texts = ", ".join(f"`{place}` string" for place in range(len(form.columns)))
        schema = f"cdc_key string, cdc_partition int, cdc_offset bigint, cdc_deleted boolean, {texts}"
        columns = [
            fn.col(f"`{place}`").cast(_parquet_type(types[name])).alias(name)
            for place, name in enumerate(form.columns)
        ]  # fmt: skip
        return latest.mapInArrow(convert, schema).select(*_META, *columns)

    def _compact(self, topic: str) -> None:
        manifest = self._manifests[topic]
        name = f"state-{uuid.uuid4().hex}"
        folder = self._root / topic
        parts = [self._read(topic, each) for each in (manifest.state, *manifest.changes) if each]
        if parts:
            everything = parts[0]
            for part in parts[1:]:
                everything = everything.unionByName(part)
            newest_first = Window.partitionBy("cdc_key").orderBy(fn.desc("cdc_offset"))
            ranked = everything.withColumn("cdc_rank", fn.row_number().over(newest_first))
            ranked.where("cdc_rank = 1 AND NOT cdc_deleted").drop("cdc_rank").write.parquet(str(folder / name))
        else:
            (folder / name).mkdir()
        self._switch(manifest.compacted(name))
        manifests.sweep(folder, self._manifests[topic])

    def _read(self, topic: str, name: str) -> DataFrame:
        """One folder with the columns of today: what it lacks is NULL, what has another type now is cast."""
        found = self._spark.read.parquet(str(self._root / topic / name))
        columns: list[Column] = [fn.col(each) for each in _META]
        for column, sql_type in self._manifests[topic].columns.items():
            value = fn.col(_quoted(column)) if column in found.columns else fn.lit(None)
            columns.append(value.cast(_parquet_type(sql_type)).alias(column))
        return found.select(*columns)

    def _switch(self, manifest: Manifest) -> None:
        manifests.write(self._root / manifest.topic, manifest)
        self._manifests[manifest.topic] = manifest


def _parquet_type(sql_type: str) -> str:
    kind = kind_of(sql_type)
    return "string" if kind.is_array else SPARK_TYPES[kind.kind]


def _quoted(name: str) -> str:
    return "`" + name.replace("`", "``") + "`"
