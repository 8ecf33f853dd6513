"""Servers given by the user: only the database name of their address changes."""

from __future__ import annotations

import pytest
from psycopg.conninfo import conninfo_to_dict

from cdc.base.errors import StackError
from cdc.lab.stack import open_kafka, open_postgres, open_registry
from cdc.lab.stack.stack import GivenPostgres


def test_a_url_keeps_everything_but_the_database():
    given = GivenPostgres("postgresql://me:secret@db.example:5433/main?sslmode=require")
    assert given.dsn("a/b") == "postgresql://me:secret@db.example:5433/a%2Fb?sslmode=require"


def test_keywords_keep_everything_but_the_database():
    given = GivenPostgres("host=db.example port=5433 dbname=main")
    assert conninfo_to_dict(given.dsn("other")) == {"host": "db.example", "port": "5433", "dbname": "other"}


def test_a_given_postgres_that_does_not_answer_is_refused_without_its_password():
    with pytest.raises(StackError, match="the given PostgreSQL does not answer") as refused:
        open_postgres(url="postgresql://me:secret@127.0.0.1:1/main")
    assert "secret" not in str(refused.value)


def test_a_given_kafka_that_does_not_answer_is_refused(monkeypatch):
    monkeypatch.setattr("cdc.lab.stack.stack.CONNECT_TIMEOUT_S", 1)
    with pytest.raises(StackError, match=r"the given Kafka 127\.0\.0\.1:1 does not answer"):
        open_kafka(bootstrap="127.0.0.1:1")


@pytest.mark.parametrize("address", ["127.0.0.1:1", "localhost:x"])
def test_a_given_registry_that_does_not_answer_is_refused_without_its_password(address):
    with pytest.raises(StackError, match="no schema registry answers at the given URL") as refused:
        open_registry(url=f"http://me:secret@{address}")
    assert "secret" not in str(refused.value)
    assert "CDC_REGISTRY_URL" in refused.value.remedy
