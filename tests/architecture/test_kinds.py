"""``cdc/contract/kinds.py`` says what kind of value a type is; everybody else says what becomes of each kind."""

from __future__ import annotations

import ast
from collections.abc import Mapping

import pytest

from cdc.contract.change import Column
from cdc.contract.formats.avro.types import AVRO_FORMS
from cdc.contract.formats.canonical import Identity, reading_of
from cdc.contract.formats.formed.connect import CONNECT_TYPES
from cdc.contract.formats.json_schema.types import JSON_SCHEMA_TYPES
from cdc.contract.formats.json_texts import FORMS as READ_FORMS
from cdc.contract.formats.protobuf.types import PROTOBUF_FORMS
from cdc.contract.formats.values import ARRAY_CONVERTERS, CONVERTERS
from cdc.contract.kinds import BUILTIN_KINDS, Kind, kind_of
from cdc.contract.pgtypes import BUILTIN_NAMES, sql_type
from cdc.lab.proof.comparison import FORMS as PROOF_FORMS
from cdc.lab.proof.server_text import TypeForm
from cdc.ops.jobs.describe import TOPIC_FORMS
from cdc.sink.sql.duckdb import DUCKDB_FORMS
from cdc.sink.sql.sqlite import SQLITE_FORMS
from cdc.spark.mirror.parquet import SPARK_TYPES
from cdc.spark.snapshot.columns import ARRAY_FORMS, FORMS
from cdc.spark.values import columns as spark_values
from tests.architecture.tree import modules, parse

READERS: dict[str, Mapping[Kind, object]] = {
    "the encoder": CONVERTERS,
    "the encoder, of arrays": ARRAY_CONVERTERS,
    "Avro's types": AVRO_FORMS,
    "JSON Schema's types": JSON_SCHEMA_TYPES,
    "Protobuf's types": PROTOBUF_FORMS,
    "what the sink reads": READ_FORMS,
    "what jobs are told": TOPIC_FORMS,
    "Kafka Connect's schema": CONNECT_TYPES,
    "the Parquet mirror": SPARK_TYPES,
    "replicas in SQLite": SQLITE_FORMS,
    "replicas in DuckDB": DUCKDB_FORMS,
    "snapshots": FORMS,
    "snapshots, of arrays": ARRAY_FORMS,
}

NAMES_OF_THEIR_OWN = {
    "cdc/contract/kinds.py": "the table",
    "cdc/base/config/values.py": "options, called as the types of whose values they are",
    "cdc/base/config/debezium.py": "values of Debezium's options",
    "cdc/contract/formats/debezium/types.py": "Debezium's types: some kinds have several of them",
    "cdc/contract/pgtypes.py": "the names themselves",
    "cdc/contract/formats/canonical.py": "how people spell values: types of one kind have spellings of their own",
    "cdc/lab/proof/comparison.py": "a check: it must not share the errors of what it compares",
    "cdc/lab/proof/debezium_fields.py": "a check, likewise",
    "spark/source/sql.py": "a check, likewise",
    "spark/values/columns.py": "a check, likewise",
    "spark/values/debezium.py": "a check, likewise",
    "cdc/contract/key_identity.py": "which type prints another one's values as it does, tried against a server",
    "cdc/sink/postgres/tables.py": "format_type's spellings: which replica type prints another one's values as it does",
}
# Not those that are words of other languages, too: date, bool, json, path …
UNMISTAKABLE = {name for name in BUILTIN_KINDS if any(letter.isdigit() for letter in name)} | {
    *("oid", "numeric", "jsonb", "bytea", "timestamptz", "timetz", "varbit", "cidr", "inet")
}


@pytest.mark.parametrize("reader", READERS)
def test_each_kind_is_handled(reader: str) -> None:
    missing = sorted(kind.name for kind in set(Kind) - set(READERS[reader]))
    assert not missing, f"{reader} does not say what becomes of these kinds: {missing}"


def test_every_type_whose_kind_is_more_than_text_is_read_as_people_spell_it() -> None:
    only_text = {Kind.DOCUMENT, Kind.ASCII, Kind.TEXT}
    unread = [
        name
        for name, kind in BUILTIN_KINDS.items()
        if kind not in only_text and reading_of(name).identity is Identity.UNKNOWN
    ]
    assert not unread, "cdc.contract.formats.canonical compares them as text"


def test_types_are_named_in_one_module() -> None:
    found = [
        f"{path}:{node.lineno}: {node.value}"
        for path in modules("cdc", "spark")
        if str(path) not in NAMES_OF_THEIR_OWN
        for node in ast.walk(parse(path))
        if isinstance(node, ast.Constant) and node.value in UNMISTAKABLE
    ]
    assert not found, f"ask cdc.contract.kinds what kind of value it is: {found}"


def test_checks_agree_with_the_kinds() -> None:
    checks = {
        "number": (TypeForm.NUMBER, spark_values.Scalar.NUMBER),
        "bool": (TypeForm.BOOL, spark_values.Scalar.BOOL),
        "json": (TypeForm.DOCUMENT, spark_values.Scalar.JSON),
        "text": (TypeForm.TEXT, spark_values.Scalar.TEXT),
    }
    types = [sql_type(Column("c", oid, -1, name, False)) for oid, name in BUILTIN_NAMES.items()]
    scalars = [each for each in types if not each.endswith("[]")]
    kinds = {each: TOPIC_FORMS[kind_of(each).kind] for each in scalars}
    assert {each: checks[kind] for each, kind in kinds.items()} == {
        each: (PROOF_FORMS.get(each.strip('"'), TypeForm.TEXT), spark_values.kind_of(each)) for each in scalars
    }
    arrays = [each for each in types if each.endswith("[]")]
    assert {each: spark_values.kind_of(each) for each in arrays} == {
        each: spark_values.ArrayOf(checks[TOPIC_FORMS[kind_of(each).kind]][1], kind_of(each).delimiter)
        for each in arrays
    }
