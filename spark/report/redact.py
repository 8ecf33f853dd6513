"""A report without anyone's data: classes, counts, coordinates and column names stay, values go."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import Final

from spark.report.model import Report, Sample, TableReport

HIDDEN: Final = "[hidden]"
# What a sentence quotes is a value until proven otherwise; so is what stands in braces or after an equals sign.
_QUOTED: Final = re.compile(r"'[^']*'|\"[^\"]*\"|\{.*\}|(?<==)\([^)]*\)", re.DOTALL)
_LITERAL: Final = re.compile(r"'(?:[^']|'')*'|\$(\w*)\$.*?\$\1\$|(?<![\w.])-?\d[\w.+-]*", re.DOTALL)


def redacted(report: Report) -> Report:
    """The same report with every value of a row or key hidden; NULLs and quotations in sentences too."""
    return report.model_copy(update={"redacted": True, "tables": tuple(_table(table) for table in report.tables)})


def _table(table: TableReport) -> TableReport:
    columns = tuple(
        column.model_copy(update={"examples": (), "largest_difference": None, "hint": _without_quotes(column.hint)})
        for column in table.columns
    )
    return table.model_copy(
        update={
            "reason": _without_quotes(table.reason),
            "where": None if table.where is None else _LITERAL.sub(HIDDEN, table.where),
            "columns": columns,
            "causes": tuple(bar.model_copy(update={"label": _without_quotes(bar.label)}) for bar in table.causes),
            "samples": tuple(_sample(sample) for sample in table.samples),
        }
    )


def _sample(sample: Sample) -> Sample:
    return sample.model_copy(
        update={
            "key": _key(sample.key),
            "source": _row(sample.source),
            "other": _row(sample.other),
            "cause": _without_values(_without_quotes(sample.cause), set(_values(sample))),
        }
    )


def _row(row: dict[str, str | None] | None) -> dict[str, str | None] | None:
    return None if row is None else dict.fromkeys(row, HIDDEN)


def _key(key: str) -> str:
    try:
        columns = json.loads(key)
    except ValueError:
        return HIDDEN
    return json.dumps(dict.fromkeys(columns, HIDDEN)) if isinstance(columns, dict) else HIDDEN


def _values(sample: Sample) -> Iterator[str]:
    for row in (sample.source, sample.other):
        yield from (value for value in (row or {}).values() if value and value != HIDDEN)
    try:
        columns = json.loads(sample.key)
    except ValueError:
        return
    if isinstance(columns, dict):
        yield from (str(value) for value in columns.values() if value not in ("", HIDDEN))


def _without_quotes(sentence: str) -> str:
    return _QUOTED.sub(HIDDEN, sentence)


def _without_values(sentence: str, values: set[str]) -> str:
    for value in sorted(values, key=len, reverse=True):
        sentence = re.sub(rf"(?<!\w){re.escape(value)}(?!\w)", HIDDEN, sentence)
    return sentence
