"""Chooses the dialect of the replica that the configuration names."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from pydantic import SecretStr

from cdc.base import extras
from cdc.base.config import Config, replica_url
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
    if (url := config.sink.url) is not None:
        path = config.sink.path
        dialect = _on_server(url, config.sink.password) if path is None else _in_file(url, path)
        return SqlDatabase(config.name, config.sink, dialect)
    return PostgresDatabase(config.name, config.sink, application_name, on_wait)


def _in_file(url: str, path: Path) -> SqlDialect:
    if url.startswith("sqlite:"):
        return SqliteDialect(path)
    extras.require("duckdb", "a replica in DuckDB")
    # Imported here, because its libraries come with the extra
    from cdc.sink.sql.duckdb import DuckdbDialect

    return DuckdbDialect(path)


def _on_server(url: str, password: SecretStr | None) -> SqlDialect:
    extras.require("mariadb", "a replica in MariaDB")
    # Imported here, because its library comes with the extra
    from cdc.sink.sql.mariadb import MariadbDialect

    return MariadbDialect(replica_url.server_of(url), "" if password is None else password.get_secret_value())
