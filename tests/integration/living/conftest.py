"""One bridge and sink for the tests of a module, on a database that changes under them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any, Protocol

import pytest

from cdc.lab.stack import Kafka, Postgres
from tests.support.deployment import Deployment, deployed
from tests.support.servers import fresh_database


class Living(Protocol):
    """Starts a bridge and a sink on a fresh database."""

    def __call__(self, setup: str, source: Mapping[str, Any]) -> Deployment:
        """The running deployment.

        Args:
            setup: SQL that is run before.
            source: settings of section ``source``.
        """


@pytest.fixture(scope="module")
def living(
    postgres: Postgres, other_postgres: Postgres, kafka: Kafka, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Living]:
    """Running deployments, stopped at the module's end and seen to exit with 0."""
    with ExitStack() as stack:

        def start(setup: str, source: Mapping[str, Any]) -> Deployment:
            directory = tmp_path_factory.mktemp("living")
            return stack.enter_context(_running(postgres, other_postgres, kafka, directory, setup, source))

        yield start


@contextmanager
def _running(
    source: Postgres, mirror: Postgres, kafka: Kafka, directory: Path, setup: str, settings: Mapping[str, Any]
) -> Iterator[Deployment]:
    with fresh_database(source) as database, fresh_database(mirror) as replica:
        database.execute(setup)
        with deployed(database, kafka.bootstrap, replica, directory, {"source": settings}) as deployment:
            deployment.start()
            yield deployment
            deployment.stop()
