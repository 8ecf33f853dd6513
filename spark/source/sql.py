"""SQL expressions for a source row: the record key and value as the topic contract writes them, and columns as text.

They are written from the contract, in SQL, and share no code with the bridge's encoder: a checker must not share the
errors of what it checks. If a value has two spellings, hashes may differ although the rows are the same. Then the
second look, at whole rows, decides.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Sequence
from typing import Final

from cdc.contract.jobspec.deployment import JobColumn, JobTable

_INTEGERS: Final = frozenset({"int2", "int4", "int8", "oid"})
HASH_DIGITS: Final = 15
"""How many hex digits of an MD5 fit into a positive bigint."""

MASK_KEYS: Final = "cdc.mask_keys"
"""The session's parameter that has the keys of masks."""
_PADS: Final = f"pg_catalog.current_setting('{MASK_KEYS}')"
_BLOCK_BYTES: Final = 64

_MOST_ARGUMENTS: Final = 90
"""How many arguments to give to one call; PostgreSQL's functions take at most 100."""

_UNQUOTED_QUESTION: Final = re.compile(
    r"""[eE]'(?:[^'\\]|''|\\.)*'|'(?:[^']|'')*'|"(?:[^"]|"")*"|\$(\w*)\$.*?\$\1\$|--[^\n]*|/\*.*?\*/|\?""", re.DOTALL
)


def quoted(*names: str) -> str:
    """Quotes names for SQL and joins them with dots."""
    return ".".join('"' + name.replace('"', '""') + '"' for name in names)


def key_json(table: JobTable) -> str:
    """Returns a SQL expression for the record key."""
    kinds = {column.name: column for column in table.columns}
    return _json_object([kinds[name] for name in table.key])


def value_json(columns: Sequence[JobColumn]) -> str:
    """Returns a SQL expression for the topic's value, followed by the header's mark of each JSON document ``null``."""
    documents = [
        f"CASE WHEN {_text(column)} = 'null' THEN '{index},' END"
        for index, column in enumerate(columns)
        if column.kind == "json" and not column.is_array and not column.mask
    ]
    return _concatenated([_json_object(columns), *documents])


def digest(text: str) -> str:
    """Returns a SQL expression for the MD5 of a text in UTF-8, as Kafka holds it, whatever the database's encoding."""
    return f"pg_catalog.md5(pg_catalog.convert_to({text}, 'UTF8'))"


def condition(sql: str) -> str:
    """Makes a user's SQL condition part of a query for the JDBC driver, which takes each ``?`` for a parameter."""
    for_driver = _UNQUOTED_QUESTION.sub(lambda found: "??" if found[0] == "?" else found[0], sql)
    # The parenthesis goes on a line of its own, because the condition may end with a comment.
    return f"({for_driver}\n)"


def hashed(text: str) -> str:
    """Returns a SQL expression for 60 bits of an MD5 as a bigint."""
    return f"('x' || pg_catalog.left({text}, {HASH_DIGITS}))::bit({4 * HASH_DIGITS})::bigint"


def columns_json(columns: Sequence[JobColumn]) -> str:
    """Returns a SQL expression for a JSON array of the columns' output texts, null for NULL."""
    quoting = "pg_catalog.to_json({})::text"
    texts = [f"CASE WHEN {_given(each)} THEN {quoting.format(_text(each))} ELSE 'null' END" for each in columns]
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
    """Concatenates expressions, treating NULL as empty, with not too many arguments per call."""
    chunks = [parts[start : start + _MOST_ARGUMENTS] for start in range(0, len(parts), _MOST_ARGUMENTS)]
    return "(" + " OPERATOR(pg_catalog.||) ".join(f"pg_catalog.concat({', '.join(chunk)})" for chunk in chunks) + ")"


def _text(column: JobColumn) -> str:
    """Returns a SQL expression for the text of a value that is not NULL, masked as the topic contract says."""
    text = f"pg_catalog.concat({quoted(column.name)})"
    if column.mask == "last4":
        shown = f"CASE WHEN pg_catalog.length({text}) >= 8 THEN pg_catalog.right({text}, 4) ELSE '' END"
        return f"pg_catalog.concat('****', {shown})"
    if column.mask == "sha256":
        # The HMAC of RFC 2104 in full, because pgcrypto is not everywhere. Of the salt, PostgreSQL only gets the two
        # padded keys, in a parameter of the session, because the text of a query may be logged.
        inner, outer = (_bytes(f"pg_catalog.substr({_PADS}, {start}, 128)") for start in (1, 129))
        name = (f"pg_catalog.convert_to({literal(column.mask_name)}, 'UTF8')", "pg_catalog.decode('00', 'hex')")
        parts = [inner, *(name if column.mask_name else ()), f"pg_catalog.convert_to({text}, 'UTF8')"]
        hashed_once = f"pg_catalog.sha256({' OPERATOR(pg_catalog.||) '.join(parts)})"
        return f"pg_catalog.encode(pg_catalog.sha256({outer} OPERATOR(pg_catalog.||) {hashed_once}), 'hex')"
    return text


def _bytes(hex_digits: str) -> str:
    return f"(SELECT pg_catalog.decode({hex_digits}, 'hex'))"  # a query of its own, which runs once


def pads(salt: str) -> str:
    """Returns the inner and the outer key of an HMAC with SHA-256, in hex: what the parameter ``MASK_KEYS`` is set to.

    Args:
        salt: the key.
    """
    key = salt.encode()
    key = (hashlib.sha256(key).digest() if len(key) > _BLOCK_BYTES else key).ljust(_BLOCK_BYTES, b"\0")
    return "".join(bytes(byte ^ pad for byte in key).hex() for pad in (0x36, 0x5C))


def _given(column: JobColumn) -> str:
    if column.mask == "null":
        return "false"
    # "IS NOT NULL" would not do: it is false for a composite value with a NULL field.
    return f"NOT ({quoted(column.name)} IS NOT DISTINCT FROM NULL)"


def _form(column: JobColumn) -> str:
    """Returns a SQL expression for the JSON of a value that is not NULL."""
    name = quoted(column.name)
    text = _text(column)
    if column.mask:
        return f"pg_catalog.to_json({text})::text"
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
        # Nested lists look like documents, and NULL like the document null: then the topic has the array literal.
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
    # Cast the array literal, not the array: a direct cast prints inet and char(n) unlike their output functions.
    return f"pg_catalog.to_json(pg_catalog.concat({name})::text[])::text"


def _json_string(text: str) -> str:
    return json.dumps(text, ensure_ascii=False)


def literal(text: str) -> str:
    """Writes a string constant that does not depend on ``standard_conforming_strings``."""
    escaped = text.replace("'", "''")
    return f"'{escaped}'" if "\\" not in text else "E'" + escaped.replace("\\", "\\\\") + "'"
