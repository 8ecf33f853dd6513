"""Debezium and the bridge read one database, and their records are compared one by one.

What may differ is listed in docs/debezium.md, and here: each function below that forgives something is called after it.
Nothing else may differ.
"""

from __future__ import annotations

import base64
import io
import json
import math
import re
import urllib.request
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from decimal import Context, Decimal
from functools import cache
from pathlib import Path
from typing import Any, Final

import fastavro
import psycopg
import pytest
from confluent_kafka.admin import AdminClient
from psycopg import sql
from psycopg.conninfo import conninfo_to_dict

from cdc.lab.stack import Kafka, RegistryServer
from tests.benchmarks.debezium.connect import connect
from tests.benchmarks.debezium.source import AVRO_CONVERTER
from tests.support.deployment import Deploy, Deployment
from tests.support.forms import deploy_in
from tests.support.locked_jars import locked_jars
from tests.support.names import unique
from tests.support.servers import Database
from tests.support.topic_audit import read_records
from tests.support.type_catalogue import CUSTOM_TYPES
from tests.support.waiting import eventually

_MODES: Final[list[dict[str, Any]]] = [
    {},
    {
        "decimal_handling_mode": "string",
        "time_precision_mode": "isostring",
        "binary_handling_mode": "hex",
        "hstore_handling_mode": "map",
    },
    {"time_precision_mode": "microseconds", "binary_handling_mode": "base64-url-safe", "schemas_enable": True},
    {"time_precision_mode": "nanoseconds", "binary_handling_mode": "base64"},
    {"time_precision_mode": "adaptive_time_microseconds", "schemas_enable": True},
]

_MODES_IN_AVRO: Final[list[dict[str, Any]]] = [
    _MODES[0],
    _MODES[1],
    {"time_precision_mode": "microseconds", "binary_handling_mode": "base64-url-safe"},
    _MODES[3],
    {"time_precision_mode": "adaptive_time_microseconds"},
]

_ALIKE: Final[Mapping[str, tuple[str, ...]]] = {
    "boolean": ("t", "f"),
    "smallint": ("-32768", "32767"),
    "integer": ("-2147483648", "0"),
    "bigint": ("-9223372036854775808", "9007199254740993"),
    "oid": ("0", "4000000000"),
    "real": ("0", "-0", "3.3", "3.4028235e38", "NaN", "Infinity", "-Infinity"),
    "double precision": ("0.1", "1e20", "1e-7", "5e-324", "1.7976931348623157e308", "NaN"),
    "numeric": ("1.10", "0", "-12345678901234567890.123", "1e10", "-0.00"),
    "numeric(12,3)": ("22.2", "-999999999.999", "0", "-0.128", "0.127"),
    "numeric(5)": ("12", "-3", "127", "128", "-128", "-129", "255", "256"),
    "money": ("$1234.11", "-0.01", "-92233720368547758.08"),
    "text": ("", "null", '"', "\\", "a\tb\nc", "\x01", "é", "𝔘"),
    "varchar(20)": ("žluťoučký kůň", "trail   "),
    "char(8)": ("", "ab", "  lead"),
    '"char"': ("", "a"),
    "bytea": ("", "\\x00", "\\xdeadbeef00ff", "\\xfbff"),
    "bit(1)": ("0", "1"),
    "bit(5)": ("00000", "10101"),
    "bit(20)": ("10000000000000000001", "00000000000000000001"),
    "date": ("2026-02-28", "0001-01-01", "1500-03-01", "1969-12-31"),
    "time": ("00:00", "11:51:30.123789", "23:59:59.5"),
    "time(3)": ("12:34:56.789", "00:00:00"),
    "timestamp": ("2026-11-20 12:13:14.123456", "1969-12-31 23:59:59.999999", "2026-01-01", "1700-03-01 00:00:00.5"),
    "timestamp(3)": ("2018-06-27 13:17:51.123", "1936-10-25 22:10:12.6"),
    "timestamp(0)": ("2026-11-20 12:13:14",),
    "timestamptz": ("2026-03-29 01:30:00+02", "1900-11-04 06:51:30.123456Z", "2026-01-01 00:00:00.1Z"),
    "timestamptz(3)": ("2026-01-01 00:00:00.12Z",),
    "timestamptz(0)": ("2026-01-01 00:00:00Z",),
    "interval": (
        "1 year 2 mons 3 days 04:05:06.78",
        "-1 mons +1 day",
        "0",
        "-00:00:00.000001",
        "1000:00:00",
        "-1 year -2 mons +3 days -04:05:06",
    ),
    "uuid": ("a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11",),
    "json": ("{}", '{"a" : 1,   "a": 2}', '"\\u00e9\\n"', "[1,\n 2]", "1.0e5", "null"),
    "jsonb": ('{"b": 1, "a": [true, null, "x"]}', "12345678901234567890.10", "null"),
    "inet": ("192.168.2.0/12", "::1", "10.0.0.1"),
    "cidr": ("192.168.100.128/25",),
    "macaddr": ("08:00:2b:01:02:03",),
    "macaddr8": ("08:00:2b:01:02:03:04:05",),
    "int4range": ("empty", "[1,10)", "(,5)"),
    "tstzrange": ('["2019-03-31 15:30:00+00",infinity)',),
    "tsvector": ("a fat cat",),
    "mood": ("sad", 'so "happy"', "ünï"),
    "positive": ("1",),
    "boolean[]": ("{t,NULL,f}",),
    "integer[]": ("{1,NULL,-3}", "{}"),
    "bigint[]": ("{9007199254740993}",),
    "text[]": ('{"",NULL,"a,b"}', "{}"),
    "numeric(6,2)[]": ("{1.1,NULL}",),
    "numeric[]": ("{1.10,NULL,2}",),
    "double precision[]": ("{NaN,Infinity,1e-7}",),
    "timestamptz[]": ('{"2026-01-01 00:00:00+00"}',),
    "timestamp[]": ('{"2026-01-01 00:00:00.5",NULL}',),
    "date[]": ("{2026-01-01}",),
    "time[]": ("{01:02:03.4}",),
    "uuid[]": ("{a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11}",),
    "bytea[]": ('{"\\\\x00ff",""}',),
    "jsonb[]": ('{"{\\"a\\": 1}",NULL,"\\"s\\""}',),
    "mood[]": ("{sad}",),
    "int4range[]": ('{"[1,3)",empty}',),
    "texts": ("{a,NULL}",),
    "hstore": ('"a"=>"1", "b"=>NULL, "q\\"uote"=>"x,y"', ""),
    "citext": ("Ab",),
    "ltree": ("Top.Science",),
}
"""Types whose values are the same in both."""

_TEXT_HERE: Final[Mapping[str, tuple[str, ...]]] = {
    # Debezium drops these columns
    "int8multirange": ("{[1,3)}",),
    "tsquery": ("fat & rat",),
    "pg_lsn": ("0/0",),
    "pair": ("(1,x)",),
    "xid8": ("1",),
    # or has a form in which something is lost
    "bit varying": ("101", "0"),
    "bit varying(7)": ("0000001",),
    "timetz": ("04:05:06-08:00",),
    "name": ("some_name",),  # NULL, unless it is in the snapshot
    # or makes structs of them
    "point": ("(1.5,-2)",),
    "line": ("{1,-1,0}",),
    "box": ("(1,1),(0,0)",),
    "circle": ("<(0,0),1.5>",),
    "path": ("[(0,0),(1,1)]",),
    "polygon": ("((0,0),(1,1),(2,0))",),
    "lseg": ("[(0,0),(1,1)]",),
}
"""Types whose values are the server's text here, and something else in Debezium."""

_TABLES: Final = """
CREATE TABLE k (a integer, b text, v text, nn integer NOT NULL DEFAULT 7, at timestamptz NOT NULL, f boolean NOT NULL,
                PRIMARY KEY (b, a));
CREATE TABLE f (id integer PRIMARY KEY, v text, n numeric);
ALTER TABLE f REPLICA IDENTITY FULL;
CREATE TABLE i (id integer PRIMARY KEY, other integer NOT NULL, v text);
CREATE UNIQUE INDEX i_other ON i (other, id);
ALTER TABLE i REPLICA IDENTITY USING INDEX i_other;
CREATE TABLE toast (id integer PRIMARY KEY, big text, n integer);
CREATE TABLE toast_full (id integer PRIMARY KEY, big text, n integer);
ALTER TABLE toast_full REPLICA IDENTITY FULL;
CREATE TABLE emptied (id integer PRIMARY KEY);
CREATE TABLE last (id integer PRIMARY KEY);
INSERT INTO k VALUES (1, 'x', 'v', 1, now(), true);
INSERT INTO f VALUES (1, 'x', 1.10);
INSERT INTO i VALUES (1, 10, 'x');
"""
_BIG: Final = "(SELECT string_agg(md5(i::text), '') FROM generate_series(1, 300) i)"
_PLACEHOLDER: Final = "__debezium_unavailable_value"


def _type_table(connection: psycopg.Connection[Any]) -> None:
    types = sql.SQL(", ").join(
        sql.SQL("{} {}").format(sql.Identifier(each), sql.SQL(each)) for each in (*_ALIKE, *_TEXT_HERE)
    )
    connection.execute(sql.SQL("CREATE TABLE m (id integer PRIMARY KEY, {})").format(types))


def _insert_types(connection: psycopg.Connection[Any], first: int) -> None:
    values = {**_ALIKE, **_TEXT_HERE}
    for row in range(max(map(len, values.values()))):
        cells = sql.SQL(", ").join(
            sql.SQL("{}::{}").format(sql.Literal(texts[row % len(texts)]), sql.SQL(name))
            for name, texts in values.items()
        )
        connection.execute(sql.SQL("INSERT INTO m VALUES ({}, {})").format(sql.Literal(first + row), cells))
    connection.execute("INSERT INTO m (id) VALUES (%s)", [first + 99])


def _change(connection: psycopg.Connection[Any]) -> None:
    """What happens while both are streaming; each statement in a transaction of its own."""
    _insert_types(connection, 200)
    statements = [
        "DELETE FROM m WHERE id = 200",
        "UPDATE m SET text = 'zz' WHERE id = 201",
        "UPDATE m SET id = 999 WHERE id = 202",
        "INSERT INTO k VALUES (2, 'y', 'v', 1, now(), true)",
        "UPDATE k SET v = 'w' WHERE a = 2",
        "UPDATE k SET a = 3 WHERE a = 2",
        "DELETE FROM k WHERE a = 3",
        "INSERT INTO f VALUES (2, 'y', 2.5)",
        "UPDATE f SET v = 'w' WHERE id = 2",
        "UPDATE f SET v = v WHERE id = 2",
        "UPDATE f SET id = 3 WHERE id = 2",
        "DELETE FROM f WHERE id = 3",
        "INSERT INTO i VALUES (2, 20, 'y')",
        "UPDATE i SET v = 'w' WHERE id = 2",
        "UPDATE i SET other = 21 WHERE id = 2",
        "DELETE FROM i WHERE id = 2",
        f"INSERT INTO toast VALUES (1, {_BIG}, 1)",
        f"INSERT INTO toast_full VALUES (1, {_BIG}, 1)",
        "UPDATE toast SET n = 2",
        "UPDATE toast_full SET n = 2",
        "UPDATE toast_full SET id = 2",
        "DELETE FROM toast_full",
        "INSERT INTO emptied VALUES (1), (2)",
        "TRUNCATE emptied",
        "INSERT INTO emptied VALUES (3)",
    ]
    for statement in statements:
        connection.execute(statement.encode())
    with connection.transaction():
        connection.execute("INSERT INTO f VALUES (8, 'x', 1), (9, 'y', 2)")
        connection.execute("UPDATE f SET n = 3 WHERE id = 8")
        connection.execute("DELETE FROM f WHERE id = 9")
    connection.execute("INSERT INTO last VALUES (1)")


@contextmanager
def debezium(
    database: Database, kafka: Kafka, modes: Mapping[str, Any], place: Path, registry: RegistryServer | None = None
) -> Iterator[str]:
    """Debezium's connector in these modes, with a registry in Avro. Yields its topic prefix once it streams."""
    name, server = unique("dbz"), conninfo_to_dict(database.dsn)
    values = {
        "bootstrap": kafka.bootstrap,
        "name": name,
        "host": server.get("host", "127.0.0.1"),
        "dbport": server.get("port", 5432),
        "user": server.get("user", ""),
        "password": server.get("password", ""),
        "dbname": database.name,
        "slot": name.lower(),
        "publication": "everything",
        "decimal": modes.get("decimal_handling_mode", "precise"),
        "time": modes.get("time_precision_mode", "adaptive"),
        "binary": modes.get("binary_handling_mode", "bytes"),
        "hstore": modes.get("hstore_handling_mode", "json"),
        "schemas": str(modes.get("schemas_enable", False)).lower(),
        "registry": "" if registry is None else registry.url.partition("/apis/")[0],
    }
    files, jars = ["envelope"], []
    if registry is not None:
        files += ["in_avro", "names_for_avro"]
        jars.append(f"{locked_jars(AVRO_CONVERTER)}/*")
    database.execute("CREATE PUBLICATION everything FOR ALL TABLES")
    with connect(name, "debezium-connector-postgres", files, values, place / name, jars) as running:

        def streams() -> bool:
            running.must_run()
            query = (
                "SELECT 1 FROM pg_replication_slots WHERE active AND slot_name = %s AND NOT confirmed_flush_lsn IS NULL"
            )
            return bool(database.execute(query, [name.lower()]))

        eventually(streams, 60)
        yield name


def wait_until_written(bootstrap: str, topic: str) -> None:
    """Wait until a topic has a record."""
    admin = AdminClient({"bootstrap.servers": bootstrap})
    eventually(lambda: topic in admin.list_topics(timeout=10).topics and bool(read_records(bootstrap, [topic])), 60)


def by_key(
    bootstrap: str, topics: list[str], read: Callable[[bytes], Any] = json.loads
) -> dict[tuple[str, str], list[Any]]:
    """The values of each key of these topics, in their order; tables and keys as text."""
    found: dict[tuple[str, str], list[Any]] = defaultdict(list)
    for record in read_records(bootstrap, topics):
        assert record.key is not None
        key = json.loads(record.key)
        value = None if record.value is None else read(record.value)
        found[record.topic.rsplit(".", 1)[1], json.dumps(key.get("payload", key))].append(value)
    return found


def by_registry(registry: RegistryServer) -> Callable[[bytes], Any]:
    """Reads events in Avro, each with its schema, as Connect's converter for JSON shows them."""

    @cache
    def schema_of(number: int) -> Any:
        with urllib.request.urlopen(f"{registry.url}/schemas/ids/{number}") as answer:
            text = json.loads(answer.read())["schema"]
        return text, fastavro.parse_schema(_without_logical_types(json.loads(text)))

    def read(value: bytes) -> Any:
        text, parsed = schema_of(int.from_bytes(value[1:5], "big"))
        body = io.BytesIO(value[5:])
        event: Any = fastavro.schemaless_reader(body, parsed, None)
        assert not body.read()
        rows = {name: event[name] and _with_own_names(_as_json(event[name])) for name in ("before", "after")}
        return {"avro": json.loads(text), "payload": {**_as_json(event), **rows}}

    return read


def _without_logical_types(schema: Any) -> Any:
    if isinstance(schema, dict):
        return {name: _without_logical_types(each) for name, each in schema.items() if name != "logicalType"}
    return [_without_logical_types(each) for each in schema] if isinstance(schema, list) else schema


def _as_json(value: Any) -> Any:
    match value:
        case bytes():
            return base64.b64encode(value).decode()
        case dict():
            return {name: _as_json(each) for name, each in value.items()}
        case list():
            return [_as_json(each) for each in value]
        case float() if not math.isfinite(value):
            return {"nan": "NaN", "inf": "Infinity", "-inf": "-Infinity"}[str(value)]
    return value


def _with_own_names(row: Mapping[str, Any]) -> dict[str, Any]:
    """The row with the names of the table's columns, which Avro does not allow."""
    own = {re.sub(r"[^A-Za-z0-9_]", "_", name): name for name in (*_ALIKE, *_TEXT_HERE)}
    assert len(own) == len(_ALIKE) + len(_TEXT_HERE)
    return {own.get(name, name): value for name, value in row.items()}


def payload_of(value: Any) -> Any:
    return value.get("payload", value)


def forgive_what_is_each_ones_own(theirs: dict[str, Any], ours: dict[str, Any]) -> None:
    """Versions, names, positions in the WAL, and the time at which a record was made."""
    for each in (theirs, ours):
        for name in ("version", "name", "lsn", "sequence"):
            each["source"].pop(name)
        for name in ("ts_ms", "ts_us", "ts_ns"):
            each.pop(name)


def forgive_how_snapshots_are_taken(theirs: dict[str, Any], ours: dict[str, Any]) -> None:
    """A backfill goes on beside the stream, which Debezium calls incremental, and belongs to no transaction."""
    assert ours["source"].pop("snapshot") == "incremental"
    assert ours["source"].pop("txId") is None
    theirs["source"].pop("snapshot")
    theirs["source"].pop("txId")
    for each in (theirs, ours):
        for name in ("ts_ms", "ts_us", "ts_ns"):
            each["source"].pop(name)


def forgive_invented_values(theirs: dict[str, Any], ours: dict[str, Any], identity: set[str]) -> None:
    """Debezium invents a value for each NOT NULL column of a deleted row that the stream did not send."""
    for name in ours.keys() - identity:
        assert ours[name] is None
        theirs[name] = None


def forgive_placeholders(theirs: dict[str, Any], ours: dict[str, Any]) -> None:
    """Debezium has a placeholder where the bridge reads the row again."""
    for name, value in theirs.items():
        if value == _PLACEHOLDER:
            assert len(ours[name]) == 9600
            theirs[name] = ours[name]


def forgive_zeros_at_the_end(theirs: dict[str, Any], ours: dict[str, Any]) -> None:
    """Debezium makes 1.1 of the numeric 1.10, if the column has no scale; here each value keeps its own."""
    for name in theirs:
        pairs = (theirs[name], ours[name]) if name == "numeric[]" else ([theirs[name]], [ours[name]])
        if name in ("numeric", "numeric[]", "n") and None not in pairs:
            for their, our in zip(*pairs, strict=True):
                assert _number(their) == _number(our)
            theirs[name] = ours[name]


def forgive_digits_of_floats(theirs: dict[str, Any], ours: dict[str, Any]) -> None:
    """Java writes 0.0 where PostgreSQL writes 0."""
    for name in ("real", "double precision"):
        if isinstance(theirs.get(name), float):
            assert theirs[name] == float(ours[name])
            theirs[name] = ours[name]


def _number(value: Any) -> Decimal | None:
    if isinstance(value, dict):
        number = int.from_bytes(base64.b64decode(value["value"]), "big", signed=True)
        return Decimal(number).scaleb(-value["scale"], Context(prec=100))
    return None if value is None else Decimal(value)


def forgive_types(theirs: dict[str, Any], ours: dict[str, Any]) -> None:
    """Types that are the server's text here."""
    for name in _TEXT_HERE:
        assert isinstance(ours.pop(name), str | None)
        theirs.pop(name, None)


_IDENTITIES: Final = {"k": {"a", "b"}, "i": {"id", "other"}, "m": {"id"}, "toast": {"id"}, "emptied": {"id"}}


def differences(table: str, theirs: Any, ours: Any) -> Iterator[str]:
    """What differs between one record of each, after all that is forgiven."""
    if theirs is None or ours is None:
        if theirs is not ours:
            yield f"{theirs} and {ours}"
        return
    if "avro" in theirs:
        yield from avro_differences(theirs["avro"], ours["avro"])
    elif "payload" in theirs:
        yield from schema_differences(theirs["schema"], ours["schema"])
    theirs, ours = payload_of(theirs), payload_of(ours)
    forgive_what_is_each_ones_own(theirs, ours)
    if theirs["op"] == "r":
        forgive_how_snapshots_are_taken(theirs, ours)
    if theirs["op"] == "d" and table in _IDENTITIES:
        forgive_invented_values(theirs["before"], ours["before"], _IDENTITIES[table])
    for part in ("before", "after"):
        if theirs[part] is not None and ours[part] is not None:
            forgive_placeholders(theirs[part], ours[part])
            forgive_zeros_at_the_end(theirs[part], ours[part])
            if table == "m":
                forgive_digits_of_floats(theirs[part], ours[part])
                forgive_types(theirs[part], ours[part])
    yield from _unlike("", theirs, ours)


def _unlike(where: str, theirs: Any, ours: Any) -> Iterator[str]:
    """Members in the same order, and 1.0 is not 1."""
    if isinstance(theirs, dict) and isinstance(ours, dict) and list(theirs) == list(ours):
        for name in theirs:
            yield from _unlike(f"{where}.{name}", theirs[name], ours[name])
    elif json.dumps(theirs) != json.dumps(ours):
        yield f"{where}: {json.dumps(theirs)} and {json.dumps(ours)}"


def schema_differences(theirs: dict[str, Any], ours: dict[str, Any]) -> Iterator[str]:
    """What differs between the schemas of one record of each, after what docs/debezium.md says of them."""
    for each in (theirs, ours):
        each.pop("name")
        for field in each["fields"][:2]:
            field.pop("name")
            columns = [column for column in field["fields"] if column["field"] not in _TEXT_HERE]
            for column in columns:
                forgive_what_only_the_catalog_knows(column)
            field["fields"] = {column.pop("field"): column for column in columns}
        each["fields"] = {field.pop("field"): field for field in each["fields"]}
    yield from _unlike("schema", _sorted(theirs), _sorted(ours))


def avro_differences(theirs: dict[str, Any], ours: dict[str, Any]) -> Iterator[str]:
    """What differs between the schemas in Avro of one record of each, after what docs/debezium.md says of them."""
    yield from _unlike("schema", *(_sorted(_forgiven(_expanded(each, {}))) for each in (theirs, ours)))


def _expanded(schema: Any, known: dict[str, Any], space: str = "") -> Any:
    """A schema with each record where it is named, and full names."""
    if isinstance(schema, list):
        return [_expanded(each, known, space) for each in schema]
    if isinstance(schema, str):
        return known.get(schema if "." in schema else f"{space}.{schema}", schema)
    if schema["type"] != "record":
        parts = {name: _expanded(schema[name], known, space) for name in ("items", "values") if name in schema}
        return {**schema, **parts}
    space = schema.get("namespace", space)
    name = f"{space}.{schema['name']}"
    fields = [{**each, "type": _expanded(each["type"], known, space)} for each in schema["fields"]]
    known[name] = {**schema, "name": name, "fields": fields}
    known[name].pop("namespace", None)
    return known[name]


def _forgiven(envelope: dict[str, Any]) -> dict[str, Any]:
    """The schema without the topic's name, and without what the stream does not tell of columns."""
    found = {**envelope, "fields": {each["name"]: each["type"] for each in envelope["fields"]}}
    row = next(each for each in found["fields"].pop("before") if each != "null")
    found["fields"].pop("after")
    columns = _with_own_names({each["name"]: each["type"] for each in row["fields"]})
    found["row"] = {name: _of_column(name, each) for name, each in columns.items() if name not in _TEXT_HERE}
    for name in ("name", "connect.name"):
        assert found.pop(name).endswith(".Envelope")
        assert row[name].endswith(".Value")
    return found


def _of_column(name: str, given: Any) -> Any:
    """The type of a column without NULL, as in ``forgive_what_only_the_catalog_knows``."""
    if isinstance(given, list):
        (given,) = (each for each in given if each != "null")
    if isinstance(given, str):
        return given
    kind = {word: each for word, each in given.items() if word != "connect.default"}
    if "items" in kind:
        kind["items"] = _of_column(name, kind["items"])
    if name.startswith("mood"):
        for word in ("connect.name", "connect.version", "connect.parameters"):
            kind.pop(word, None)
    return kind["type"] if len(kind) == 1 else kind


def _sorted(value: Any) -> Any:
    """Members of a schema may come in any order; columns may not."""
    if not isinstance(value, dict):
        return [_sorted(each) for each in value] if isinstance(value, list) else value
    return {name: _sorted(value[name]) for name in (value if "id" in value else sorted(value))}


def forgive_what_only_the_catalog_knows(column: dict[str, Any]) -> None:
    """The stream tells neither defaults nor NOT NULL, and of an enum only the name."""
    column.pop("default", None)
    column.pop("optional")
    if column["field"].startswith("mood"):
        of_values = column.get("items", column)
        for name in ("name", "version", "parameters", "optional"):
            of_values.pop(name, None)


@pytest.mark.long
@pytest.mark.pg(17)
@pytest.mark.parametrize("modes", _MODES, ids=["defaults", "strings", "micros-schemas", "nanos", "time-micros-schemas"])
def test_both_write_the_same(
    deploy: Deploy, database: Database, kafka: Kafka, tmp_path: Path, modes: dict[str, Any]
) -> None:
    deployment = deploy_in("debezium", deploy, topics={"partitions": 1}, debezium=modes)
    compare_all(*_written_by_both(deployment, database, kafka, tmp_path, modes))


def _written_by_both(
    deployment: Deployment,
    database: Database,
    kafka: Kafka,
    place: Path,
    modes: dict[str, Any],
    registry: RegistryServer | None = None,
) -> tuple[Deployment, Any, Any]:
    """The deployment, and what Debezium and the bridge write of the same changes."""
    read = json.loads if registry is None else by_registry(registry)
    with database.connect() as connection:
        connection.execute(CUSTOM_TYPES.encode())
        for extension in ("hstore", "citext", "ltree"):
            connection.execute(f"CREATE EXTENSION {extension}".encode())
        connection.execute(_TABLES.encode())
        _type_table(connection)
        _insert_types(connection, 0)
        deployment.start_bridge()
        tables = [f"public.{name}" for name in ("m", "k", "f", "i", "toast", "toast_full", "emptied", "last")]
        deployment.wait_backfilled(*tables)
        with debezium(database, kafka, modes, place, registry) as prefix:
            _change(connection)
            deployment.wait_published()
            wait_until_written(kafka.bootstrap, f"{prefix}.public.last")
            theirs = by_key(kafka.bootstrap, [f"{prefix}.{table}" for table in tables], read)
    return deployment, theirs, by_key(kafka.bootstrap, [deployment.topic(table) for table in tables], read)


@pytest.mark.long
@pytest.mark.pg(17)
@pytest.mark.parametrize("modes", _MODES_IN_AVRO, ids=["defaults", "strings", "micros", "nanos", "time-micros"])
def test_both_write_the_same_in_avro(
    deploy: Deploy, database: Database, kafka: Kafka, registry: RegistryServer, tmp_path: Path, modes: dict[str, Any]
) -> None:
    """The connector with Apicurio's converter, and one registry for both."""
    deployment = deploy_in("debezium in avro", deploy, registry, topics={"partitions": 1}, debezium=modes)
    compare_all(*_written_by_both(deployment, database, kafka, tmp_path, modes, registry))


def compare_all(deployment: Deployment, theirs: Mapping[Any, list[Any]], ours: dict[Any, list[Any]]) -> None:
    """All records of all keys."""
    for key in ("emptied", '{"id": 1}'), ("emptied", '{"id": 2}'):  # only here does a TRUNCATE delete
        *ours[key], deleted, tombstone = ours[key]
        assert payload_of(deleted)["op"] == "d"
        assert tombstone is None
    assert theirs.keys() == ours.keys()
    found = []
    for (table, key), values in theirs.items():
        assert len(values) == len(ours[table, key]), (table, key)
        for number, (their, our) in enumerate(zip(values, ours[table, key], strict=True)):
            found += [f"{table} {key} #{number} {each}" for each in differences(table, their, our)]
    assert not found, "\n".join(found[:60])
    assert len(theirs) > 30
    assert not deployment.bridge.ended
