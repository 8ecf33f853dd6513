"""Rows of test_options.py about columns and rows that may not leave, and rows that cannot."""

from __future__ import annotations

from typing import Any, Final

DEFAULTS: Final[dict[str, Any]] = {
    "source.columns": {},
    "source.rows": {},
    "source.quarantine": {},
    "sink.quarantine": {},
    "source.salt": None,
    "source.salt_file": None,
}

ACCEPTED: Final[list[tuple[str, Any]]] = [("source.rows", {"public.t": "a > 1 AND b = 'x; y'"})]
"""Rules become objects: test_columns.py reads them."""

_OF_T: Final = "source.columns"

REFUSED: Final[list[tuple[str, Any, str]]] = [
    (_OF_T, {"t": {"exclude": ["a"]}}, "write schema.table, for instance public.orders"),
    (_OF_T, {"public.t": {}}, "it names no column: add exclude or mask"),
    (_OF_T, {"public.t": {"exclude": [""]}}, "must not be empty"),
    (_OF_T, {"public.t": {"exclude": ["a"], "mask": {"a": None}}}, "a is named more than once"),
    (_OF_T, {"public.t": {"exclude": ["a", "a"]}}, "a is named more than once"),
    (_OF_T, {"public.t": {"keep": ["a"]}}, "keep says nothing without policy: strict"),
    (_OF_T, {"public.t": {"mask": {"a": "md5"}}}, "should be 'null', 'last4', 'sha256' or 'sha256-joinable'"),
    (_OF_T, {"public.t": {"mask": {"a": "sha256"}}}, "has a sha256 mask, which needs a secret: add salt or salt_file"),
    (_OF_T, {"public.t": {"policy": "closed", "exclude": ["a"]}}, "should be 'open' or 'strict'"),
    ("source.rows", {"t": "true"}, "write schema.table, for instance public.orders"),
    ("source.rows", {"public.t": " "}, "must not be empty"),
    ("source.rows", {"public.t": "a = '\0'"}, "contains a zero byte"),
    ("sink.quarantine", {"t": {}}, "write schema.table, for instance public.orders"),
    ("sink.quarantine", {"public.t": {"budget": 0}}, "should be greater than or equal to 1"),
    ("source.quarantine", {"t": {}}, "write schema.table, for instance public.orders"),
    ("source.quarantine", {"public.t": {"budget": 0}}, "should be greater than or equal to 1"),
    ("source.quarantine", {"public.t": {"budget": 10_001}}, "should be less than or equal to 10000"),
    ("source.quarantine", {"public.t": {"budget": "9"}}, "should be a valid integer"),
    ("source.salt", "x" * 15, "write at least 16 characters"),
    ("source.salt_file", "nowhere", "salt_file: cannot read"),
]
