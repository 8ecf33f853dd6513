"""The OpenAPI document: every page, parameter, header and status, with examples. Pure.

https://spec.openapis.org/oas/v3.1.1
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from cdc import __version__
from cdc.base.web.problem import KINDS, Kind
from cdc.views.query.parameters import DEFAULT_PAGE, MAX_PAGE

Json = dict[str, Any]

_ITEM: Final[Json] = {
    "type": "object",
    "required": ["key", "partition", "offset", "lsn", "row"],
    "properties": {
        "key": {"description": "The record's key: an object of the key columns."},
        "partition": {"type": "integer"},
        "offset": {"type": "integer"},
        "lsn": {"type": ["string", "null"], "description": "LSN of the commit that wrote the row."},
        "row": {"description": "The row, byte by byte as the topic has it."},
    },
}
_PROBLEM: Final[Json] = {
    "type": "object",
    "required": ["type", "title", "status", "detail"],
    "properties": {
        "type": {"type": "string", "enum": list(KINDS)},
        "title": {"type": "string"},
        "status": {"type": "integer"},
        "detail": {"type": "string", "description": "What is wrong, and what to do."},
    },
}
_PROBLEM_CONTENT: Final[Json] = {"application/problem+json": {"schema": {"$ref": "#/components/schemas/Problem"}}}
_EXAMPLE_ROW: Final[Json] = {"id": 42, "name": "Ada", "email": "ada@example.org"}
_EXAMPLE_ITEM: Final[Json] = {
    "key": {"id": 42},
    "partition": 0,
    "offset": 17,
    "lsn": "0/1925728",
    "row": _EXAMPLE_ROW,
}
_SAID: Final[Mapping[str, str]] = {
    "Cdc-State": "exact, loading, suspect, degraded or behind",
    "Cdc-Reason": "why the state is not exact",
    "Cdc-Lsn": "the table shows every commit before this LSN",
    "Cdc-Min-Lsn": "timeline and Cdc-Lsn: send it as min_lsn to see no less than here",
    "Cdc-Source": "system identifier, timeline and database of the source",
    "Cdc-Age": "seconds since the topics were last known to hold nothing that the view does not show",
    "Cdc-Generation": "which reading of the topic the row is of",
}
_SAID_OF_ROW: Final[Mapping[str, str]] = {
    **_SAID,
    "Cdc-Partition": "partition of the row's record",
    "Cdc-Offset": "offset of the row's record",
    "Cdc-Row-Lsn": "LSN of the commit that wrote the row",
    "ETag": "names this version of the row; send it as If-None-Match",
}


def document(aliases: Mapping[str, str]) -> Json:
    """Builds the OpenAPI document.

    Args:
        aliases: the table of each short path that the caller may know.
    """
    return {
        "openapi": "3.1.0",
        "info": {
            "title": "cdc serve",
            "version": __version__,
            "description": "Tables of a PostgreSQL database, kept from compacted topics. docs/views.md explains it.",
        },
        "components": {
            "schemas": {"Item": _ITEM, "Problem": _PROBLEM},
            "securitySchemes": {"token": {"type": "http", "scheme": "bearer"}},
        },
        "security": [{}, {"token": []}],
        "paths": {**_paths(), **_alias_paths(aliases)},
    }


def _paths() -> Json:
    table = "/v1/tables/{table}"
    waiting = ["min_lsn", "timeout", "source"]
    bounds = ["prefix", "start", "stop", "limit", "after", "key", "as_of"]
    return {
        "/v1/tables": _get("The tables, and what each is worth", [], _json({"type": "object"}), ()),
        table: _get("One table", ["table"], _json({"type": "object"}), ("unknown-table",)),
        f"{table}/rows/{{key}}": _get(
            "The row of a key; one segment for each key column",
            ["table", "key_path", *waiting, "as_of", "if_none_match"],
            _json({}, _EXAMPLE_ROW, _SAID_OF_ROW),
            ("malformed-key", "unknown-table", "other-source", "not-yet", "no-history", "unreadable", "not-ready"),
            also={"304": {"description": "The row is the one that If-None-Match names."}},
        ),
        f"{table}/rows": _get(
            "Rows in the order of their keys, page by page; or one row, whose key is a parameter",
            ["table", *waiting, *bounds],
            _json({}, {"rows": [_EXAMPLE_ITEM], "after": "…"}, _SAID),
            ("bad-parameter", "unknown-table", "other-source", "not-yet", "no-history", "unreadable", "not-ready"),
            also={"304": {"description": "The row is the one that If-None-Match names."}},
        ),
        f"{table}/rows:batchGet": _batch(waiting),
        f"{table}/count": _get(
            "How many rows there are",
            ["table", *waiting],
            _json({"type": "object", "required": ["count"]}, {"count": 100_000}, _SAID),
            ("bad-parameter", "unknown-table", "other-source", "not-yet", "not-ready"),
        ),
        f"{table}/watch": _get(
            "Every row, then each key that changes, as server-sent events without end",
            ["table", "last_event_id"],
            {"description": "Events", "content": {"text/event-stream": {"schema": {"type": "string"}}}},
            ("bad-parameter", "unknown-table", "too-many-watches", "not-ready"),
        ),
        "/live": _get("Whether the process answers", [], _json({"type": "object"}), ()),
        "/ready": _get("Whether every table can answer questions", [], _json({"type": "object"}), ("not-ready",)),
    }


def _batch(waiting: list[str]) -> Json:
    keys = {"type": "array", "maxItems": MAX_PAGE, "items": {"anyOf": [{"type": "object"}, {"type": "string"}]}}
    schema = {"type": "object", "required": ["keys"], "additionalProperties": False, "properties": {"keys": keys}}
    page = _get(
        "The rows of many keys, in their order; null for each row that does not exist",
        ["table", *waiting],
        _json({"type": "object", "required": ["rows"]}, {"rows": [_EXAMPLE_ITEM, None]}, _SAID),
        ("bad-body", "unknown-table", "other-source", "not-yet", "body-too-large", "not-ready"),
    )["get"]
    example = {"keys": [{"id": 42}, {"id": 43}]}
    page["requestBody"] = {"required": True, "content": {"application/json": {"schema": schema, "example": example}}}
    return {"post": page}


def _alias_paths(aliases: Mapping[str, str]) -> Json:
    paths: Json = {}
    for path, table in aliases.items():
        paths[path] = _get(
            f"Rows of {table}", ["limit", "after"], _json({}, {"rows": [_EXAMPLE_ITEM], "after": None}), ()
        )
        row = _get(f"A row of {table}", ["key_path"], _json({}, _EXAMPLE_ROW, _SAID_OF_ROW), ("ambiguous", "no-row"))
        paths[f"{path}/{{key}}"] = row
    return paths


def _get(summary: str, names: list[str], answer: Json, kinds: tuple[Kind, ...], also: Json | None = None) -> Json:
    refusals: tuple[Kind, ...] = ("bad-parameter", "no-token", "not-allowed", "foreign-host", *kinds)
    responses = {"200": answer, **(also or {})}
    for kind in refusals:
        status, title = KINDS[kind]
        responses[str(status)] = {"description": title, "content": _PROBLEM_CONTENT}
    return {"get": {"summary": summary, "parameters": [_PARAMETERS[name] for name in names], "responses": responses}}


def _json(schema: Json, example: Any = None, headers: Mapping[str, str] | None = None) -> Json:
    content: Json = {"schema": schema}
    if example is not None:
        content["example"] = example
    said = {name: {"description": text, "schema": {"type": "string"}} for name, text in (headers or {}).items()}
    return {"description": "The answer", "headers": said, "content": {"application/json": content}}


def _parameter(name: str, where: str, text: str, example: object, schema: Json | None = None) -> Json:
    said: Json = {"name": name, "in": where, "description": text, "schema": schema or {"type": "string"}}
    if where == "path":
        said["required"] = True
    return {**said, "example": example}


_LSN: Final[Json] = {"type": "string", "pattern": "^([1-9][0-9]{0,9}:)?[0-9A-Fa-f]{1,8}/[0-9A-Fa-f]{1,8}$"}
_LIMIT: Final[Json] = {"type": "integer", "minimum": 1, "maximum": MAX_PAGE, "default": DEFAULT_PAGE}

_PARAMETERS: Final[Mapping[str, Json]] = {
    "table": _parameter("table", "path", "schema.table, or a topic", "public.users"),
    "key_path": _parameter(
        "key",
        "path",
        "The key's values, percent-encoded, with / between them; none may be empty, . or .. (use the parameter key)",
        "42",
    ),
    "key": _parameter("key", "query", "The key as JSON, instead of a page", '{"id":42}'),
    "min_lsn": _parameter("min_lsn", "query", "Wait until the view shows all commits before it", "1:0/1925728", _LSN),
    "timeout": _parameter("timeout", "query", "Seconds to wait for min_lsn", 1, {"type": "number", "minimum": 0}),
    "source": _parameter("source", "query", "The Cdc-Source that came with min_lsn", "7301…,1,16384"),
    "as_of": _parameter("as_of", "query", "An LSN or an ISO time: the row as it was then", "2026-03-29T12:00:00Z"),
    "prefix": _parameter("prefix", "query", "How the key's path begins", "eu/"),
    "start": _parameter("start", "query", "The first key, or its first values", "eu/7"),
    "stop": _parameter("stop", "query", "The rows end before this key", "eu/9"),
    "limit": _parameter("limit", "query", "Rows of a page", 100, _LIMIT),
    "after": _parameter("after", "query", "The value of after on the previous page", "…"),
    "if_none_match": _parameter("If-None-Match", "header", "ETags that the caller has", '"a1b2c3d4-1-0-17"'),
    "last_event_id": _parameter("Last-Event-ID", "header", "The id of the last event: go on after it", "…"),
}
