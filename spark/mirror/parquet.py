"""A lake of Parquet files. Each micro-batch adds its latest records; every few batches they become one row per key.

Boolean, integer and float columns have Parquet's types. Everything else is PostgreSQL's text, because no other type
holds every value (``NaN`` and 1000 digits of a numeric, ``infinity`` of a date). After a column's type has changed,
older records keep values of the older type until the bridge publishes their rows again. So the column gets a type that
holds the values of all its types, text if need be. When that type changes, all files are rewritten.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

from pyspark.sql import Column, DataFrame, SparkSession, Window
from pyspark.sql import functions as fn

from cdc.contract.jobspec.mirror import MirrorJob
from cdc.contract.kinds import Kind, kind_of
from cdc.spark.errors import JobError
from cdc.spark.mirror import manifest as manifests
from cdc.spark.mirror.definitions import Definitions
from cdc.spark.mirror.folder import hold
from cdc.spark.mirror.manifest import LakeManifest
from cdc.spark.mirror.position import LakePosition, MicroBatch, Offsets, admits
from cdc.spark.mirror.rows import LakeRecordForm

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

_WIDER: Final[Mapping[str, tuple[str, ...]]] = {
    "smallint": ("int", "bigint", "double", "string"),
    "int": ("bigint", "double", "string"),
    "bigint": ("string",),
    "float": ("double", "string"),
    "double": ("string",),
    "boolean": ("string",),
    "string": (),
}
"""The types that can hold the values of each type's texts, narrowest first."""

_EXACT: Final = frozenset({"smallint", "int", "bigint"})
"""The types whose values in a file tell the record's text. ``float`` does not: its ``0.1`` is another number than the
``0.1`` of ``double``. Nor does ``boolean``, which PostgreSQL prints in two ways."""


class ParquetMirror:
    """The folder with the copies. It applies each micro-batch exactly once, and allows one writer at a time.

    Args:
        spark: the session that writes and compacts.
        job: names the folder and the tables.

    Raises:
        JobError: the folder is not writable, or another process writes into it.
    """

    def __init__(self, spark: SparkSession, job: MirrorJob) -> None:
        self._spark = spark
        self._root = Path(job.path).absolute()
        self._compact_every = job.compact_every
        self._forms: dict[str, LakeRecordForm] = {}
        for table in job.tables:
            if (self._root / table.topic / "_delta_log").exists():
                raise JobError(f"{self._root / table.topic} holds a Delta table", remedy="name another folder")
            if (self._root / table.topic / "metadata").exists():
                raise JobError(f"{self._root / table.topic} holds an Iceberg table", remedy="name another folder")
        self._lock = hold(self._root, [table.topic for table in job.tables])
        self._manifests = {table.topic: manifests.read(self._root / table.topic, table.topic) for table in job.tables}
        for topic, manifest in self._manifests.items():
            manifests.sweep(self._root / topic, manifest)

    def close(self) -> None:
        """Releases the folder for the next writer."""
        self._lock.close()

    def establish(self, definitions: Definitions) -> None:
        """Learns the columns, at the start and after each new definition; rewrites the files if a type changes.

        Raises:
            JobError: a column has a name that the mirror needs, or the files do not tell a column's original texts.
        """
        for topic, manifest in self._manifests.items():
            self._forms[topic] = definitions.form(topic)
            if taken := set(_META) & set(self._forms[topic].columns):
                raise JobError(
                    f"the table of {topic} has a column {taken.pop()}, a name that the mirror needs for itself",
                    remedy="rename the column, or leave the table out: it cannot be mirrored as it is",
                )
            types = {name: _common_type(sql_types) for name, sql_types in definitions.types(topic).items()}
            is_other = self._refuse_lost_texts(topic, types)
            self._manifests[topic] = replace(
                manifest, columns=definitions.columns(topic), types=types, key=definitions.newest(topic).key
            )
            if is_other and (manifest.state or manifest.changes):
                self._compact(topic)

    def positions(self) -> Mapping[str, LakePosition]:
        """Returns the position of each table, by topic."""
        return {topic: manifest.position for topic, manifest in self._manifests.items()}

    def forget(self) -> None:
        """Starts over with empty tables, at no position."""
        for topic in self._manifests:
            self._switch(LakeManifest(topic))

    def apply(self, topic: str, latest: DataFrame, batch: MicroBatch, ends: Offsets) -> bool:
        """Applies one topic's part of a batch: rows and position together.

        Args:
            topic: the topic.
            latest: the last record of each key: ``key``, ``value``, ``partition``, ``offset``, ``header``.
            batch: the batch that Spark offers.
            ends: the offset after the batch's last record, by partition.

        Returns:
            True if the batch was applied now; False if it had been applied before.

        Raises:
            NotItsTurn: the batch does not follow the last one; nothing was changed.
        """
        manifest = self._manifests[topic]
        if not admits(manifest.position, batch, ends):
            return False
        changes = manifest.changes
        if ends:
            name = f"changes-{batch.number}-{uuid.uuid4().hex}"
            # Write the files before the manifest that names them: a crash in between leaves files that nobody reads.
            self._rows(topic, latest).write.parquet(str(self._root / topic / name))
            changes = (*changes, name)
        self._switch(replace(manifest, changes=changes, position=manifest.position.after(batch, ends)))
        if len(changes) >= self._compact_every:
            self._compact(topic)
        return True

    def note_current(self, topic: str, position: LakePosition, ends: Offsets, at_ms: int) -> None:
        """Notes in the manifest that the table was complete up to ``ends``, unless its position has changed since."""
        manifest = self._manifests[topic]
        if manifest.position == position:
            self._switch(replace(manifest, position=position.current(ends, at_ms)))

    def finish(self) -> None:
        """Compacts all tables to one row per key, so that a reader has nothing to merge."""
        for topic, manifest in self._manifests.items():
            if manifest.changes or not manifest.state:
                self._compact(topic)

    def _refuse_lost_texts(self, topic: str, types: Mapping[str, str]) -> bool:
        """Tells whether any column gets another type; raises an error if the files do not tell its original texts."""
        manifest = self._manifests[topic]
        former = manifest.types or {name: _common_type((each,)) for name, each in manifest.columns.items()}
        changed = {name: kind for name, kind in types.items() if former.get(name, kind) != kind}
        for name, kind in changed.items():
            if (manifest.state or manifest.changes) and former[name] not in _EXACT:
                raise JobError(
                    f"column {name!r} of {topic} changed its type: it has to be {kind} in the copy now, "
                    f"but the copy has it as {former[name]}, which does not tell how the records spell it",
                    remedy="rebuild the copy with the same command and --rebuild",
                )
        return bool(changed)

    def _rows(self, topic: str, latest: DataFrame) -> DataFrame:
        form, types = self._forms[topic], self._manifests[topic].types
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
            fn.col(f"`{place}`").cast(types[name]).alias(name)
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
        """Reads one folder with today's columns: a column that it lacks is NULL, one of another type is cast."""
        found = self._spark.read.parquet(str(self._root / topic / name))
        columns: list[Column] = [fn.col(each) for each in _META]
        for column, kind in self._manifests[topic].types.items():
            value = fn.col(_quoted(column)) if column in found.columns else fn.lit(None)
            columns.append(value.cast(kind).alias(column))
        return found.select(*columns)

    def _switch(self, manifest: LakeManifest) -> None:
        manifests.write(self._root / manifest.topic, manifest)
        self._manifests[manifest.topic] = manifest


def _common_type(sql_types: Sequence[str]) -> str:
    """Returns the narrowest Spark type that holds every value of all these SQL types unchanged."""
    kinds = {_spark_type(each) for each in sql_types}
    return next(wide for wide in _WIDER if all(each == wide or wide in _WIDER[each] for each in kinds))


def _spark_type(sql_type: str) -> str:
    kind = kind_of(sql_type)
    return "string" if kind.is_array else SPARK_TYPES[kind.kind]


def _quoted(name: str) -> str:
    return "`" + name.replace("`", "``") + "`"
