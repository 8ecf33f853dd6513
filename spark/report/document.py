"""The report as JSON, for other programs. ``schema.json`` beside this file is its published schema."""

from __future__ import annotations

import json
from typing import Any

from pydantic import ValidationError

from cdc.base.errors import ConfigError
from cdc.spark.report.model import SCHEMA_VERSION, Report


def as_json(report: Report) -> str:
    """Returns the whole document, with fields in a fixed order, ending with a newline."""
    # Python's own encoder escapes lone surrogates, which UTF-8 cannot hold; pydantic's does not.
    return json.dumps(report.model_dump(mode="python"), indent=2, ensure_ascii=True) + "\n"


def from_json(text: str) -> Report:
    """Parses what ``as_json`` wrote.

    Raises:
        ConfigError: the text is not a report, or one of another version.
    """
    try:
        found = json.loads(text)
        version = found["schema_version"]
    except (ValueError, TypeError, KeyError) as error:
        raise ConfigError(f"not a reconciliation report: {error}", remedy="name the run's report.json") from error
    if str(version).split(".")[0] != SCHEMA_VERSION.split(".")[0]:
        raise ConfigError(
            f"this report has schema version {version}; this program reads {SCHEMA_VERSION}",
            remedy="read it with the release that wrote it (engine.tool_version)",
        )
    try:
        return Report.model_validate(found)
    except ValidationError as error:
        first = error.errors()[0]
        place = ".".join(str(part) for part in first["loc"])
        raise ConfigError(
            f"the report (schema version {version}) does not fit at {place}: {first['msg']}",
            remedy="read it with the release that wrote it (engine.tool_version)",
        ) from error


def json_schema() -> str:
    """Returns the JSON schema of the document, the content of ``schema.json``.

    The schema allows unknown fields: a minor version may add some, and that must not break a reader's check.
    """
    schema = {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "$id": f"urn:cdc:reconciliation-report:{SCHEMA_VERSION}",
        **Report.model_json_schema(mode="serialization"),
    }
    return json.dumps(_open(schema), indent=2) + "\n"


def _open(node: Any) -> Any:
    if isinstance(node, dict):
        return {key: _open(value) for key, value in node.items() if not (key == "additionalProperties" and not value)}
    return [_open(each) for each in node] if isinstance(node, list) else node
