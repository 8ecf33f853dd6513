"""A source row as SQL: its record key and value as the topic contract writes them, for a hash; and its columns as text.

Written from the contract, in SQL, and sharing no code with the encoder of the bridge: what compares must not share the
errors of what is compared. Where a value has two spellings, the hash may differ although the row is the same; then the
second look, at whole rows, decides.
"""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from typing import Final

from cdc.contract.jobspec.deployment import JobColumn, JobTable

_INTEGERS: Final = frozenset({"int2", "int4", "int8", "oid"})
HASH_DIGITS: Final = 15
"""Hex digits of an md5 that fit into a positive bigint."""

_MOST_ARGUMENTS: Final = 90
"""PostgreSQL's functions take 100."""

_UNQUOTED_QUESTION: Final = re.compile(
    r"""[eE]'(?:[^'\\]|''|\\.)*'|'(?:[^']|'')*'|"(?:[^"]|"")*"|\$(\w*)\$.*?\$\1\$|--[^\n]*|/\*.*?\*/|\?""", re.DOTALL
)


def quoted(*names: str) -> str:
    """Names joined by dots, as SQL takes them."""
    return ".".join('"' + name.replace('"', '""') + '"' for name in names)


def key_json(table: JobTable) -> str:
    """SQL expression: the record key."""
    kinds = {column.name: column for column in table.columns}
    return _json_object([kinds[name] for name in table.key])


def value_json(columns: Sequence[JobColumn]) -> str:
    """SQL expression: the value of the topic; json documents ``null`` are marked behind it as the header marks them."""
    documents = [
        f"CASE WHEN pg_catalog.concat({quoted(column.name)}) = 'null' THEN '{index},' END"
        for index, column in enumerate(columns)
        if column.kind == "json" and not column.is_array
    ]
    return _concatenated([_json_object(columns), *documents])


def digest(text: str) -> str:
    """SQL expression: the md5 of a text as Kafka holds it, whatever encoding the database has."""
    return f"pg_catalog.md5(pg_catalog.convert_to({text}, 'UTF8'))"


def condition(sql: str) -> str:
    """An SQL condition of somebody else, as part of a query for the JDBC driver, to which ``?`` is a parameter."""
    for_driver = _UNQUOTED_QUESTION.sub(lambda found: "??" if found[0] == "?" else found[0], sql)
    # On a line of its own: it may end with a comment.
    return f"({for_driver}\n)"


def hashed(text: str) -> str:
    """SQL expression: 60 bits of an md5 as a bigint."""
    return f"('x' || pg_catalog.left({text}, {HASH_DIGITS}))::bit({4 * HASH_DIGITS})::bigint"


def columns_json(columns: Sequence[JobColumn]) -> str:
    """SQL expression: a JSON array of the columns' output texts, null for NULL."""
    quoting = "pg_catalog.to_json(pg_catalog.concat({}))::text"
    texts = [f"CASE WHEN {_given(each)} THEN {quoting.format(quoted(each.name))} ELSE 'null' END" for each in columns]
    separated = [part for text in texts for part in ("','", text)][1:]
    return _concatenated(["'['", *separated, "']'"])


def _json_object(columns: Sequence[JobColumn]) -> str:
    parts = []
    for index, column in enumerate(columns):
        name = _json_string(column.name)
        opening = "{" if index == 0 else ","
        parts.append(literal(f"{opening}{name}:"))
        parts.append(f"CASE WHEN {_given(column)} THEN {_form(column)} ELSE 'null' END")
    return _concatenated([*parts, "'}'"])


def _concatenated(parts: Sequence[str]) -> str:
    """Texts, NULL as nothing, one after the other."""
    chunks = [parts[start : start + _MOST_ARGUMENTS] for start in range(0, len(parts), _MOST_ARGUMENTS)]
    return "(" + " OPERATOR(pg_catalog.||) ".join(f"pg_catalog.concat({', '.join(chunk)})" for chunk in chunks) + ")"


def _given(column: JobColumn) -> str:
    # Not "IS NOT NULL": that is false for a composite value with a NULL field.
    return f"NOT ({quoted(column.name)} IS NOT DISTINCT FROM NULL)"


def _form(column: JobColumn) -> str:
    """The JSON of one value that is not NULL."""
    name = quoted(column.name)
    text = f"pg_catalog.concat({name})"
    if column.is_array:
        return f"CASE WHEN {text} LIKE '[%' THEN pg_catalog.to_json({text})::text ELSE {_array_form(column)} END"
    if column.kind == "bool":
        return f"CASE WHEN {name} THEN 'true' ELSE 'false' END"
    if column.kind == "number":
        integer = column.sql_type.split("(")[0] in _INTEGERS
        return text if integer else _float_form(text)
    if column.kind == "json":
        return text
    return f"pg_catalog.to_json({text})::text"


def _float_form(text: str) -> str:
    special = f"{text} IN ('NaN', 'Infinity', '-Infinity')"
    return f"CASE WHEN {special} THEN '\"' || {text} || '\"' ELSE {text} END"


def _array_form(column: JobColumn) -> str:
    name = quoted(column.name)
    if column.kind == "json":
        # Nested lists cannot be told from documents, nor NULL from the document null: there the literal stands.
        plain = (
            f"COALESCE(pg_catalog.array_ndims({name}), 1) = 1 AND NOT EXISTS"
            f" (SELECT FROM pg_catalog.unnest({name}) e WHERE e::text = 'null')"
        )
        literal = f"pg_catalog.to_json(pg_catalog.concat({name}))"
        return f"CASE WHEN {plain} THEN pg_catalog.array_to_json({name})::text ELSE {literal}::text END"
    if column.sql_type == "oid[]":
        return f"pg_catalog.array_to_json({name}::bigint[])::text"
    if column.kind in ("number", "bool"):
        return f"pg_catalog.array_to_json({name})::text"
    if column.delimiter != ",":
        return f"pg_catalog.to_json({name}::text[])::text"
    # By way of the literal: a direct cast prints inet and char(n) differently from their output functions.
    return f"pg_catalog.to_json(pg_catalog.concat({name})::text[])::text"


def _json_string(text: str) -> str:
    return json.dumps(text, ensure_ascii=False)


def literal(text: str) -> str:
    """A string constant, whatever ``standard_conforming_strings`` says."""
    escaped = text.replace("'", "''")
    return f"'{escaped}'" if "\\" not in text else "E'" + escaped.replace("\\", "\\\\") + "'"
