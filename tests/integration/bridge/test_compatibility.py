"""What a registry makes of each change of a table, in each format and mode; and that ``NONE`` leaves nothing wrong.

The tables in docs/formats.md say what is expected; here is what stands for each of their rows.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from contextlib import nullcontext
from pathlib import Path
from typing import Any, Final

import pytest

from cdc.base.config import RegistryConfig
from cdc.base.errors import RegistryRefused
from cdc.contract.formats.registered import RegisteredFormat, registered
from cdc.contract.naming import subject
from cdc.contract.record import FormatName, SchemaColumn, TableSchema
from cdc.kafka.registry import SchemaRegistry
from cdc.lab.stack import RegistryServer
from tests.architecture.pages import page
from tests.integration.bridge.test_formats import be_compatible, ids
from tests.integration.living.waiting import wait_equal
from tests.support.deployment import Deploy
from tests.support.forms import deploy_in
from tests.support.names import unique
from tests.support.serve_process import ServeProcess
from tests.support.servers import Database
from tests.support.waiting import eventually

MODES: Final = ("BACKWARD", "FORWARD", "FULL")
HEADINGS: Final[Mapping[FormatName, str]] = {"avro": "Avro", "protobuf": "Protobuf", "json-schema": "JSON Schema"}
ADD: Final = ("", "a text")
DROP: Final = ("a text", "")
RENAME: Final = ("a text", "b text")
ORDER: Final = ("a text, b text", "b text, a text")
"""Of a table that was dropped and created again: PostgreSQL numbers its columns anew."""
ANOTHER_KEY: Final = ("+id int4, a text", "id int4, +a text")
JOINS: Final = ("+id int4, a text", "+id int4, +a text")
LEAVES: Final = (JOINS[1], JOINS[0])
TEXTS: Final = (("a text", "a varchar(10)"), ("a text", "a uuid"), ("+a varchar(5)", "+a text"))
WIDER: Final = (("a int4", "a int8"), ("+id int4", "+id int8"), ("a int4", "a float8"))
NARROWER: Final = (("a int8", "a int4"), ("+id int8", "+id int4"))
SINGLE: Final = ("a float4", "a float8")
CHANGES: Final[Mapping[FormatName, Mapping[str, Sequence[tuple[str, str]]]]] = {
    "avro": {
        "add, drop or rename a column; their order": (ADD, DROP, RENAME, ORDER, ("a text, b int4", "b int4, a text")),
        "`text` to `varchar(n)` or `uuid`, a `numeric` of another precision and the same scale": (
            *TEXTS,
            ("a numeric(6,2)", "a numeric(8,2)"),
        ),
        "`int4` to `int8` or `float8`, `float4` to `float8`": (*WIDER, SINGLE),
        "`int8` to `int4`": NARROWER,
        "another scale of a `numeric`, `timestamp` to `timestamptz`, `text` to `bytea`, `numeric(p,s)` to `numeric`": (
            ("a numeric(6,2)", "a numeric(8,3)"),
            ("a timestamp", "a timestamptz"),
            ("a text", "a bytea"),
            ("a numeric(6,2)", "a numeric"),
        ),
        "any other type, arrays included": (("a int4", "a text"), ("a int4", "a int4[]")),
        "a column joins the key": (JOINS,),
        "a column leaves the key": (LEAVES,),
        "another key": (ANOTHER_KEY,),
    },
    "protobuf": {
        "add a column": (ADD,),
        "drop a column (its number and name are then `reserved`)": (DROP,),
        "rename a column; their order": (RENAME, ORDER),
        "a type with the same type in Protobuf: `text` to `uuid`, any `numeric` to another, `timestamp` to `date`": (
            *TEXTS,
            ("a numeric(6,2)", "a numeric(8,3)"),
            ("a numeric(6,2)", "a numeric"),
            ("a timestamp", "a date"),
        ),
        "another type in Protobuf: `int4` to `int8`, `float4` to `float8`, `text` to `bytea`, arrays": (
            *WIDER,
            *NARROWER,
            SINGLE,
            ("a timestamp", "a timestamptz"),
            ("a text", "a bytea"),
            ("a int4", "a text"),
            ("a int4", "a int4[]"),
            ("a text, b int4", "b int4, a text"),
        ),
        "another key": (ANOTHER_KEY, JOINS, LEAVES),
    },
    "json-schema": {
        "drop a column; their order": (DROP, ORDER, ("a text, b int4", "b int4, a text")),
        "add a column, rename a column": (ADD, RENAME),
        "a text of another kind: `text` to `varchar(n)` or `uuid`, `timestamp` to `timestamptz`, any `numeric` to "
        "another; `float4` to `float8`": (
            *TEXTS,
            ("a numeric(6,2)", "a numeric(8,3)"),
            ("a timestamp", "a timestamptz"),
            SINGLE,
        ),
        "`int4` to `int8` or `float8`, `int4[]` to `int8[]`": (*WIDER, ("a int4[]", "a int8[]")),
        "`int8` to `int4`": NARROWER,
        "between `text`, `bytea` and `jsonb`, a text to an array": (
            ("a text", "a bytea"),
            ("a text", "a jsonb"),
            ("a text", "a text[]"),
        ),
        "any other type, such as `int4` to `text` or `numeric`": (("a int4", "a text"), ("a int4", "a numeric")),
        "another key": (ANOTHER_KEY, JOINS, LEAVES),
    },
}  # fmt: skip
"""What stands for each row of the tables: columns before and after. ``+`` is before columns of the key, else ``id``."""


def outcomes(name: FormatName) -> dict[str, tuple[str, ...]]:
    """What the page says of each change, by mode."""
    return {change: tuple(said) for change, *said in page("docs/formats.md").rows(f"change in {HEADINGS[name]}")}


def test_each_row_of_the_page_is_tested() -> None:
    assert {name: list(outcomes(name)) for name in CHANGES} == {name: list(rows) for name, rows in CHANGES.items()}


def defined(columns: str) -> TableSchema:
    """A table; its columns are numbered in their order."""
    given = [each.split(" ") for each in (columns if "+" in columns else f"+id int4, {columns}").split(", ") if each]
    key = tuple(name[1:] for name, _ in given if name.startswith("+"))
    found = tuple(SchemaColumn(name.lstrip("+"), type_, number) for number, (name, type_) in enumerate(given, 1))
    return TableSchema("f" * 16, "public", "t", "t", key, found)


def schemas(form: RegisteredFormat, *tables: str) -> list[str]:
    """The schemas that the bridge would register one after the other."""
    texts = [form.schema(defined(each), "shop", "refuse") for each in tables]
    for place in range(1, len(texts)):
        texts[place] = form.succeeding(texts[place - 1], texts[place])
    return texts


def outcome(
    registry: RegistryServer, client: SchemaRegistry, form: RegisteredFormat, mode: str, texts: list[str]
) -> str:
    """What comes of the last schema, after the others, in a subject with this mode."""
    name = unique(f"{mode}-")
    *before, former, now = texts
    for text in (*before, former):
        client.register(name, form.kind, text)
    be_compatible(registry, name, mode)
    takes = not client.problems(name, form.kind, now)
    is_misread = bool(form.misread(former, now)) and mode != "NONE"
    assert takes or not is_misread or form.kind != "AVRO", "what the registry refuses need not be refused by cdc"
    with nullcontext() if takes else pytest.raises(RegistryRefused, match="does not fit"):
        client.register(name, form.kind, now)
    return "refused by cdc" if is_misread else "taken" if takes else "refused"


@pytest.mark.parametrize(("name", "change"), [(name, change) for name, rows in CHANGES.items() for change in rows])
def test_what_each_mode_makes_of_a_change(registry: RegistryServer, name: FormatName, change: str) -> None:
    """What it says of the registry is said of Apicurio's; in the mode ``NONE``, everything is taken."""
    form, wanted = registered(name), outcomes(name)[change]
    with SchemaRegistry(RegistryConfig(url=registry.url)) as client:
        for case in CHANGES[name][change]:
            texts = schemas(form, *case)
            found = [outcome(registry, client, form, mode, texts) for mode in (*MODES, "NONE")]
            assert found == [*wanted, "taken"], (case, found)


def test_a_transitive_mode_compares_with_every_former_schema(registry: RegistryServer) -> None:
    """With one former schema, it is the mode without the word."""
    form = registered("avro")
    with SchemaRegistry(RegistryConfig(url=registry.url)) as client:
        for change, cases in CHANGES["avro"].items():
            for case in cases:
                texts = schemas(form, *case)
                found = [outcome(registry, client, form, f"{mode}_TRANSITIVE", texts) for mode in MODES]
                assert found == [*outcomes("avro")[change]], case
        name, (*before, now) = unique("transitive-"), schemas(form, "a int4", "b int4", "a text")
        for text in before:
            client.register(name, form.kind, text)
        be_compatible(registry, name, "BACKWARD_TRANSITIVE")
        with pytest.raises(RegistryRefused, match="does not fit"):
            client.register(name, form.kind, now)
        be_compatible(registry, name, "BACKWARD")
        client.register(name, form.kind, now)


CREATE: Final = (
    "CREATE TABLE {} (id int PRIMARY KEY, n int, t text, d numeric(6,2), at timestamp, x text, code text NOT NULL)"
)
FILL: Final = (
    "INSERT INTO {} SELECT i, i, 'é' || i, i + 0.25, '2026-01-02 03:04:05', 'x', 'c' || i FROM generate_series(1, 9) i"
)
RETYPE: Final = (
    "ALTER TABLE {} ALTER id TYPE bigint, ALTER n TYPE text, ALTER t TYPE bytea USING convert_to(t, 'UTF8'),"
    " ALTER d TYPE numeric(8,3), ALTER at TYPE timestamptz USING at AT TIME ZONE 'UTC'"
)
TABLES: Final[Mapping[str, FormatName]] = {"avro": "avro", "protobuf": "protobuf", "described": "json-schema"}


class Changing:
    """A table in each format, in subjects with the mode ``NONE``."""

    def __init__(self, deploy: Deploy, registry: RegistryServer) -> None:
        self.tables = {f"public.{table}": name for table, name in TABLES.items()}
        view = {"store": "view", "index": {each: ["n"] for each in self.tables}}
        topics, source = {"formats": self.tables}, {"on_gap": "rebackfill"}
        self.deployment = deploy_in(
            "avro", deploy, registry, topics=topics, source=source, view=view, serve={"port": 0}
        )
        for table in self.tables:
            be_compatible(registry, subject(self.deployment.topic(table)), "NONE")

    def change(self, *statements: str) -> None:
        """Change each table."""
        for statement in statements:
            for table in TABLES:
                self.deployment.source.execute(statement.format(table))

    def retype_replica(self) -> None:
        """Give the replica's columns the types that the sink asks for."""
        for table in self.tables:
            eventually(
                lambda: self.deployment.sink.said().count("table is stopped") >= len(self.tables),
                message=self.deployment.sink.tail,
            )
            self.deployment.replica.execute(RETYPE.format(table))
        self.deployment.sink.stop()
        self.deployment.sink.start()

    def got(self, key: str) -> list[dict[str, Any]]:
        """A row as ``cdc get`` finds it in each topic."""
        found = [self.deployment.command("get", table, key, "--json") for table in self.tables]
        return [json.loads(each)["row"] for each in found]


def test_with_none_all_sides_are_right_after_any_change(
    deploy: Deploy, database: Database, registry: RegistryServer, tmp_path: Path
) -> None:
    """Types that no other mode takes, another key, and another table under the same name."""
    changing = Changing(deploy, registry)
    deployment, tables = changing.deployment, list(changing.tables)
    changing.change(CREATE, FILL)
    deployment.start()
    deployment.wait_backfilled(*tables)
    deployment.assert_equal(*tables)
    service = ServeProcess(deployment.config, tmp_path / "serve.log")
    service.start()
    try:
        with service.client() as client:

            def shown(place: str) -> list[Any]:
                lsn = str(deployment.wait_published())
                answers = [client.get(f"/v1/tables/{each}/{place}", params={"min_lsn": lsn}) for each in tables]
                return [each.json() if each.status_code == 200 else each.status_code for each in answers]

            eventually(lambda: [each["n"] for each in shown("rows/2")] == [2, 2, 2])
            changing.change(RETYPE, "ALTER TABLE {} ADD more jsonb", "ALTER TABLE {} RENAME x TO y")
            changing.change("UPDATE {} SET n = 'many', more = '[1]' WHERE id = 1")
            deployment.wait_published()
            # Each value is read by the schema that it was written with
            assert [each["n"] for each in (*changing.got("1"), *changing.got("2"))] == ["many"] * 3 + [2] * 3
            changing.retype_replica()
            for table in tables:
                assert "done" in deployment.command("backfill", table)
            wait_equal(deployment, *tables)
            assert shown("rows/2") == changing.got("2")
            assert [each["t"] for each in changing.got("2")] == ["\\xc3a932"] * 3
            changing.change("ALTER TABLE {0} DROP CONSTRAINT {0}_pkey, ADD PRIMARY KEY (code)")
            changing.change("UPDATE {} SET code = 'moved' WHERE id = 3", "DELETE FROM {} WHERE id = 4")
            wait_equal(deployment, *tables)
            eventually(lambda: shown("rows/moved") == changing.got("moved"))
            assert shown("rows/c4") == [404] * 3
            changing.change("DROP TABLE {}", "CREATE TABLE {} (more jsonb, id bigint PRIMARY KEY, n text)")
            changing.change("INSERT INTO {} VALUES ('[2]', 7, 'é')")
            wait_equal(deployment, *tables)
            eventually(lambda: shown("rows/7") == [{"more": [2], "id": 7, "n": "é"}] * 3)
    finally:
        service.kill()


def test_another_value_of_an_enum_needs_no_schema(deploy: Deploy, database: Database, registry: RegistryServer) -> None:
    """The strictest mode takes it, and labels that are not names."""
    database.execute("CREATE TYPE mood AS ENUM ('so \"sad\"', 'ok')")
    deployment = deploy_in(
        "avro", deploy, registry, topics={"formats": {f"public.{table}": name for table, name in TABLES.items()}}
    )
    for table in TABLES:
        be_compatible(registry, subject(deployment.topic(f"public.{table}")), "FULL_TRANSITIVE")
        database.execute(f"CREATE TABLE {table} (id int PRIMARY KEY, m mood, many mood[])")
        database.execute(f"INSERT INTO {table} VALUES (1, 'so \"sad\"', '{{ok,NULL}}')")
    deployment.start()
    deployment.wait_backfilled()
    database.execute("ALTER TYPE mood ADD VALUE 'ünï' BEFORE 'ok'")
    database.execute("ALTER TYPE mood RENAME VALUE 'ok' TO 'okay'")
    for table in TABLES:
        database.execute(f"INSERT INTO {table} VALUES (2, 'ünï', '{{okay,ünï}}')")
        database.execute(f"UPDATE {table} SET m = 'okay' WHERE id = 1")
    names = [f"public.{table}" for table in TABLES]
    deployment.assert_equal(*names)
    assert [len(set(ids(deployment, name))) for name in names] == [1, 1, 1]
