"""What a person writes as a key → the bytes of the record key, by any definition that its table ever had. Pure."""

from __future__ import annotations

from collections.abc import Sequence

from cdc.base.errors import ConfigError
from cdc.contract.formats.written_key import key_bytes, written_values
from cdc.contract.history import members
from cdc.contract.record import TableSchema


def record_key(text: str, schemas: Sequence[TableSchema], option: str = "--key") -> bytes:
    """The key that a person means.

    Args:
        text: ``{"id":1}``, or ``id=1,region=eu``, or the value where the newest key is one column; values in any
            spelling that ``cdc.contract.formats.canonical`` reads.
        schemas: definitions of the table, the newest last; an older one counts when its key has these columns.
        option: where the text comes from, for the error.

    Raises:
        ConfigError: not such a text, other columns, or a value that is not of its type's form.
    """
    try:
        newest = schemas[-1].key
        is_value = len(newest) == 1 and "=" not in text and not text.lstrip().startswith("{")
        values = {newest[0]: text} if is_value else written_values(text)
    except ValueError as error:
        raise ConfigError(f"{option} {text}: {error}", remedy=_remedy(option)) from error
    schema = next((each for each in reversed(schemas) if set(each.key) == values.keys()), None)
    if schema is None:
        wanted = schemas[-1].key
        raise ConfigError(
            f"{option} names ({', '.join(values)}), the key of {schemas[-1].qualified_name} is ({', '.join(wanted)})",
            remedy="write " + ",".join(f"{name}=…" for name in wanted),
        )
    types = {column.name: column.sql_type for column in schema.columns}
    try:
        return key_bytes(values, [(name, types[name]) for name in schema.key])
    except ValueError as error:
        raise ConfigError(f"{option} {text}: {error}", remedy=_remedy(option)) from error


def key_columns(schemas: Sequence[TableSchema], key: bytes) -> list[tuple[str, str]]:
    """Name and type of each column of a key that ``record_key`` made."""
    names = members(key.decode()).keys()
    schema = next(each for each in reversed(schemas) if set(each.key) == names)
    return [(column.name, column.sql_type) for column in schema.columns if column.name in names]


def _remedy(option: str) -> str:
    return f"""write {option} '{{"id":1}}' or {option} id=1,region=eu (JSON when a value holds a comma)"""
