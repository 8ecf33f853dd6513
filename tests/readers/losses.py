"""What a reader cannot hold of what the topic says, value by value; docs/readers.md tells each of them.

A test expects just these differences: a reader that loses more fails, and so does one that loses less.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from typing import Final, NamedTuple

from tests.readers.canonical import Rows, Value
from tests.readers.fed import EMBEDS_DOCUMENTS, FORMATS, ValueFormat


class Loss(NamedTuple):
    """One kind of value that a reader holds as another.

    Attributes:
        says: as the page says it.
        columns: that have such values.
        becomes: what is held instead of a value; other values stay.
    """

    says: str
    columns: tuple[str, ...]
    becomes: Callable[[Value], Value]


JSON_NULL: Final = Loss(
    "the document `null` is read as NULL", ("doc",), lambda value: None if value == "null" else value
)
NAN_IS_NULL: Final = Loss(
    "`NaN` in a float column becomes NULL", ("ratio", "measure"), lambda value: None if value == "nan" else value
)


def _in_documents(becomes: Mapping[str, str]) -> Callable[[Value], Value]:
    """Numbers in documents that are held as others."""

    def held(value: Value) -> Value:
        for digits, others in becomes.items():
            value = value.replace(f'"{digits}"', f'"{others}"') if isinstance(value, str) else value
        return value

    return held


_DOUBLES: Final = "numbers in documents become doubles"
DUCKDBS_DOUBLES: Final = Loss(
    _DOUBLES, ("doc",), _in_documents({"12345678901234567890.10": "12345678901234567000.0", "1.10": "1.1"})
)
SPARKS_DOUBLES: Final = Loss(
    _DOUBLES, ("doc",), _in_documents({"12345678901234567890.10": "1.2345678901234567E19", "1.10": "1.1"})
)
NO_DOCUMENTS: Final = Loss("documents are left out", ("doc",), lambda _value: None)
ZERO_FLOATS: Final = Loss(
    "`NaN` and the infinities of a float become 0",
    ("ratio", "measure"),
    lambda value: "0.0" if value in ("nan", "inf", "-inf") else value,
)


def unquoted(text: str) -> str:
    """A document as a reader has it that takes the quotes from strings: another one, unless it had none."""
    try:
        json.loads(text)
    except ValueError:
        return json.dumps(["no document", text])
    return text


NO_QUOTES: Final = Loss(
    "documents that are strings lose their quotes",
    ("doc",),
    lambda value: unquoted("text") if value == '"text"' else value,
)

NO_ZEROS: Final = Loss(
    "numbers in objects and arrays lose zeros at their end",
    ("doc",),
    _in_documents({"12345678901234567890.10": "12345678901234567890.1"}),
)

LOSSES: Final[Mapping[tuple[str, ValueFormat], Sequence[Loss]]] = {
    # With Connect's schemas, the bridge refuses NaN.
    **{("pandas", each): [NAN_IS_NULL] for each in FORMATS if each != "connect"},
    ("DuckDB", "json"): [DUCKDBS_DOUBLES],
    ("DuckDB", "json-schema"): [DUCKDBS_DOUBLES],
    ("Flink SQL", "json"): [NO_QUOTES, NO_ZEROS],
    ("Spark", "json"): [NO_QUOTES, SPARKS_DOUBLES],
    ("Spark", "json-schema"): [NO_QUOTES, SPARKS_DOUBLES],
    ("Debezium's JDBC sink", "json"): [NO_DOCUMENTS, ZERO_FLOATS],
    ("Debezium's JDBC sink", "debezium-schemas"): [ZERO_FLOATS],
}


class Refusal(NamedTuple):
    """Why a reader reads nothing.

    Attributes:
        says: as the page says it.
        error: a pattern of what the reader says.
    """

    says: str
    error: str


_NO_JSON: Final = r"Converting byte\[\] to Kafka Connect data failed"
REFUSALS: Final[Mapping[tuple[str, ValueFormat], Refusal]] = {
    ("Flink SQL", "json-schema"): Refusal("its `json` takes the schema's id for JSON", "Failed to deserialize JSON"),
    ("Flink SQL", "protobuf"): Refusal(
        "its `protobuf` is another jar, and takes the schema's id for the message",
        "Could not find any factory for identifier 'protobuf'",
    ),
    ("Debezium's JDBC sink", "json-schema"): Refusal(
        "Kafka's `JsonConverter` takes the schema's id for JSON", _NO_JSON
    ),
    ("Debezium's JDBC sink", "protobuf"): Refusal("Kafka has no converter of it", _NO_JSON),
    ("Debezium's JDBC sink", "debezium"): Refusal(
        "the sink needs the schema of each value", "JDBC sink connector failure(.|\n)*NullPointerException"
    ),
}


def held(rows: Rows, reader: str, value_format: ValueFormat) -> Rows:
    """The rows as a reader holds them that loses what it is known to lose."""
    nulls = [JSON_NULL] if value_format in EMBEDS_DOCUMENTS else []
    for loss in [*nulls, *LOSSES.get((reader, value_format), ())]:
        before, rows = rows, _altered(rows, loss)
        assert before != rows, f"no row shows that {loss.says}"
    return rows


def _altered(rows: Rows, loss: Loss) -> Rows:
    return {
        key: {name: loss.becomes(value) if name in loss.columns else value for name, value in row.items()}
        for key, row in rows.items()
    }
