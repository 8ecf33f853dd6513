"""Rows of test_options.py about the section debezium."""

from __future__ import annotations

from typing import Any, Final

DEFAULTS: Final[dict[str, Any]] = {
    "debezium.decimal_handling_mode": "precise",
    "debezium.time_precision_mode": "adaptive",
    "debezium.binary_handling_mode": "bytes",
    "debezium.hstore_handling_mode": "json",
    "debezium.interval_handling_mode": "string",
    "debezium.tombstones_on_delete": True,
    "debezium.schemas_enable": False,
}

ACCEPTED: Final[list[tuple[str, Any]]] = [
    ("debezium.decimal_handling_mode", "string"),
    *(
        ("debezium.time_precision_mode", mode)
        for mode in ("adaptive_time_microseconds", "isostring", "microseconds", "nanoseconds")
    ),
    *(("debezium.binary_handling_mode", mode) for mode in ("base64", "base64-url-safe", "hex")),
    ("debezium.hstore_handling_mode", "map"),
    ("debezium.schemas_enable", True),
]

REFUSED: Final[list[tuple[str, Any, str]]] = [
    ("debezium.decimal_handling_mode", "double", "double rounds numbers: write precise or string"),
    ("debezium.decimal_handling_mode", "exact", "should be 'precise' or 'string'"),
    ("debezium.time_precision_mode", "connect", "connect cuts times to milliseconds"),
    ("debezium.time_precision_mode", "structured", "should be 'adaptive'"),
    ("debezium.binary_handling_mode", "base32", "should be 'bytes'"),
    ("debezium.hstore_handling_mode", "text", "should be 'json' or 'map'"),
    ("debezium.interval_handling_mode", "numeric", "numeric takes each month for 30.4 days: write string"),
    ("debezium.tombstones_on_delete", False, "a compacted topic would keep every deleted key for ever"),
]
