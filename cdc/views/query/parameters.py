"""The query of a URL → checked values. Pure.

A page refuses parameters that it does not know: a misspelt ``?prefx=`` would otherwise answer with every row.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping
from typing import Final, NamedTuple, TypeAlias
from urllib.parse import parse_qsl

from cdc.base.lsn import LSN
from cdc.base.web.problem import Problem
from cdc.views.query.keys import from_segments, leading, values_of
from cdc.views.table.answers import Range
from cdc.views.table.facts import TableFacts

MAX_PAGE: Final = 1000
"""Rows of a page, and keys of a batch: about a megabyte of ordinary rows, which a client can take in one piece."""
DEFAULT_PAGE: Final = 100
INDEX: Final = "index."
NULL: Final = "null."
"""``null.city=`` asks for rows whose indexed column is NULL. No value of ``index.city`` could mean that: a text may be
any text."""
WAITING: Final = ("min_lsn", "timeout", "source")
"""The parameters of every page that reads rows."""

_TIMELINE: Final = re.compile(r"[1-9][0-9]{0,9}")
_SECONDS: Final = re.compile(r"[0-9]+(?:\.[0-9]*)?(?:[eE][+-]?[0-9]{1,3})?|\.[0-9]+")

Query: TypeAlias = Mapping[str, str]


class WaitFor(NamedTuple):
    """The commit that an answer must show.

    Attributes:
        lsn: the answer must show everything before this LSN.
        timeout_s: how long to wait for it.
        source: the ``Cdc-Source`` header that came with the LSN; empty when the caller does not say.
        timeline: the timeline of the server that committed it; 0 when the caller does not say.
    """

    lsn: LSN
    timeout_s: float
    source: str
    timeline: int = 0


def parse_query(raw: bytes, known: Collection[str]) -> Query:
    """Parses a query into parameters by name.

    Args:
        raw: the text after the ``?``.
        known: names that the page takes; a name that ends with a dot stands for all names with this beginning.

    Raises:
        Problem: ``bad-parameter``.
    """
    if not raw:
        return {}
    try:
        pairs = parse_qsl(raw.decode("ascii"), keep_blank_values=True, errors="strict", max_num_fields=50)
    except ValueError:
        raise Problem("bad-parameter", "The query is not UTF-8 when percent-decoded, or has over 50 fields.") from None
    found: dict[str, str] = {}
    for name, value in pairs:
        if name not in known and f"{name.partition('.')[0]}." not in known:
            takes = ", ".join(f"{each}COLUMN" if each.endswith(".") else each for each in sorted(known))
            raise Problem("bad-parameter", f"This page does not take {name!r}; it takes {takes or 'no parameter'}.")
        if name in found:
            raise Problem("bad-parameter", f"The parameter {name} is given twice.")
        found[name] = value
    return found


def wait_of(query: Query, longest_s: float) -> WaitFor | None:
    """Reads ``min_lsn``, ``timeout`` and ``source``.

    Args:
        query: the query of the request.
        longest_s: the time limit of a request; also the default for ``timeout``.

    Raises:
        Problem: ``bad-parameter``.
    """
    text = query.get("min_lsn")
    if text is None:
        for name in ("timeout", "source"):
            if name in query:
                raise Problem("bad-parameter", f"{name} only works together with min_lsn, which is missing.")
        return None
    timeline, is_told, position = text.rpartition(":")
    try:
        if is_told and not _TIMELINE.fullmatch(timeline):
            raise ValueError(timeline)
        lsn = LSN.parse(position)
    except ValueError:
        raise Problem(
            "bad-parameter",
            f"min_lsn is not an LSN: {_shown(text)}. Write what pg_current_wal_lsn() returned, 0/1925728, or put the "
            "timeline before it, 1:0/1925728.",
        ) from None
    return WaitFor(lsn, _seconds(query.get("timeout"), longest_s), query.get("source", ""), int(timeline or 0))


def range_of(query: Query, table: TableFacts) -> Range:
    """Reads ``prefix``, ``start``, ``stop``, ``index.*``, ``null.*``, ``limit`` and ``after``.

    Raises:
        Problem: ``bad-parameter``, ``malformed-key`` or ``wrong-key-columns``.
    """
    limit = _limit(query.get("limit"))
    after = query.get("after")
    index = _indexed(query)
    bounds = [name for name in ("prefix", "start", "stop") if name in query]
    if index:
        if bounds:
            raise Problem("bad-parameter", f"{bounds[0]} and an index do not go together; ask by one of them.")
        if tuple(index) not in {each[: len(index)] for each in table.indexes}:
            there = "; ".join(", ".join(each) for each in table.indexes) or "none"
            raise Problem(
                "bad-parameter",
                f"{table.name} has no index that begins with ({', '.join(index)}). Its indexes: {there}. "
                "view.index in the configuration makes one.",
            )
        values = values_of(table, list(index), list(index.values()))
        return Range(by=dict(zip(index, values, strict=True)), limit=limit, after=after)
    prefix, text = leading(table, query["prefix"]) if "prefix" in query else ((), None)
    start, stop = (from_segments(table, query[name]) if name in query else None for name in ("start", "stop"))
    if "prefix" in query and len(bounds) > 1:
        raise Problem("bad-parameter", "prefix does not go together with start and stop; ask by one of them.")
    return Range(prefix, text, start, stop, {}, limit, after)


def _indexed(query: Query) -> Mapping[str, str | None]:
    """The values of indexed columns in the query; None for NULL."""
    found: dict[str, str | None] = {}
    for name, value in query.items():
        kind, column = name[: len(INDEX)], name[len(INDEX) :]
        if name.startswith(NULL):
            kind, column = NULL, name[len(NULL) :]
            if value:
                raise Problem("bad-parameter", f"{name} takes no value: write {name}= for rows where it is NULL.")
        if kind not in (INDEX, NULL):
            continue
        if column in found:
            raise Problem("bad-parameter", f"{INDEX}{column} and {NULL}{column} exclude each other; use one of them.")
        found[column] = None if kind == NULL else value
    return found


def _limit(text: str | None) -> int:
    if text is None:
        return DEFAULT_PAGE
    if not (text.isascii() and text.isdigit() and len(text) < 10 and 1 <= int(text) <= MAX_PAGE):
        raise Problem("bad-parameter", f"invalid limit {_shown(text)}: use a number from 1 to {MAX_PAGE}.")
    return int(text)


def _seconds(text: str | None, longest_s: float) -> float:
    if text is None:
        return longest_s
    value = float(text) if _SECONDS.fullmatch(text) else -1.0  # float() alone takes 1_5, and digits of other scripts
    if not 0 <= value <= longest_s:
        raise Problem(
            "bad-parameter",
            f"invalid timeout {_shown(text)}: use 0 to {longest_s:g} seconds (serve.request_timeout_s).",
        )
    return value


def _shown(text: str) -> str:
    return repr(text if len(text) <= 80 else text[:80] + "…")
