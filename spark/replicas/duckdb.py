"""Reads a replica in a file of DuckDB, which one process at a time can open: the sink has to be stopped meanwhile."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any, Final

import duckdb

from cdc.contract.jobspec.deployment import JobTable
from cdc.spark.errors import SourceUnreadable
from cdc.spark.source.sql import quoted

_COLUMNS: Final = """
SELECT lower(column_name), data_type FROM duckdb_columns()
WHERE database_name = current_database() AND lower(schema_name) = lower(?) AND lower(table_name) = lower(?)
"""
_HELD: Final = "Could not set lock on file"

_PLAIN: Final = "CAST({} AS VARCHAR)"
_MOMENT: Final = f"regexp_replace({_PLAIN}, '^(\\S+) \\(BC\\)(.*)$', '\\1\\2 BC', 's')"
_SHOWN: Final[Mapping[str, str]] = {
    "DATE": _MOMENT,
    "TIMESTAMP": _MOMENT,
    "TIMESTAMP WITH TIME ZONE": _MOMENT,
}
"""Python's dates are fewer than DuckDB's. PostgreSQL writes BC at the end."""


class DuckdbTransaction:
    """Implements ``ReadTransaction``.

    Args:
        session: in a transaction.
    """

    def __init__(self, session: duckdb.DuckDBPyConnection) -> None:
        self._session = session

    def execute(self, query: str, parameters: Sequence[str] = ()) -> Any:
        """Runs a query."""
        return self._session.execute(query, list(parameters))

    def has_replica(self) -> bool:
        """Returns whether a sink has made its tables here."""
        found = "SELECT 1 FROM duckdb_tables() WHERE database_name = current_database() AND table_name = 'cdc_cut'"
        return self.execute(found).fetchone() is not None

    def rows(self, table: JobTable) -> Any:
        """Returns all rows of a table."""
        types = dict(self.execute(_COLUMNS, (table.namespace, table.name)).fetchall())
        listed = [
            _SHOWN.get(types.get(each.name.lower(), ""), "{}").format(quoted(each.name)) for each in table.columns
        ]
        return self.execute(f"SELECT {', '.join(listed)} FROM {quoted(table.namespace, table.name)}")


class DuckdbDriver:
    """Implements ``ReplicaDriver``.

    Args:
        path: the file.
    """

    remedy_without_sink = (
        "start the sink, wait until cdc status calls the table exact, stop the sink, and run cdc reconcile again"
    )

    def __init__(self, path: Path) -> None:
        self._path = path

    @property
    def address(self) -> str:
        """The file's path."""
        return str(self._path)

    def exists(self) -> bool:
        """Returns whether there is such a file."""
        return self._path.exists()

    @contextmanager
    def begin(self) -> Iterator[DuckdbTransaction]:
        """Reads in one transaction to the end of the block."""
        try:
            with closing(duckdb.connect(self._path, read_only=True)) as session:
                session.execute("SET TimeZone = 'UTC'")
                session.execute("BEGIN TRANSACTION")
                yield DuckdbTransaction(session)
        except duckdb.Error as error:
            told = (str(error).strip().splitlines() or [type(error).__name__])[0]
            if _HELD in told:
                raise SourceUnreadable(
                    f"another process has {self._path} open, and DuckDB lets one process at a time open a file: {told}",
                    remedy="stop the sink while its replica is compared, or leave the replica out: --no-replica",
                ) from error
            raise SourceUnreadable(
                f"DuckDB failed to read {self._path}: {told}", remedy="check with cdc check whether it is a replica"
            ) from error
