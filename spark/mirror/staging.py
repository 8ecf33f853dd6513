"""Rows of a micro-batch into the staging table: each executor copies its part over a connection of its own."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, Final

import psycopg
from psycopg import sql
from pyspark.sql import DataFrame

from cdc.base.pgsettings import LATER, READING, WRITING, startup_options
from cdc.contract.jobspec.deployment import PostgresSettings
from cdc.spark.mirror.rows import RecordForm

_PINNED: Final = f"{startup_options({**READING, **WRITING})} -c client_encoding=UTF8"
"""So that a text means to this server what it meant to the source's, and nothing cuts a batch short."""


def connection_arguments(database: PostgresSettings) -> dict[str, Any]:
    """For ``open_connection``."""
    arguments = {
        "host": database.host,
        "port": database.port,
        "dbname": database.database,
        "user": database.user,
        "password": None if database.password is None else database.password.get_secret_value(),
        "sslmode": database.sslmode,
        "sslrootcert": database.sslrootcert,
        "application_name": "cdc mirror",
        "options": _PINNED,
    }
    return {name: value for name, value in arguments.items() if value is not None}


def open_connection(arguments: dict[str, Any]) -> psycopg.Connection[Any]:
    """On the driver and on executors, with the pinned settings; in autocommit."""
    connection = psycopg.connect(**arguments, autocommit=True)
    connection.execute(LATER)
    return connection


def stage_rows(
    latest: DataFrame,
    form: RecordForm,
    arguments: dict[str, Any],
    stage: tuple[str, str],
    columns: Sequence[str],
    token: str,
) -> int:
    """Copy every record under ``token``, which tells this attempt's rows from those of one that was given up.

    Returns:
        How many.

    Raises:
        PySparkException: a record was refused, or the database was.
    """
    names = ("cdc_key", "cdc_offset", "cdc_deleted", "cdc_token", *columns)
    statement = (
        sql.SQL("COPY {} ({}) FROM STDIN")
        .format(sql.Identifier(*stage), sql.SQL(", ").join(map(sql.Identifier, names)))
        .as_string()
    )
    nothing = [None] * len(columns)

    def copy(batches: Iterator[Any]) -> Iterator[Any]:
        import pyarrow

        count = 0
        with open_connection(arguments) as connection, connection.cursor().copy(statement.encode()) as stream:
            for batch in batches:
                for key, _, offset, texts in form.rows(batch):
                    stream.write_row((key, offset, texts is None, token, *(nothing if texts is None else texts)))
                    count += 1
        yield pyarrow.RecordBatch.from_pydict({"rows": [count]})

    row = latest.mapInArrow(copy, "rows bigint").groupBy().sum("rows").first()
    return 0 if row is None else row[0] or 0
