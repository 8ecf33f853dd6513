"""Delta and Iceberg tables as a reader without Spark sees them, and what a source has that they have to equal."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from datetime import datetime
from pathlib import Path
from typing import Any, TypeAlias

import deltalake
import pyarrow
from psycopg import sql
from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.table import Table

from cdc.contract.jobspec.mirror import MirrorJob
from cdc.spark.mirror.cut_log import NAME
from tests.support.servers import Database

NamedRow: TypeAlias = tuple[tuple[str, str], ...]
"""The texts of a row's columns that are not NULL, by name: the same whatever columns were added since."""


def rows_in(folder: Path, version: int | None = None) -> list[dict[str, Any]]:
    """The rows of a table, as of a version."""
    if (folder.parent / "catalog.db").exists():
        with iceberg_table(folder) as iceberg:
            scanned: list[dict[str, Any]] = iceberg.scan(snapshot_id=version).to_arrow().to_pylist()
            return scanned
    table = deltalake.DeltaTable(folder, version=version)
    found = deltalake.QueryBuilder().register("held", table).execute("SELECT * FROM held").read_all()
    rows: list[dict[str, Any]] = pyarrow.table(found).to_pylist()
    return rows


@contextmanager
def iceberg_table(folder: Path) -> Iterator[Table]:
    """A table of the catalog beside its folder."""
    catalog = SqlCatalog("cdc", uri=f"sqlite:///{folder.parent / 'catalog.db'}")
    try:
        yield catalog.load_table(("cdc", folder.name))
    finally:
        catalog.engine.dispose()


def texts_in(folder: Path, version: int | None = None) -> list[tuple[str | None, ...]]:
    """The same without what the mirror adds, as texts, sorted: comparable with ``texts_of``."""
    rows = []
    for row in rows_in(folder, version):
        beyond = dict(row.pop("_beyond") or ())
        row.pop("cdc_key")
        rows.append(tuple(beyond.get(name, _text(value)) for name, value in row.items()))
    return sorted(rows, key=repr)


def texts_of(database: Database, table: str) -> list[tuple[str | None, ...]]:
    """The rows of the source, as the server prints them in UTC, sorted."""
    with database.connect(options="-c TimeZone=UTC") as connection:
        names = [each.name for each in connection.execute(f"SELECT * FROM {table} LIMIT 0").description or ()]
        columns = sql.SQL(", ").join(sql.SQL("{}::text").format(sql.Identifier(name)) for name in names)
        query = sql.SQL("SELECT {} FROM ").format(columns) + sql.SQL(table)
        return sorted(connection.execute(query).fetchall(), key=repr)


def named_in(folder: Path, version: int) -> list[NamedRow]:
    """The rows of a table as of a version, sorted: comparable with ``named_of``."""
    rows = []
    for row in rows_in(folder, version):
        beyond = dict(row.pop("_beyond") or ())
        row.pop("cdc_key")
        rows.append(_named({name: beyond.get(name, _text(value)) for name, value in row.items()}))
    return sorted(rows)


def named_of(database: Database, table: str) -> list[NamedRow]:
    """The rows of the source, sorted."""
    with database.connect(options="-c TimeZone=UTC") as connection:
        names = [each.name for each in connection.execute(f"SELECT * FROM {table} LIMIT 0").description or ()]
        columns = sql.SQL(", ").join(sql.SQL("{}::text").format(sql.Identifier(name)) for name in names)
        rows = connection.execute(sql.SQL("SELECT {} FROM ").format(columns) + sql.SQL(table)).fetchall()
    return sorted(_named(dict(zip(names, row, strict=True))) for row in rows)


def cuts_in(job: MirrorJob) -> list[dict[str, Any]]:
    """The rows of ``_cdc_cuts``, oldest first."""
    return sorted(rows_in(Path(job.path) / NAME), key=lambda row: (row["cut"], row["table"]))


def _named(texts: Mapping[str, str | None]) -> NamedRow:
    return tuple(sorted((name, text) for name, text in texts.items() if text is not None))


def _text(value: Any) -> str | None:
    if value is None:
        return None
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, datetime):
        zone = "" if value.tzinfo is None else "+00"
        return value.replace(tzinfo=None).isoformat(sep=" ") + zone
    return str(value)
