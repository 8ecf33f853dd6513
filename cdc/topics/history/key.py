"""A key as a person writes it → the bytes of the record key, by any definition that the table ever had. Pure."""

from __future__ import annotations

from collections.abc import Sequence

from cdc.base.errors import ConfigError
from cdc.contract.formats.written_key import key_bytes, written_values
from cdc.contract.json_members import member_texts
from cdc.contract.record import TableSchema


def record_key(text: str, schemas: Sequence[TableSchema], option: str = "--key") -> bytes:
    """Returns the record key that a person means.

    Args:
        text: ``{"id":1}``, or ``id=1,region=eu``, or only the value if the newest key has one column. Values may have
            any spelling that ``cdc.contract.formats.canonical`` reads.
        schemas: the table's definitions, the newest last. The newest one whose key has the named columns counts.
        option: the command line option that the text comes from, for the error.

    Raises:
        ConfigError: the text cannot be read, no key has these columns, or a value does not fit its type.
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
            f"{option} names ({', '.join(values)}), but the key of {schemas[-1].qualified_name} is "
            f"({', '.join(wanted)})",
            remedy="write " + ",".join(f"{name}=…" for name in wanted),
        )
    types = {column.name: column.sql_type for column in schema.columns}
    try:
        return key_bytes(values, [(name, types[name]) for name in schema.key])
    except ValueError as error:
        raise ConfigError(f"{option} {text}: {error}", remedy=_remedy(option)) from error


def key_columns(schemas: Sequence[TableSchema], key: bytes) -> list[tuple[str, str]]:
    """Returns name and type of each column of a key that ``record_key`` made."""
    names = member_texts(key.decode()).keys()
    schema = next(each for each in reversed(schemas) if set(each.key) == names)
    return [(column.name, column.sql_type) for column in schema.columns if column.name in names]


def _remedy(option: str) -> str:
    return f"""write {option} '{{"id":1}}' or {option} id=1,region=eu (JSON when a value holds a comma)"""
