"""Iceberg tables in a folder, with a catalog in SQLite. Spark computes and writes files, and this process commits them.

There is no Iceberg runtime for this version of Spark, so commits are made with pyiceberg. A commit is one snapshot: its
summary carries what the mirror tells, and it takes files out of the table and puts others in. It fails if the table's
newest snapshot is not the one that the mirror saw last, and is not tried again, because the rows were computed from it.

A merge is a copy on write: the files that hold a key of the batch are written anew without these keys. They are found
by a join of the batch with the tables' key columns. If the files were buckets of keys instead, nothing would have to be
searched, but a batch of any thousand keys would touch each bucket. As it is, rows that came together lie together, and
most changes are to rows that came of late.
"""

from __future__ import annotations

import json
import sqlite3
import time
from collections.abc import Collection, Iterable, Iterator, Mapping
from contextlib import closing, contextmanager, suppress
from itertools import count
from pathlib import Path
from typing import Final

from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.exceptions import CommitFailedException, NoSuchTableError
from pyiceberg.io.pyarrow import parquet_file_to_data_file, schema_to_pyarrow
from pyiceberg.manifest import DataFile
from pyiceberg.schema import Schema
from pyiceberg.table import Table, Transaction
from pyiceberg.table.snapshots import Operation, Snapshot, ancestors_of
from pyiceberg.types import (
    BinaryType,
    BooleanType,
    DateType,
    DecimalType,
    DoubleType,
    FloatType,
    IcebergType,
    IntegerType,
    ListType,
    LongType,
    MapType,
    NestedField,
    PrimitiveType,
    StringType,
    TimestampType,
    TimestamptzType,
)
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as fn
from pyspark.sql.types import ArrayType, DataType, ShortType, StructType
from pyspark.sql.types import DecimalType as SparkDecimal
from pyspark.sql.types import MapType as SparkMap
from sqlalchemy.exc import SQLAlchemyError

from cdc.base.crashpoints import reach
from cdc.spark.errors import JobError
from cdc.spark.mirror.iceberg_files import FULL_BYTES, DataFileWriter
from cdc.spark.mirror.typed_rows import DELETED, KEY, quoted
from cdc.spark.mirror.versioned import MARKS, OTHER_FOLDER

NAMESPACE: Final = "cdc"
_CATALOG: Final = "cdc"
_DATABASE: Final = "catalog.db"
_TOLD: Final = "cdc"
_TABLES: Final = {"iceberg_tables", "iceberg_namespace_properties"}
_MAGIC: Final = b"SQLite format 3\0"
_SMALL_BYTES: Final = FULL_BYTES // 4
_HOUR_MS: Final = 3_600_000
_DAY_S: Final = 86_400
_SCHEME: Final = "file://"
_PROPERTIES: Final[Mapping[str, str]] = {
    "commit.retry.num-retries": "0",
    "write.metadata.delete-after-commit.enabled": "true",
    "write.metadata.previous-versions-max": "20",
}
_PLAIN: Final[Mapping[str, PrimitiveType]] = {
    "boolean": BooleanType(),
    "int": IntegerType(),
    "bigint": LongType(),
    "float": FloatType(),
    "double": DoubleType(),
    "string": StringType(),
    "binary": BinaryType(),
    "date": DateType(),
    "timestamp": TimestamptzType(),
    "timestamp_ntz": TimestampType(),
}
_OF_SPARK: Final[Mapping[str, str]] = {str(kind): name for name, kind in _PLAIN.items()}


class IcebergLake:
    """The Iceberg tables in a folder.

    Args:
        spark: any session.
        root: the folder.

    Raises:
        JobError: the folder's catalog is not one of the mirror's.
    """

    name: Final = "Iceberg"
    tend_every_ms: Final = _HOUR_MS
    cuts_kept: Final = 1000
    """The metadata of a table names all its versions, and each commit writes it anew."""

    def __init__(self, spark: SparkSession, root: Path) -> None:
        self._spark = spark
        self._root = root
        self.catalog: SqlCatalog | None = None
        if found := set("#?%") & set(str(root)):
            raise JobError(
                f"the path {root} has a {found.pop()!r}, which means something in Iceberg's addresses",
                remedy=OTHER_FOLDER,
            )
        if _is_catalog(root / _DATABASE):
            self.open()

    def table(self, name: str) -> IcebergTable:
        """Returns the table of this name."""
        return IcebergTable(self._spark, self, name, self._root / name)

    def open(self) -> None:
        """Opens the catalog, and makes it if there is none."""
        if self.catalog is None:
            with _answered(self._root):
                self.catalog = SqlCatalog(_CATALOG, uri=f"sqlite:///{self._root / _DATABASE}")

    def close(self) -> None:
        """Closes the catalog."""
        if self.catalog is not None:
            self.catalog.engine.dispose()


class IcebergTable:
    """One table in its folder.

    Args:
        spark: any session.
        lake: has the catalog.
        name: the table's name in the catalog.
        folder: where the table is, or will be.
    """

    def __init__(self, spark: SparkSession, lake: IcebergLake, name: str, folder: Path) -> None:
        self._spark = spark
        self._lake = lake
        self._identifier = (NAMESPACE, name)
        self.folder = folder
        self._location = f"{_SCHEME}{folder}"
        self._loaded: Table | None = None

    @property
    def _table(self) -> Table:
        if self._loaded is None:
            raise JobError(f"there is no table in {self.folder}", remedy="start again")
        return self._loaded

    def exists(self) -> bool:
        """Tells whether the catalog has the table, and its folder is there."""
        catalog = self._lake.catalog
        if self._loaded is None and catalog is not None and self.folder.exists():
            try:
                with _answered(self.folder):
                    self._loaded = catalog.load_table(self._identifier)
            except NoSuchTableError:
                return False
            if self._loaded.location() != self._location:
                raise JobError(
                    f"the catalog in {self.folder.parent} names tables in {self._loaded.location()}",
                    remedy="bring the lake back to its former place: the files of Iceberg tables name each other by "
                    "their paths",
                )
        return self._loaded is not None

    def is_taken(self) -> bool:
        """Tells whether the folder holds more than what a mirror leaves that is killed in its first commit.

        That is metadata of a table with our marks, or none that is whole.
        """
        metadata = self.folder / "metadata"
        return self.folder.exists() and (
            any(each != metadata for each in self.folder.iterdir())
            or not all(map(_is_marked, metadata.glob("*.metadata.json")))
        )

    def properties(self) -> Mapping[str, str]:
        """Returns the table's properties."""
        return self._table.properties

    def columns(self) -> Mapping[str, str]:
        """Returns the type of each column."""
        return spark_types(self._table.schema())

    def types_of(self, schema: StructType) -> Mapping[str, str]:
        """Returns the same for other columns: Iceberg has no small integers."""
        return spark_types(Schema(*_fields_of(schema)))

    def rows(self) -> DataFrame:
        """Returns the newest rows."""
        return self._read(self._files())

    def rows_at(self, version: int) -> DataFrame:
        """Returns the rows of a snapshot, with the columns that it had."""
        scan = self._table.scan(snapshot_id=version)
        with _answered(self.folder):
            files = [each.file for each in scan.plan_files()]
        return self._read(files, spark_types(scan.projection()))

    def commits(self) -> Iterator[tuple[int, str | None]]:
        """Yields each snapshot and what it tells, newest first."""
        for snapshot in self._line():
            yield snapshot.snapshot_id, _told(snapshot)

    def committed(self, since: int) -> int:
        """Returns the newest snapshot, which is this process's: a commit after another's fails."""
        snapshot = self._table.current_snapshot()
        return since if snapshot is None else snapshot.snapshot_id

    def changes_of_others(self) -> Collection[str]:
        """Returns what the snapshots after the mirror's last one did, unless it was packing."""
        found = []
        for snapshot in self._line():
            if _told(snapshot) is not None:
                break
            if snapshot.summary is None or snapshot.summary.operation is not Operation.REPLACE:
                found.append("?" if snapshot.summary is None else snapshot.summary.operation.value)
        return found

    def create(self, schema: StructType, properties: Mapping[str, str], tells: str) -> None:
        """Makes the table, with a snapshot of no rows."""
        catalog = self._lake.catalog
        assert catalog is not None
        with _answered(self.folder):
            catalog.create_namespace_if_not_exists(NAMESPACE)
            with suppress(NoSuchTableError):
                catalog.drop_table(self._identifier)  # somebody removed its folder
            transaction = catalog.create_table_transaction(
                self._identifier,
                Schema(*_fields_of(schema)),
                location=self._location,
                properties={**_PROPERTIES, **properties},
            )
            with transaction.update_snapshot(snapshot_properties={_TOLD: tells}).fast_append():
                pass
            transaction.commit_transaction()
            self._loaded = catalog.load_table(self._identifier)

    def alter(self, schema: StructType, tells: str) -> bool:
        """Adds the columns that the table lacks; tells whether it made a commit."""
        held = self.columns()
        added = StructType([field for field in schema if field.name not in held])
        if not added.fields:
            return False
        transaction = self._table.transaction()
        _add(transaction, added)
        self._commit(transaction, tells)
        return True

    def append(self, rows: DataFrame, tells: str, number: int) -> None:  # noqa: ARG002
        """Adds rows; a commit after another's fails, so the number says nothing new."""
        self._commit(self._table.transaction(), tells, rows=rows)

    def merge(self, changes: DataFrame, tells: str, number: int) -> None:  # noqa: ARG002
        """Replaces the rows of some keys, by writing the files anew that hold them."""
        changes = changes.persist()
        try:
            files = self._files()
            touched = self._touched(files, changes)
            kept = self._read(touched).join(changes.select(KEY), KEY, "left_anti")
            came = changes.where(~fn.col(DELETED)).drop(DELETED)
            rows = _projected(came, self.columns()).unionByName(_projected(kept, self.columns()))
            self._commit(self._table.transaction(), tells, removed=touched, rows=rows)
        finally:
            changes.unpersist()

    def replace(self, rows: DataFrame, tells: str, number: int) -> None:  # noqa: ARG002
        """Puts these rows and columns in the place of all that the table has."""
        held, wanted = self.columns(), self.types_of(rows.schema)
        transaction = self._table.transaction()
        gone = [name for name, kind in held.items() if wanted.get(name) != kind]
        if gone:
            with transaction.update_schema() as update:
                for name in gone:
                    update.delete_column((name,))
        _add(transaction, StructType([each for each in rows.schema if held.get(each.name) != wanted[each.name]]))
        self._commit(transaction, tells, removed=self._files(), rows=rows)

    def delete(self, condition: str, tells: str, number: int | None = None) -> None:  # noqa: ARG002
        """Removes the rows that meet a condition, by writing the others anew."""
        kept = self.rows().where(f"NOT ({condition})").coalesce(1)
        self._commit(self._table.transaction(), tells, removed=self._files(), rows=kept)

    def compact(self, tells: str) -> None:
        """Packs small files into few, if there are any."""
        small = [each for each in self._files() if each.file_size_in_bytes < _SMALL_BYTES]
        if len(small) > 1:
            files = -(-sum(each.file_size_in_bytes for each in small) // _SMALL_BYTES)
            rows = self._read(small).coalesce(files)
            self._commit(self._table.transaction(), tells, removed=small, rows=rows)

    def tell(self, tells: str, number: int) -> bool:  # noqa: ARG002
        """Does nothing: the newest snapshot is never forgotten."""
        return False

    def tend(self, needed: Collection[int]) -> None:
        """Removes versions of an hour ago and before, except those needed and tagged; and files that none has.

        Files that no version ever had, as a kill leaves them, are removed when they are a day old.
        """
        table, now_ms = self._table, time.time_ns() // 1_000_000
        kept = {*needed, *(each.snapshot_id for each in table.refs().values())}
        gone = [each for each in table.snapshots() if each.snapshot_id not in kept]
        gone = [each for each in gone if each.timestamp_ms < now_ms - _HOUR_MS]
        had = self._named(gone)
        if gone:
            with _answered(self.folder):
                table.maintenance.expire_snapshots().by_ids([each.snapshot_id for each in gone]).commit()
        named = self._named(self._table.snapshots())
        metadata = self._table.metadata
        named |= {self._table.metadata_location, *(each.metadata_file for each in metadata.metadata_log)}
        for each in (path for path in self.folder.rglob("*") if path.is_file()):
            place = f"{_SCHEME}{each}"
            if place not in named and (place in had or each.stat().st_mtime < now_ms / 1000 - _DAY_S):
                each.unlink()

    def _line(self) -> Iterable[Snapshot]:
        return ancestors_of(self._table.current_snapshot(), self._table.metadata)

    def _files(self) -> list[DataFile]:
        with _answered(self.folder):
            return [each.file for each in self._table.scan().plan_files()]

    def _read(self, files: Collection[DataFile], types: Mapping[str, str] | None = None) -> DataFrame:
        columns = ", ".join(f"{quoted(name)} {kind}" for name, kind in (types or self.columns()).items())
        if not files:
            return self._spark.createDataFrame([], columns)
        reader = self._spark.read.schema(columns).option("datetimeRebaseMode", "CORRECTED")
        return reader.parquet(*(each.file_path.removeprefix(_SCHEME) for each in files))

    def _touched(self, files: Collection[DataFile], changes: DataFrame) -> list[DataFile]:
        """Returns the files that hold a key of the changes."""
        if not files:
            return []
        keys = self._read(files).select(KEY, fn.col("_metadata.file_name").alias("file"))
        found = keys.join(changes.select(KEY), KEY, "left_semi").select("file").distinct().collect()
        names = {row["file"] for row in found}
        return [each for each in files if each.file_path.rpartition("/")[2] in names]

    def _commit(
        self,
        transaction: Transaction,
        tells: str,
        removed: Collection[DataFile] = (),
        rows: DataFrame | None = None,
    ) -> None:
        added = [] if rows is None else self._write(transaction, rows)
        reach("mirror.files_written")
        with _answered(self.folder):
            update = transaction.update_snapshot(snapshot_properties={_TOLD: tells})
            with update.overwrite() if removed else update.fast_append() as snapshot:
                for each in removed:
                    snapshot.delete_data_file(each)
                for each in added:
                    snapshot.append_data_file(each)
            transaction.commit_transaction()

    def _write(self, transaction: Transaction, rows: DataFrame) -> list[DataFile]:
        metadata = transaction.table_metadata
        schema = schema_to_pyarrow(metadata.schema())
        writer = DataFileWriter(str(self.folder / "data"), schema.serialize().to_pybytes())
        types = spark_types(metadata.schema())
        # By numbers: a name with a dot means a field of a column to mapInArrow.
        chosen = _projected(rows, types).toDF(*map(str, range(len(types))))
        paths = [row["path"] for row in chosen.mapInArrow(writer.write, "path string").collect()]
        return [parquet_file_to_data_file(self._table.io, metadata, f"{_SCHEME}{path}") for path in paths]

    def _named(self, snapshots: Iterable[Snapshot]) -> set[str]:
        """Returns all files that these snapshots name."""
        named, seen = set[str](), set[str]()
        for snapshot in snapshots:
            named.add(snapshot.manifest_list)
            for manifest in snapshot.manifests(self._table.io):
                if manifest.manifest_path not in seen:
                    seen.add(manifest.manifest_path)
                    named |= {each.data_file.file_path for each in manifest.fetch_manifest_entry(self._table.io)}
        return named | seen


@contextmanager
def _answered(folder: Path) -> Iterator[None]:
    """Says in our words what went wrong in the catalog or in the files.

    Raises:
        JobError: another program committed, or the catalog or a file cannot be read or written.
    """
    try:
        yield
    except CommitFailedException as error:
        raise JobError(
            f"another process writes into {folder}",
            remedy="stop one of the two, then start again; each table continues where it stands",
        ) from error
    except (SQLAlchemyError, OSError) as error:
        raise JobError(
            f"the Iceberg table or catalog in {folder} does not answer: {str(error).splitlines()[0]}",
            remedy="see whether the files are there and nobody holds the catalog, then start again",
        ) from error


def _is_catalog(database: Path) -> bool:
    """Tells whether there is a catalog of the mirror's; one that was killed while it was made is none yet."""
    if not database.exists() or not database.stat().st_size:
        return False
    with database.open("rb") as file:
        is_database = file.read(len(_MAGIC)) == _MAGIC
    if is_database:
        with closing(sqlite3.connect(database)) as connection:
            tables = {name for (name,) in connection.execute("SELECT name FROM sqlite_master WHERE type = 'table'")}
            if tables == _TABLES:
                owners = set(connection.execute("SELECT catalog_name, table_namespace FROM iceberg_tables"))
                if not owners or (_CATALOG, NAMESPACE) in owners:
                    return True
            elif tables < _TABLES:
                return False
    raise JobError(f"{database} is not a catalog of a mirror", remedy=OTHER_FOLDER)


def _is_marked(metadata: Path) -> bool:
    """Tells whether this is the metadata of a table that a mirror made."""
    try:
        properties = json.loads(metadata.read_bytes())["properties"]
    except (ValueError, KeyError):
        return False
    return any(name.startswith(MARKS) for name in properties)


def _told(snapshot: Snapshot) -> str | None:
    return None if snapshot.summary is None else snapshot.summary.additional_properties.get(_TOLD)


def _add(transaction: Transaction, columns: StructType) -> None:
    with transaction.update_schema() as update:
        for field in _fields_of(columns):
            update.add_column((field.name,), field.field_type)


def _projected(rows: DataFrame, types: Mapping[str, str]) -> DataFrame:
    """Returns these columns, in this order; one that is not there is NULL."""
    return rows.select(
        *(
            (fn.col(quoted(name)) if name in rows.columns else fn.lit(None)).cast(kind).alias(name)
            for name, kind in types.items()
        )
    )


def _fields_of(schema: StructType) -> list[NestedField]:
    """Returns the fields for these columns. Their numbers are only different; a table gives its own."""
    ids = count(1)
    return [
        NestedField(field_id=next(ids), name=each.name, field_type=_type_of(each.dataType, ids), required=False)
        for each in schema
    ]


def spark_types(schema: Schema) -> dict[str, str]:
    """Returns Spark's type of each column."""
    return {each.name: _spark_type(each.field_type) for each in schema.fields}


def _spark_type(kind: IcebergType) -> str:
    """Returns Spark's type; of a column that the mirror did not make, Iceberg's."""
    if isinstance(kind, DecimalType):
        return f"decimal({kind.precision},{kind.scale})"
    if isinstance(kind, ListType):
        return f"array<{_spark_type(kind.element_type)}>"
    if isinstance(kind, MapType):
        return f"map<{_spark_type(kind.key_type)},{_spark_type(kind.value_type)}>"
    return _OF_SPARK.get(str(kind), str(kind))


def _type_of(kind: DataType, ids: Iterator[int]) -> IcebergType:
    if isinstance(kind, SparkDecimal):
        return DecimalType(kind.precision, kind.scale)
    if isinstance(kind, ArrayType):
        return ListType(next(ids), _type_of(kind.elementType, ids), element_required=False)
    if isinstance(kind, SparkMap):
        key, value = _type_of(kind.keyType, ids), _type_of(kind.valueType, ids)
        return MapType(next(ids), key, next(ids), value, value_required=False)
    return _PLAIN["int" if isinstance(kind, ShortType) else kind.simpleString()]
