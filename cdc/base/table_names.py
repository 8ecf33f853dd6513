"""``schema.table``: how tables are named in configuration, commands, URLs and messages. No I/O.

The first dot divides, so a table may have dots in its name. A schema that has one is put in double quotes, as in SQL:
``"my.schema".orders``. Or ``"a.b"."c"`` and ``"a"."b.c"`` would be one name, and what is known of one table by its name
(its place in the publication, its backfill, its key) would be taken for the other's.
"""

from __future__ import annotations

import re
from typing import Final

_QUOTED: Final = re.compile(r'"((?:[^"]|"")+)"')

_QUOTE: Final = '"'


def qualified(namespace: str, name: str) -> str:
    """The one name of a table; no other table has it."""
    if "." in namespace or namespace.startswith(_QUOTE):
        namespace = _quote(namespace)
    return f"{namespace}.{_quote(name) if name.startswith(_QUOTE) else name}"


def parts(text: str) -> tuple[str, str]:
    """Schema and table of a name, or of a pattern; no table where there is no dot. Either may be in quotes.

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
    """A name as a list or a key in YAML takes it, as far as quotes are concerned."""
    return name if _QUOTE not in name else "'" + name.replace("'", "''") + "'"


def _quote(name: str) -> str:
    return _QUOTE + name.replace(_QUOTE, _QUOTE * 2) + _QUOTE


def _unquoted(found: re.Match[str]) -> str:
    return found[1].replace(_QUOTE * 2, _QUOTE)
