"""Matches tables with patterns: ``schema.table``, where ``*`` stands for any characters."""

from __future__ import annotations

import re
from collections.abc import Iterable

from cdc.base.table_names import parts


def in_scope(namespace: str, name: str, patterns: Iterable[str], exclude: Iterable[str]) -> bool:
    """Whether a pattern matches the table, and none of ``exclude`` does."""
    return _matches(namespace, name, patterns) and not _matches(namespace, name, exclude)


def _matches(namespace: str, name: str, patterns: Iterable[str]) -> bool:
    for pattern in patterns:
        wanted_namespace, wanted_name = parts(pattern)
        if _glob(wanted_namespace, namespace) and _glob(wanted_name, name):
            return True
    return False


def _glob(pattern: str, text: str) -> bool:
    return re.fullmatch(".*".join(map(re.escape, pattern.split("*"))), text, re.DOTALL) is not None
