"""Names and literals as SQL spells them, and the tables that they mean."""

from __future__ import annotations

import re
from functools import cache
from typing import TYPE_CHECKING, Final

from psycopg import errors

from tests.world.postgres_errors import failure

if TYPE_CHECKING:
    from tests.world.postgres_sessions import ServerSession
    from tests.world.postgres_tables import WorldTable

QUOTED: Final = r'"(?:[^"]|"")+"\."(?:[^"]|"")+"'
"""A table's name in quotes, with its schema."""
_PART: Final = re.compile(r'"((?:[^"]|"")+)"')
_ELEMENT: Final = re.compile(r'"((?:[^"\\]|\\.)*)"|([^,{}"]+)')


def literal(text: str) -> str:
    """Returns what a literal means."""
    return text[1:-1].replace("''", "'")


@cache
def parts(quoted: str) -> tuple[str, str]:
    """Returns schema and name of a table that is written in quotes."""
    namespace, name = (each.replace('""', '"') for each in _PART.findall(quoted))
    return namespace, name


def elements(array: str) -> list[str]:
    """Returns the texts in an array, which has none that are null."""
    return [re.sub(r"\\(.)", r"\1", one) if one or not other else other for one, other in _ELEMENT.findall(array)]


def quoted_name(session: ServerSession, quoted: str) -> WorldTable:
    """Returns the table of this name.

    Raises:
        psycopg.errors.UndefinedTable: there is none.
    """
    info = session.server.find(*parts(quoted))
    if info is None:
        namespace, name = parts(quoted)
        raise failure(errors.UndefinedTable, f'relation "{namespace}.{name}" does not exist')
    return info
