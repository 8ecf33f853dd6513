"""Rows: one by its key, many by their keys, pages of them, and their number."""

from __future__ import annotations

import time
from functools import partial
from typing import Any

import orjson

from cdc.base.web.problem import Headers, Problem
from cdc.contract.formats.written_key import compared_as_text
from cdc.views.query.answer import Answer, as_json, found_item, item, listed, unreadable
from cdc.views.query.desk import AskedTable, Desk, KeyOf, ViewRequest
from cdc.views.query.evidence import evidence_headers, in_header, is_known, row_headers
from cdc.views.query.keys import KeyValues, from_json, loads
from cdc.views.query.parameters import MAX_PAGE, range_of
from cdc.views.query.past import Then
from cdc.views.table import exact_json
from cdc.views.table.answers import Evidence, Found, Page, Range
from cdc.views.table.facts import TableFacts


async def one_row(desk: Desk, asked: ViewRequest, name: str, key_of: KeyOf) -> Answer:
    """Returns the row of a key as it is stored.

    Args:
        desk: the desk of the process.
        asked: the request.
        name: the table's name.
        key_of: reads the key that the request spells.

    Raises:
        Problem: as for tables and keys; ``no-row``, ``unreadable``.
    """
    if desk.is_local:
        return row_here(desk, asked, name, key_of)
    looked_up = await desk.look_up(name, asked.access, key_of)
    caveat = ""
    if looked_up.found.row is None and (caveat := _caveat(looked_up.known)):
        part = (await desk.table(name, asked.access)).part
        caveat += _some_key(await desk.slow(partial(part.view.scan, name, Range(limit=1))))
    return shown(*looked_up, asked.header(b"if-none-match"), caveat)


def row_here(desk: Desk, asked: ViewRequest, name: str, key_of: KeyOf) -> Answer:
    """Returns the row of a key in a local store, as ``one_row`` does, without waiting."""
    looked_up = desk.look_up_here(name, asked.access, key_of)
    caveat = ""
    if looked_up.found.row is None and (caveat := _caveat(looked_up.known)):
        caveat += _some_key(desk.table_here(name, asked.access).part.view.scan(name, Range(limit=1)))
    return shown(*looked_up, asked.header(b"if-none-match"), caveat)


def _some_key(page: Page) -> str:
    return "".join(f" A key of this table is {each.key.decode()}." for each in page.rows)


def shown(table: TableFacts, key: KeyValues, found: Found, known: bytes, caveat: str = "") -> Answer:
    """Answers with a row that was looked up.

    Args:
        table: the row's table.
        key: the key that was asked for.
        found: what the view has.
        known: ``If-None-Match`` of the request.
        caveat: why the row may exist all the same.

    Raises:
        Problem: ``no-row``, ``unreadable``.
    """
    row, evidence = found.row, found.evidence
    now = time.time()
    if row is None:
        raise _no_row(table, key, found, evidence_headers(evidence, now), caveat)
    tag, written = row_headers(row, evidence, now)
    if known and is_known(known, tag):
        return Answer(304, [], b"", written=written)
    return Answer(200, [], row.row, written=written)


def past_row(table: TableFacts, key: KeyValues, then: Then) -> Answer:
    """Answers with a row as it was.

    Raises:
        Problem: ``no-row``.
    """
    headers = [(b"cdc-as-of", then.moment.encode()), (b"cdc-reason", in_header(then.because))]
    if then.row is None:
        told = f"{table.name} had no row {_spelled(key)} at {then.moment}: {then.because}. {_caveat(table)}"
        raise Problem("no-row", told.rstrip(), headers)
    return Answer(200, [*headers, (b"cache-control", b"no-store")], then.row)


async def page(desk: Desk, asked: ViewRequest, table: AskedTable) -> Answer:
    """Returns a page of rows in the order of their keys, after the previous page.

    Raises:
        Problem: ``bad-parameter``, ``foreign-cursor``, and as for keys.
    """
    wanted = range_of(asked.query, table.known)
    found = await desk.slow(partial(table.part.view.scan, table.known.name, wanted))
    after = orjson.dumps(found.after)
    body = b'{"rows":%b,"after":%b}\n' % (listed(map(item, found.rows)), after)
    return Answer(200, _of_many(found.evidence), body)


async def batch(desk: Desk, table: AskedTable, body: bytes) -> Answer:
    """Returns the rows of many keys, in the order of the keys.

    Raises:
        Problem: ``bad-body``, and as for keys.
    """
    given = _keys_of(table.known, body)
    keys = [from_json(table.known, each) for each in given]
    found = await desk.slow(partial(table.part.view.get_many, table.known.name, keys))
    body = b'{"rows":%b}\n' % listed(found_item(table.known, each) for each in found.found)
    return Answer(200, _of_many(found.evidence), body)


async def count(desk: Desk, table: AskedTable) -> Answer:
    """Counts the rows of a table."""
    number, evidence = await desk.quick(partial(table.part.view.count, table.known.name))
    return as_json({"count": number}, evidence_headers(evidence, time.time()))


def _keys_of(table: TableFacts, body: bytes) -> list[Any]:
    try:
        given = loads(table, body)
    except ValueError as error:
        raise Problem("bad-body", f'The body is not JSON ({error}). Send {{"keys":[…]}}.') from None
    if not isinstance(given, dict) or given.keys() != {"keys"} or not isinstance(given["keys"], list):
        raise Problem("bad-body", 'The body must be an object with a list of keys: {"keys":[{"id":1},{"id":2}]}.')
    if len(given["keys"]) > MAX_PAGE:
        raise Problem("bad-body", f"A batch has at most {MAX_PAGE} keys, but this one has {len(given['keys'])}.")
    return given["keys"]


def _of_many(evidence: Evidence) -> Headers:
    return [*evidence_headers(evidence, time.time()), (b"cache-control", b"no-store")]


def _caveat(table: TableFacts) -> str:
    return compared_as_text([(column.name, column.sql_type) for column in table.key])


def _no_row(table: TableFacts, key: KeyValues, found: Found, headers: Headers, caveat: str) -> Problem:
    if (record := found.unreadable) is not None:
        return Problem(
            "unreadable",
            f"The newest record of {_spelled(key)} in {table.topic} is not a row of {table.name}: {record.reason}. Its "
            f"place is partition {record.partition}, offset {record.offset}. The program that writes the topic must "
            "write it again.",
            headers,
            **unreadable(table, found),
        )
    return Problem("no-row", f"{table.name} has no row {_spelled(key)}. {caveat}".rstrip(), headers)


def _spelled(key: KeyValues) -> str:
    text = exact_json.dumps(list(key)).decode()
    return text if len(text) <= 200 else text[:200] + "…"
