"""A deployment whose replica is in a file, for each database of that kind."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from cdc.lab.stack import Kafka
from tests.support.file_replicas import (
    DuckdbReplica,
    FileDeployment,
    FileReplica,
    MariadbTables,
    SqliteReplica,
    deployed_to_file,
)
from tests.support.mariadb_server import fresh_mariadb
from tests.support.servers import Database

FILES: dict[str, Callable[[Path], FileReplica]] = {"sqlite": SqliteReplica, "duckdb": DuckdbReplica}


@pytest.fixture(params=[*FILES, "mariadb"])
def file(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[FileReplica]:
    if request.param in FILES:
        yield FILES[request.param](tmp_path / "shop.db")
        return
    with fresh_mariadb(request.getfixturevalue("mariadb")) as database:
        yield MariadbTables(database)


@pytest.fixture
def deploy_to_file(
    database: Database, kafka: Kafka, file: FileReplica, tmp_path: Path
) -> Iterator[Callable[..., FileDeployment]]:
    """Configures a bridge and a sink for ``database``: ``deploy_to_file(topics={…})``."""
    with ExitStack() as stack:

        def make(**sections: Mapping[str, Any]) -> FileDeployment:
            return stack.enter_context(deployed_to_file(database, kafka.bootstrap, file, tmp_path, sections))

        yield make
