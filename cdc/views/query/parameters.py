"""The query of a URL → checked values. Pure.

A parameter that a page does not know is refused: a misspelt ``?prefx=`` would otherwise answer with every row.
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
"""Rows of a page, and keys of a batch: a megabyte of ordinary rows, which a client takes in one piece."""
DEFAULT_PAGE: Final = 100
INDEX: Final = "index."
NULL: Final = "null."
"""``null.city=``: the indexed column is NULL, which no value of ``index.city`` says, for a text may be any text."""
WAITING: Final = ("min_lsn", "timeout", "source")
"""What every page that reads rows takes."""

_TIMELINE: Final = re.compile(r"[1-9][0-9]{0,9}")
_SECONDS: Final = re.compile(r"[0-9]+(?:\.[0-9]*)?(?:[eE][+-]?[0-9]{1,3})?|\.[0-9]+")

Query: TypeAlias = Mapping[str, str]


class WaitFor(NamedTuple):
    """The commit that an answer must show.

    Attributes:
        lsn: everything before it must be shown.
        timeout_s: for how long to wait for it.
        source: what ``Cdc-Source`` said when the caller learnt of the LSN; empty when the caller does not say.
        timeline: of the server that committed it; 0 when the caller does not say.
    """

    lsn: LSN
    timeout_s: float
    source: str
    timeline: int = 0


def parse_query(raw: bytes, known: Collection[str]) -> Query:
    """Parameters by name.

    Args:
        raw: what stands behind the ``?``.
        known: names that the page takes; one that ends with a dot stands for all that begin with it.

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
    """``min_lsn``, ``timeout`` and ``source``.

    Args:
        query: of the request.
        longest_s: the time limit of a request, which is the default, too.

    Raises:
        Problem: ``bad-parameter``.
    """
    text = query.get("min_lsn")
    if text is None:
        for name in ("timeout", "source"):
            if name in query:
                raise Problem("bad-parameter", f"{name} belongs to min_lsn, which is missing.")
        return None
    timeline, is_told, position = text.rpartition(":")
    try:
        if is_told and not _TIMELINE.fullmatch(timeline):
            raise ValueError(timeline)
        lsn = LSN.parse(position)
    except ValueError:
        raise Problem(
            "bad-parameter",
            f"min_lsn is not an LSN: {_shown(text)}. Write what pg_current_wal_lsn() said, 0/1925728, or with the "
            "timeline before it, 1:0/1925728.",
        ) from None
    return WaitFor(lsn, _seconds(query.get("timeout"), longest_s), query.get("source", ""), int(timeline or 0))


def range_of(query: Query, table: TableFacts) -> Range:
    """``prefix``, ``start``, ``stop``, ``index.*``, ``limit`` and ``after``.

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
    """Values of indexed columns as they are asked for, None for NULL."""
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
            raise Problem("bad-parameter", f"{INDEX}{column} and {NULL}{column} do not go together.")
        found[column] = None if kind == NULL else value
    return found


def _limit(text: str | None) -> int:
    if text is None:
        return DEFAULT_PAGE
    if not (text.isascii() and text.isdigit() and len(text) < 10 and 1 <= int(text) <= MAX_PAGE):
        raise Problem("bad-parameter", f"limit is 1 to {MAX_PAGE}, not {_shown(text)}.")
    return int(text)


def _seconds(text: str | None, longest_s: float) -> float:
    if text is None:
        return longest_s
    value = float(text) if _SECONDS.fullmatch(text) else -1.0  # Python's float takes 1_5, and digits of other scripts
    if not 0 <= value <= longest_s:
        raise Problem(
            "bad-parameter",
            f"timeout is 0 to {longest_s:g} seconds (serve.request_timeout_s), not {_shown(text)}.",
        )
    return value


def _shown(text: str) -> str:
    return repr(text if len(text) <= 80 else text[:80] + "…")
