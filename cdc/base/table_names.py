"""Names of tables, ``schema.table``, in configuration, commands, URLs and messages. No I/O.

The first dot separates schema and table, so a table's name may contain dots. A schema whose name contains one is put in
double quotes, as in SQL: ``"my.schema".orders``. Otherwise ``"a.b"."c"`` and ``"a"."b.c"`` would have the same name,
and what is stored by name (place in the publication, backfill, key) would be mixed up.
"""

from __future__ import annotations

import re
from typing import Final

_QUOTED: Final = re.compile(r'"((?:[^"]|"")+)"')

_QUOTE: Final = '"'


def qualified(namespace: str, name: str) -> str:
    """Returns the name of a table, which no other table has."""
    if "." in namespace or namespace.startswith(_QUOTE):
        namespace = _quote(namespace)
    return f"{namespace}.{_quote(name) if name.startswith(_QUOTE) else name}"


def parts(text: str) -> tuple[str, str]:
    """Split a name or a pattern into schema and table, each with or without quotes; without a dot, the table is empty.

    Raises:
        ValueError: a quote is not closed.
    """
    if not text.startswith(_QUOTE):
        namespace, _, rest = text.partition(".")
    else:
        found = _QUOTED.match(text)
        if found is None or text[found.end() : found.end() + 1] not in ("", "."):
            raise ValueError('a schema in quotes ends with a quote and a dot, as in "my.schema".orders')
        namespace, rest = _unquoted(found), text[found.end() + 1 :]
    whole = _QUOTED.fullmatch(rest)
    return namespace, rest if whole is None else _unquoted(whole)


def in_yaml(name: str) -> str:
    """Returns a name as an entry or a key in YAML: quoted if it contains double quotes."""
    return name if _QUOTE not in name else "'" + name.replace("'", "''") + "'"


def _quote(name: str) -> str:
    return _QUOTE + name.replace(_QUOTE, _QUOTE * 2) + _QUOTE


def _unquoted(found: re.Match[str]) -> str:
    return found[1].replace(_QUOTE * 2, _QUOTE)
