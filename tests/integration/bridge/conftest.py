"""One running bridge and sink for the tests of a module."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack

import pytest

from cdc.lab.stack import Kafka, Postgres
from tests.support.deployment import Deployment, deployed
from tests.support.servers import fresh_database


@pytest.fixture(scope="module")
def live(
    postgres: Postgres, other_postgres: Postgres, kafka: Kafka, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Deployment]:
    """One bridge and one sink for a whole module; tables join with the stream when a test makes them.

    Without backfills: one begins if the bridge looks for new tables, as it does every ten seconds, just after a table
    was made and before its first row has come. The tests could not say then which records are there.
    """
    with ExitStack() as stack:
        source, mirror = (stack.enter_context(fresh_database(server)) for server in (postgres, other_postgres))
        source.execute("CREATE TABLE first (id integer PRIMARY KEY)")
        deployment = stack.enter_context(
            deployed(
                source,
                kafka.bootstrap,
                mirror,
                tmp_path_factory.mktemp("live"),
                {
                    "source": {
                        "tables": ["*.*"],
                        "publication_mode": "all_tables",
                        "keys": {"public.keyed": ["a", "b"]},
                    },
                    "snapshot": {"mode": "never"},
                },
            )
        )
        deployment.start()
        yield deployment
        deployment.stop()
