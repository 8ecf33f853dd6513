"""Removes people's data from a report: classes, counts, coordinates and column names stay, values go."""

from __future__ import annotations

import json
import re
from typing import Final

from cdc.spark.report.model import Report, Sample, TableReport

HIDDEN: Final = "[hidden]"
# Whatever a sentence quotes may be a value. So may text in braces (a key, perhaps cut short) and text in parentheses
# after an equals sign, as in PostgreSQL's "Key (id)=(7)".
_QUOTED: Final = re.compile(r"\{.*\}|\{.*\N{HORIZONTAL ELLIPSIS}|(?<!\w)'[^']*'|\"[^\"]*\"|(?<==)\([^)]*\)", re.DOTALL)
# Shorter values also occur as ordinary words and numbers: hiding each occurrence would tell more than it hides.
_LEAST_VALUE: Final = 4
# A cause shows at most this many characters of a key.
_CUT_KEY: Final = 100
_LITERAL: Final = re.compile(r"'(?:[^']|'')*'|\$(\w*)\$.*?\$\1\$|(?<![\w.])-?\d[\w.+-]*", re.DOTALL)


def redacted(report: Report) -> Report:
    """Returns the report with all values of rows and keys hidden, including NULLs, and quotations in sentences."""
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
            "cause": _without_quotes(_without_values(sample)),
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


def _without_quotes(sentence: str) -> str:
    return _QUOTED.sub(HIDDEN, sentence)


def _without_values(sample: Sample) -> str:
    """Hides the sample's own key and values in its cause, where they may stand without quotes, or a key cut short."""
    cause, shown_anyway = sample.cause, f"{sample.offset} {sample.lsn} {sample.xid} {sample.commit_time}"
    values = {value for row in (sample.source, sample.other) for value in (row or {}).values() if value}
    long = {value for value in values if len(value) >= _LEAST_VALUE and value != HIDDEN and value not in shown_anyway}
    # A key of digits may also be part of a longer number or word, which must stay.
    for secret in sorted({*long, sample.key, sample.key[:_CUT_KEY]} - {"", HIDDEN}, key=len, reverse=True):
        cause = re.sub(rf"(?<!\w){re.escape(secret)}(?!\w)", HIDDEN, cause)
    return cause
