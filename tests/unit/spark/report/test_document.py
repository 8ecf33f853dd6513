"""The JSON document, which other programs read."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

import cdc.spark.report
from cdc.base.errors import ConfigError
from cdc.spark.report.document import as_json, from_json, json_schema
from cdc.spark.report.model import Report
from tests.support import reports

SCHEMA = Path(cdc.spark.report.__file__).with_name("schema.json")


@pytest.mark.parametrize("report", [reports.mixed(), reports.all_identical(), reports.hostile(), reports.report()])
def test_it_comes_back_as_it_was(report: Report) -> None:
    assert from_json(as_json(report)) == report


def test_it_survives_any_encoding() -> None:
    assert as_json(reports.hostile()).isascii()


def test_the_schema_in_the_tree_is_current() -> None:
    assert SCHEMA.read_text() == json_schema(), (
        "the document changed; think of its readers (SCHEMA_VERSION), then write spark/report/schema.json anew: "
        "python -c 'from cdc.spark.report.document import *; print(json_schema(), end=\"\")'"
    )


def test_the_schema_allows_what_a_minor_version_adds() -> None:
    schema = json.loads(json_schema())
    assert 'additionalProperties": false' not in json_schema()
    assert schema["$id"] == "urn:cdc:reconciliation-report:1.0"
    assert set(schema["properties"]) == set(json.loads(as_json(reports.mixed())))
    # Columns of a row are free: their values' type is said, and stays.
    assert schema["$defs"]["Sample"]["properties"]["source"]["anyOf"][0]["additionalProperties"]


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("{", "not a reconciliation report"),
        ("[]", "not a reconciliation report"),
        ('{"schema_version": "2.0"}', "schema version 2.0; this program reads 1.0"),
        ('{"schema_version": "1.0"}', "does not fit at run: Field required"),
    ],
)
def test_what_is_no_report_is_refused(text: str, said: str) -> None:
    with pytest.raises(ConfigError, match=said) as raised:
        from_json(text)
    assert raised.value.remedy
