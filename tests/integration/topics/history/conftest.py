"""One running bridge that keeps a history of every table, for the tests of a module."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack
from typing import Any

import pytest

from cdc.lab.stack import Kafka, Postgres
from tests.support.deployment import Deployment, deployed
from tests.support.servers import fresh_database


@pytest.fixture(scope="module")
def live(
    postgres: Postgres, other_postgres: Postgres, kafka: Kafka, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Deployment]:
    """Tables join when a test makes them."""
    with ExitStack() as stack:
        source, mirror = (stack.enter_context(fresh_database(server)) for server in (postgres, other_postgres))
        source.execute("CREATE TABLE first (id integer PRIMARY KEY)")
        sections: dict[str, dict[str, Any]] = {
            "source": {"tables": ["*.*"], "publication_mode": "all_tables"},
            "topics": {"partitions": 1, "history": ["*.*"]},
        }
        folder = tmp_path_factory.mktemp("live")
        deployment = stack.enter_context(deployed(source, kafka.bootstrap, mirror, folder, sections))
        deployment.start_bridge()
        yield deployment
        deployment.bridge.stop()
