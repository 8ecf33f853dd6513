"""What all definitions of a topic say together: its replica table's columns, and which keys are former ones. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from cdc.contract.key_identity import key_change
from cdc.contract.record import TableSchema


def wanted_columns(schemas: Sequence[TableSchema]) -> dict[str, str]:
    """Returns the SQL type of each column of any definition. The newest definition with a column decides, and the
    columns of the newest definition come first."""
    wanted: dict[str, str] = {}
    for schema in reversed(schemas):
        for column in schema.columns:
            wanted.setdefault(column.name, column.sql_type)
    return wanted


def former_keys(schemas: Sequence[TableSchema]) -> frozenset[frozenset[str]]:
    """Returns the column sets of former keys: those of older definitions that differ from the newest, the last one."""
    return frozenset(frozenset(each.key) for each in schemas) - {frozenset(schemas[-1].key)}


def former_definitions(schemas: Sequence[TableSchema]) -> frozenset[str]:
    """Returns the fingerprints of definitions that give a row another key than the newest definition, the last one.

    Args:
        schemas: in the order in which they were used. If several have the same fingerprint, the last one counts: a
            record does not say which of them it was written with, and the same text is the same key in all of them.
    """
    newest = schemas[-1]
    last = {each.fingerprint: each for each in schemas}
    return frozenset(
        name for name, each in last.items() if name != newest.fingerprint and _has_other_keys(each, newest)
    )


def _has_other_keys(was: TableSchema, now: TableSchema) -> bool:
    """Returns whether the two definitions write the same key differently, by ``contract.key_identity`` or its schema.

    If they do, the bridge has begun the topic anew. A column that only changed its position writes the same values as
    the same bytes, so to the same partition, which keeps their order.
    """
    if set(was.key) != set(now.key) or was.key_schema != now.key_schema:
        return True
    old, new = ({each.name: replace(each, number=0) for each in one.columns} for one in (was, now))
    return any(key_change(old[name], new[name]) for name in now.key)
