"""Chooses the dialect of the replica that the configuration names."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from cdc.base import extras
from cdc.base.config import Config
from cdc.base.errors import ConfigError
from cdc.sink.postgres.database import PostgresDatabase
from cdc.sink.replica import ReplicaDatabase
from cdc.sink.sql.database import SqlDatabase
from cdc.sink.sql.dialect import SqlDialect
from cdc.sink.sql.sqlite import SqliteDialect


def open_replica(
    config: Config,
    *,
    application_name: str,
    on_wait: Callable[[str, float], None] = lambda _table, _seconds: None,
) -> ReplicaDatabase:
    """Returns the replica that the configuration names.

    Args:
        config: has a ``sink`` section.
        application_name: what ``pg_stat_activity`` shows, if the replica is PostgreSQL.
        on_wait: called in a thread: a table, and for how many seconds it has waited for a lock; 0 when that is over.
            Only PostgreSQL tells.

    Raises:
        ConfigError: the configuration has no ``sink`` section.
    """
    if config.sink is None:
        raise ConfigError("the configuration has no sink section", remedy="add sink: {dsn: …} to it, or sink: {url: …}")
    if (path := config.sink.path) is not None:
        return SqlDatabase(config.name, config.sink, _in_file(config.sink.url or "", path))
    return PostgresDatabase(config.name, config.sink, application_name, on_wait)


def _in_file(url: str, path: Path) -> SqlDialect:
    if url.startswith("sqlite:"):
        return SqliteDialect(path)
    extras.require("duckdb", "a replica in DuckDB")
    # Imported here, because its libraries come with the extra
    from cdc.sink.sql.duckdb import DuckdbDialect

    return DuckdbDialect(path)
