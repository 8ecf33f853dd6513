"""The statements of the soak's regression profile: each of them can be committed, or it would test nothing."""

from __future__ import annotations

import random
from typing import Any

import psycopg
import pytest

from tests.soak.regression import Deed, Regression, do, known
from tests.support.servers import Database

_ENOUGH = 200


def is_committed(deed: Deed, connection: psycopg.Connection[Any], rng: random.Random) -> bool:
    """Whether it met tables and rows that it can be done with."""
    try:
        with connection.transaction():
            do(deed, connection, rng)
    except (psycopg.IntegrityError, psycopg.errors.UndefinedTable, psycopg.errors.DuplicateTable):
        return False
    except (psycopg.errors.DuplicateColumn, psycopg.errors.UndefinedObject):
        return False
    return True


@pytest.mark.pg(14, 16, 18)
def test_each_deed_is_committed_now_and_then(database: Database) -> None:
    database.execute("create schema soak")
    database.execute("create publication soak")
    rng = random.Random(1)
    with database.connect() as connection:
        Regression().create(connection)
        missing = dict(known(connection))
        assert len(missing) > 40
        for _ in range(_ENOUGH):
            for name, deed in known(connection).items():
                if is_committed(deed, connection, rng):
                    missing.pop(name, None)
            if not missing:
                break
    assert not missing
