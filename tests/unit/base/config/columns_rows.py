"""Rows of test_options.py about columns that may not leave."""

from __future__ import annotations

from typing import Any, Final

DEFAULTS: Final[dict[str, Any]] = {"source.columns": {}, "source.salt": None, "source.salt_file": None}

ACCEPTED: Final[list[tuple[str, Any]]] = []
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
    ("source.salt", "x" * 15, "write at least 16 characters"),
    ("source.salt_file", "nowhere", "salt_file: cannot read"),
]
