"""The report for build servers: JUnit XML with one test suite for the run and one test case per table and side."""

from __future__ import annotations

from typing import Final
from xml.etree import ElementTree

from cdc.spark.report.model import Report, TableReport
from cdc.spark.report.sides import SideComparison, comparisons
from cdc.spark.report.text import details
from cdc.spark.report.values import is_invisible
from cdc.spark.report.words import elapsed_s

_ELEMENT: Final = {"different": "failure", "not_verified": "error"}


def as_junit(report: Report) -> str:
    """Returns JUnit XML: a failure where the sides differ, an error where they could not be verified."""
    cases = [(table, comparison) for table in report.tables for comparison in comparisons(table)]
    totals = {
        "tests": str(len(cases)),
        "failures": str(sum(comparison.verdict == "different" for _, comparison in cases)),
        "errors": str(sum(comparison.verdict == "not_verified" for _, comparison in cases)),
        "skipped": "0",
        "time": f"{elapsed_s(report):.3f}",
    }
    root = ElementTree.Element("testsuites", totals)
    suite = ElementTree.SubElement(root, "testsuite", totals)
    suite.set("name", _clean(f"reconcile {report.source.database}"))
    suite.set("timestamp", report.started_at)
    suite.set("hostname", _clean(report.source.host))
    properties = ElementTree.SubElement(suite, "properties")
    for name, value in _properties(report).items():
        ElementTree.SubElement(properties, "property", {"name": name, "value": _clean(value)})
    for table, comparison in cases:
        _case(suite, table, comparison)
    ElementTree.indent(root)
    return '<?xml version="1.0" encoding="UTF-8"?>\n' + ElementTree.tostring(root, encoding="unicode") + "\n"


def _properties(report: Report) -> dict[str, str]:
    return {
        "run": report.run,
        "exit_code": str(report.exit_code),
        "database": f"{report.source.host}:{report.source.port}/{report.source.database}",
        "kafka": report.kafka,
        "tool_version": report.engine.tool_version,
        "schema_version": report.schema_version,
    }


def _case(suite: ElementTree.Element, table: TableReport, comparison: SideComparison) -> None:
    first = "source" if comparison.side == "topic" else "topic"
    name = f"{first} = {comparison.name} {comparison.other}"
    # The time of a table covers all its sides. Only the first case carries it, so that the sum is right.
    seconds = sum(stage.seconds for stage in table.stages) if comparison.side == "topic" else 0.0
    case = ElementTree.SubElement(
        suite, "testcase", {"classname": _clean(table.table), "name": _clean(name), "time": f"{seconds:.3f}"}
    )
    element = _ELEMENT.get(comparison.verdict)
    if element is not None:
        found = ElementTree.SubElement(case, element, {"type": comparison.verdict, "message": _clean(comparison.said)})
        remedy = [f"  what to do: {table.remedy}"] if table.remedy and comparison.verdict == "not_verified" else []
        found.text = _clean("\n".join(["", *remedy, *details(table, comparison), ""]))
    elif comparison.sentence:
        ElementTree.SubElement(case, "system-out").text = _clean(comparison.said)


def _clean(text: str) -> str:
    """Escapes what XML 1.0 cannot express: most control characters, and lone surrogates."""
    return "".join(f"\\u{ord(c):04x}" if is_invisible(c) and c != "\n" else c for c in text)
