"""Filters for the keys to watch: keys with certain values, or keys that begin with a text. Pure."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeAlias

from cdc.base.errors import ConfigError
from cdc.contract.formats.written_key import has_values, key_bytes, written_values
from cdc.contract.record import TableSchema

KeyFilter: TypeAlias = Callable[[bytes], bool]


def everything(_: bytes) -> bool:
    """Accepts any key."""
    return True


def beginning_with(text: str) -> KeyFilter:
    """Returns a filter for keys, of any program, whose bytes begin with this text."""
    return lambda key: key.startswith(text.encode())


def with_values(text: str, schema: TableSchema) -> KeyFilter:
    """Returns a filter for keys of a table whose columns have these values, in any of PostgreSQL's spellings.

    Args:
        text: ``region=eu`` or ``{"region":"eu"}``, with all key columns or some; for a key of one column, its value.
        schema: the table's newest definition.

    Raises:
        ConfigError: the key does not have these columns, or a value does not fit its type.
    """
    types = {column.name: column.sql_type for column in schema.columns}
    try:
        if len(schema.key) == 1 and "=" not in text and not text.lstrip().startswith("{"):
            values = {schema.key[0]: text}
        else:
            values = dict(written_values(text))
        if strange := values.keys() - set(schema.key):
            raise ValueError(f"{', '.join(sorted(strange))} is not a column of the key ({', '.join(schema.key)})")
        columns = [(name, types[name]) for name in values]
        wanted = key_bytes(values, columns)
    except ValueError as error:
        raise ConfigError(f"KEY {text}: {error}", remedy=_example(schema.key)) from error

    return has_values(wanted, columns)


def _example(key: Sequence[str]) -> str:
    return "write " + ",".join(f"{name}=…" for name in key) + (", or some of these" if len(key) > 1 else "")
