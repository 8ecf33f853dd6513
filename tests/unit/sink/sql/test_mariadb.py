"""Which columns of MariaDB keep a source type's values, and the statements that write them."""

from __future__ import annotations

from decimal import Decimal

import pymysql
import pytest

from cdc.base.config.replica_url import server_of
from cdc.sink.sql.dialect import Blame
from cdc.sink.sql.mariadb import MariadbDialect

DIALECT = MariadbDialect(server_of("mariadb+pymysql://cdc@db.example/shop"), "hunter2")
BINARY = " CHARACTER SET utf8mb4 COLLATE utf8mb4_nopad_bin"
OTHER = " CHARACTER SET utf8mb4 COLLATE utf8mb4_general_ci"


def form(sql_type: str, stored: str | None = None, *, of_key: int = 0) -> str | None:
    found = DIALECT.form(sql_type, of_key=of_key, stored=stored)
    return found and found.sql


@pytest.mark.parametrize(
    ("sql_type", "made"),
    [
        ("int2", "smallint"),
        ("oid", "bigint"),
        ("bool", "tinyint(1)"),
        ("float4", "double"),
        ("numeric(65,38)", "decimal(65,38)"),
        ("numeric(66,0)", "longtext" + BINARY),
        ("numeric(60,39)", "longtext" + BINARY),
        ("numeric(5,-2)", "longtext" + BINARY),
        ("numeric", "longtext" + BINARY),
        ("numeric(10,2)[]", "longtext" + BINARY),
        ("timestamptz(3)", "datetime(6)"),
        ("bytea", "longblob"),
        ("uuid", "longtext" + BINARY),
    ],
)
def test_a_column_has_the_type_that_holds_every_value_as_printed(sql_type: str, made: str) -> None:
    assert form(sql_type) == made
    assert form(sql_type, made) == made
    assert form(sql_type, "longtext" + OTHER) == "longtext" + OTHER


@pytest.mark.parametrize(
    ("sql_type", "of_key", "made"),
    [
        ("text", 1, "varchar(768)" + BINARY),
        ("uuid", 2, "varchar(384)" + BINARY),
        ("float8", 3, "varchar(256)" + BINARY),
        ("bytea", 2, "varbinary(1536)"),
        ("int8", 2, "bigint"),
        ("numeric(10,2)", 1, "decimal(10,2)"),
    ],
)
def test_columns_of_a_key_share_its_index(sql_type: str, of_key: int, made: str) -> None:
    assert form(sql_type, of_key=of_key) == made
    assert form(sql_type, made, of_key=of_key) == made


@pytest.mark.parametrize(
    ("sql_type", "stored"),
    [
        ("text", "varchar(20) CHARACTER SET latin1 COLLATE latin1_bin"),
        ("text", "char(20)" + BINARY),
        ("text", "varbinary(20)"),
        ("int8", "int"),
        ("int4", "int unsigned"),
        ("float8", "float"),
        ("numeric(10,2)", "decimal(12,3)"),
        ("timestamp", "datetime"),
        ("timestamptz", "timestamp(6)"),
        ("bool", "bit(1)"),
    ],
)
def test_a_column_that_would_change_values_is_refused(sql_type: str, stored: str) -> None:
    assert form(sql_type, stored) is None


@pytest.mark.parametrize(
    ("sql_type", "text", "value"),
    [
        ("int8", "-9223372036854775808", -(1 << 63)),
        ("bool", "true", 1),
        ("numeric(10,2)", "-0.10", "-0.10"),
        ("float8", "-0", "-0"),
        ("float8", "1e-07", "1e-07"),
        ("timestamptz", "2026-11-20 12:13:14.5+00", "2026-11-20 12:13:14.5"),
        ("bytea", "\\x00ff", b"\x00\xff"),
        ("bool[]", "{true,NULL}", "{t,NULL}"),
    ],
)
def test_values_are_as_the_driver_is_to_write_them(sql_type: str, text: str, value: object) -> None:
    found = DIALECT.form(sql_type, of_key=0)
    assert found is not None
    assert found.values([text]) == [value]


@pytest.mark.parametrize(
    ("sql_type", "text"),
    [("numeric(10,2)", "1.234"), ("float4", "NaN"), ("float8", "-Infinity"), ("date", "infinity"), ("bool", "t")],
)
def test_a_value_that_would_be_changed_is_refused(sql_type: str, text: str) -> None:
    found = DIALECT.form(sql_type, of_key=0)
    assert found is not None
    with pytest.raises(ValueError, match=text):
        found.values([text])


def test_messages_name_the_place_without_the_password() -> None:
    assert DIALECT.address == "cdc@db.example:3306/shop"
    assert "hunter2" not in f"{DIALECT.address} {DIALECT.grants} {DIALECT!r}"


@pytest.mark.parametrize(
    ("error", "blame", "remedy"),
    [
        (pymysql.err.OperationalError(1205, "Lock wait timeout exceeded"), Blame.AWAY, "SHOW PROCESSLIST"),
        (pymysql.err.OperationalError(1290, "read-only"), Blame.AWAY, "a server that takes writes"),
        (pymysql.err.InterfaceError(0, ""), Blame.AWAY, ""),
        (pymysql.err.OperationalError(1045, "Access denied"), Blame.REFUSED, "sink.password_file"),
        (pymysql.err.OperationalError(1049, "Unknown database"), Blame.REFUSED, "CREATE DATABASE `shop`"),
        (pymysql.err.OperationalError(1142, "CREATE command denied"), Blame.REFUSED, "GRANT SELECT"),
        (pymysql.err.DataError(1406, "Data too long"), Blame.ROWS, ""),
        (FileNotFoundError("ca.pem"), Blame.REFUSED, "ssl_ca"),
    ],
)
def test_what_errors_mean(error: BaseException, blame: Blame, remedy: str) -> None:
    told = DIALECT.explain(error)
    assert told.blame is blame
    assert remedy in told.remedy


def test_a_number_of_a_key_is_compared_as_a_number() -> None:
    found = DIALECT.form("numeric(10,2)", of_key=1)
    assert found is not None
    assert found.values(["-0.10", "7.00"]) == [Decimal("-0.10"), Decimal("7.00")]
