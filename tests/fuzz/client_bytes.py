"""What clients of a view send: paths, queries, cursors and tokens."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import suppress
from functools import lru_cache
from typing import Any
from urllib.parse import quote

from cdc.base.web.problem import Problem
from cdc.contract.pgtypes import sql_type
from cdc.views.query import keys, parameters
from cdc.views.table.cursors import Token, cursor, order_after, parse_token
from cdc.views.table.errors import WrongCursor
from cdc.views.table.facts import KeyColumn, TableFacts
from tests.fuzz.pieces import LAYOUTS, SEEDS, joined, layout, split

_KNOWN = ("prefix", "start", "stop", "limit", "after", "index.", "null.", "key", *parameters.WAITING)


@lru_cache(maxsize=LAYOUTS)
def _table(number: int) -> TableFacts:
    columns = tuple(KeyColumn(each.name, sql_type(each)) for each in layout(number))
    names = tuple(each.name for each in columns)
    return TableFacts(
        number=1, name="public.t", topic="t", key=columns[:2], columns=columns, indexes=(names[:1], names[1:3])
    )


def questions(data: bytes) -> None:
    """A request's path, query and headers: read, or refused as a ``Problem``."""
    choice, (query, *rest) = split(data)
    table = _table(choice % LAYOUTS)
    tail = rest[0] if rest else query
    _asked(keys.from_path, table, tail)
    with suppress(Problem):
        asked = parameters.parse_query(query, _KNOWN)
        _asked(parameters.range_of, asked, table)
        _asked(parameters.wait_of, asked, 30.0)
        _asked(keys.from_query, table, asked.get("key", ""))
        for text in asked.values():
            with suppress(WrongCursor):
                order_after(text, "s", table, ())
            with suppress(WrongCursor):
                assert parse_token(text).text().isprintable() or not text.isprintable()
    with suppress(UnicodeDecodeError):
        _asked(keys.from_query, table, tail.decode())


def _asked(read: Callable[..., Any], *arguments: Any) -> Any:
    with suppress(Problem):
        return read(*arguments)


def question_seeds() -> Iterator[bytes]:
    for number in range(SEEDS):
        table = _table(number % LAYOUTS)
        first = table.key[0].name
        after = cursor("s", table, (), b"\x40a\0")
        for query in (
            f"prefix=eu/&limit=10&after={after}",
            "start=1&stop=2.5&min_lsn=1:0/1925728&timeout=1.5&source=shop",
            f"index.{quote(first)}=t&null.{quote(first)}=",
            f"key={quote('{' + ','.join(f'{chr(34)}{each.name}{chr(34)}:1' for each in table.key) + '}')}",
            f"after={Token('s', 7, 2).text()}",
        ):
            yield joined(number % LAYOUTS, [query.encode(), b"eu/7"])
