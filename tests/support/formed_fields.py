"""Turns rows in the forms of the section ``values`` into the JSON of each column, with the types of the catalog.

This is deliberately a second implementation: it shares no code with ``cdc.contract.formats``. A row does not name its
table, so the catalog's tables are told apart by the names of their columns.
"""

from __future__ import annotations

import base64
import json
import re
from collections.abc import Callable, Mapping
from functools import cache
from typing import Any, Final

import psycopg

from cdc.lab.proof.server_text import FormError
from cdc.lab.proof.topic_side import ReadFields

_TYPES: Final = """
WITH RECURSIVE base AS (
    SELECT attrelid, attnum, attname, atttypid AS type FROM pg_attribute a
        JOIN pg_class c ON c.oid = attrelid JOIN pg_namespace n ON n.oid = relnamespace
    WHERE relkind IN ('r', 'p') AND nspname NOT IN ('pg_catalog', 'information_schema')
        AND attnum > 0 AND NOT attisdropped AND attgenerated = ''
    UNION ALL
    SELECT attrelid, attnum, attname, typbasetype FROM base JOIN pg_type t ON t.oid = type WHERE typtype = 'd')
SELECT json_object_agg(attname, coalesce(e.typname || '[]', t.typname) ORDER BY attnum)
FROM base JOIN pg_type t ON t.oid = base.type
    LEFT JOIN pg_type e ON e.oid = t.typelem AND t.typoutput = 'array_out'::regproc
WHERE t.typtype <> 'd' GROUP BY attrelid
"""
_WORD: Final = re.compile(r'["{}\\\s,]')


def fields_by_names(dsn: str, options: Mapping[str, Any]) -> ReadFields:
    """Returns a function that reads rows of the tables in this database.

    Args:
        dsn: of the source.
        options: the section ``values`` of the configuration, without exceptions.
    """

    @cache
    def types_of(names: frozenset[str]) -> Mapping[str, str]:
        with psycopg.connect(dsn, autocommit=True) as connection:
            tables = [types for (types,) in connection.execute(_TYPES) if types.keys() == names]
        if not tables or any(each != tables[0] for each in tables):
            raise FormError(f"not one table has the columns {sorted(names)}: {tables}")
        found: Mapping[str, str] = tables[0]
        return found

    text = _texts(options)

    def fields(value: bytes) -> dict[str, bytes]:
        members = _members(value.decode())
        if options.get("schemas") == "connect":
            assert [*members] == ["schema", "payload"]
            members = _members(members["payload"])
        types = types_of(frozenset(members))
        return {name: _field(types[name], raw, text).encode() for name, raw in members.items()}

    return fields


def _field(sql_type: str, raw: str, text: Callable[[str, str], str | None]) -> str:
    stripped = raw.strip()
    if stripped == "null" or text(sql_type.removesuffix("[]"), "") is None:
        return raw
    element = sql_type.removesuffix("[]")
    if sql_type == element:
        return _scalar(element, stripped, text)
    if stripped.startswith('"'):  # it has bounds of its own
        return stripped
    return _array(element, stripped, text)


def _scalar(kind: str, raw: str, text: Callable[[str, str], str | None]) -> str:
    found = text(kind, json.loads(raw) if raw.startswith('"') else raw)
    assert found is not None
    return found if kind in ("json", "jsonb") else json.dumps(found, ensure_ascii=False)


def _array(element: str, raw: str, text: Callable[[str, str], str | None]) -> str:
    elements = _elements(raw)
    if element not in ("json", "jsonb"):
        return "[" + ",".join(_one(element, each, text) for each in elements) + "]"
    documents = [None if each == "null" else json.loads(each) for each in elements]
    if any(isinstance(each, list) or (each and each.strip() == "null") for each in documents):
        return json.dumps(_literal(documents), ensure_ascii=False)
    return "[" + ",".join("null" if each is None else each for each in documents) + "]"


def _one(element: str, raw: str, text: Callable[[str, str], str | None]) -> str:
    if raw.startswith("["):
        return _array(element, raw, text)
    return raw if raw == "null" else _scalar(element, raw, text)


def _literal(documents: list[Any]) -> str:
    shown = []
    for each in documents:
        if isinstance(each, list):
            shown.append(_literal(each))
        elif each is None or not (_WORD.search(each) or each.upper() == "NULL"):
            shown.append("NULL" if each is None else each)
        else:
            shown.append('"' + each.replace("\\", "\\\\").replace('"', '\\"') + '"')
    return "{" + ",".join(shown) + "}"


def _texts(options: Mapping[str, Any]) -> Callable[[str, str], str | None]:
    """Returns the function that makes the server's text of a value; None if the type has no form of its own."""

    def text(kind: str, value: str) -> str | None:
        if kind in ("timestamp", "timestamptz") and options.get("timestamps") == "iso":
            is_iso = re.fullmatch(r"\d{4}-\d\d-\d\dT[\d:.]+Z?", value)
            assert is_iso is None or value.endswith("Z") == (kind == "timestamptz")
            return value.replace("T", " ").replace("Z", "+00") if is_iso else value
        if kind == "numeric" and options.get("numeric") == "number":
            return value
        if kind == "bytea" and options.get("bytea") == "base64":
            return "\\x" + base64.b64decode(value).hex()
        return value if kind in ("json", "jsonb") and options.get("documents") == "string" else None

    return text


def _members(text: str) -> dict[str, str]:
    """Returns the members of an object as they are written."""
    decoder, found, place = json.JSONDecoder(), {}, 1
    while text[place] != "}":
        name, place = decoder.raw_decode(text, place)
        start = place + 1
        place = _after(text, start)
        found[name] = text[start:place]
        place += text[place] == ","
    return found


def _elements(text: str) -> list[str]:
    found, place = [], 1
    while text[place] != "]":
        start, place = place, _after(text, place)
        found.append(text[start:place])
        place += text[place] == ","
    return found


def _after(text: str, place: int) -> int:
    """Returns where a value ends, and the blanks after it."""
    start = re.compile(r"\s*").match(text, place)
    assert start is not None
    _, end = json.JSONDecoder().raw_decode(text, start.end())
    blanks = re.compile(r"\s*").match(text, end)
    assert blanks is not None
    return blanks.end()
