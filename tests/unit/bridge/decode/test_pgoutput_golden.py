"""Bytes captured from real servers, decoded to what the statements that made them mean."""

from __future__ import annotations

import re
from itertools import groupby
from typing import Any

import pytest

from cdc.bridge.decode.pgoutput import Message, PgOutputDecoder
from cdc.contract.change import (
    UNCHANGED_TOAST,
    Begin,
    Commit,
    Delete,
    Insert,
    LogicalMessage,
    Origin,
    Relation,
    Row,
    StreamAbort,
    StreamCommit,
    StreamStart,
    StreamStop,
    Truncate,
    TypeDefinition,
    Update,
)
from cdc.contract.pgtypes import sql_type
from tests.golden.capture import TRANSACTIONS
from tests.golden.files import MAJORS, captured, messages

# format_type's long words → the short names that sql_type writes.
SHORT = {
    "boolean": "bool",
    "smallint": "int2",
    "integer": "int4",
    "bigint": "int8",
    "real": "float4",
    "double precision": "float8",
    "character varying": "varchar",
    "character": "char",
    "bit varying": "varbit",
    "mood": '"public"."mood"',
    "pair": '"public"."pair"',
}

JANUARY_2020_US = 1_577_836_800_000_000


def decode_all(major: int, protocol: int) -> list[Message]:
    decoder = PgOutputDecoder()
    return [decoder.decode(message) for message in messages(major, protocol)]


def row_text(row: Row) -> str:
    return "|".join(
        "NULL" if cell is None else "UNCHANGED" if cell is UNCHANGED_TOAST else cell.decode() for cell in row
    )


def describe(message: Message) -> str | None:
    """One line as ``capture.py`` expects it; None for boundaries and schema."""
    match message:
        case Insert(Relation(name="kinds"), _):
            return "Insert kinds"
        case Insert(relation, new):
            return f"Insert {relation.name} {row_text(new)}"
        case Update(relation, None, False, new):
            return f"Update {relation.name} new {row_text(new)}"
        case Update(relation, old, old_is_full, new):
            assert old is not None
            return f"Update {relation.name} {'old' if old_is_full else 'key'} {row_text(old)} new {row_text(new)}"
        case Delete(relation, old, old_is_full):
            return f"Delete {relation.name} {'old' if old_is_full else 'key'} {row_text(old)}"
        case Truncate(relations, cascade, restart_identity):
            return f"Truncate {','.join(relation.name for relation in relations)} {cascade} {restart_identity}"
        case LogicalMessage(transactional, _, prefix, content):
            return f"Message {transactional} {prefix} {content.decode()}"
        case Origin(lsn, name):
            return f"Origin {lsn} {name}"
        case _:
            return None


def fold(decoded: list[Message], table: str) -> dict[str, list[str | None]]:
    """Rows of one table by first column, unchanged TOAST taken from the row before; no streamed blocks."""
    rows: dict[Any, Row] = {}
    for message in decoded:
        match message:
            case Insert(relation, new) if relation.name == table:
                rows[new[0]] = new
            case Update(relation, old, _, new) if relation.name == table:
                before = rows.pop((old or new)[0])
                rows[new[0]] = tuple(b if n is UNCHANGED_TOAST else n for n, b in zip(new, before, strict=False))
            case Delete(relation, old, _) if relation.name == table:
                del rows[old[0]]
            case _:
                pass
    return {row[0].decode(): [None if cell is None else cell.decode() for cell in row] for row in rows.values()}  # type: ignore[union-attr]  # None would fail the test


@pytest.mark.parametrize("major", MAJORS)
def test_every_transaction_says_what_its_statements_did(major: int) -> None:
    expected = [line for _, lines in TRANSACTIONS for line in lines]
    assert [line for message in decode_all(major, 1) if (line := describe(message))] == expected


@pytest.mark.parametrize("major", MAJORS)
@pytest.mark.parametrize("table", ["plain", "big", "kinds"])
def test_folded_rows_are_what_select_returns(major: int, table: str) -> None:
    expected = captured(major)["protocol_1"]["tables"][table]
    # A column that was added later is missing in rows written before: SELECT shows its default.
    folded = fold(decode_all(major, 1), table)
    assert {key: row + expected[key][len(row) :] for key, row in folded.items()} == expected


@pytest.mark.parametrize("major", MAJORS)
def test_boundaries_agree_with_one_another(major: int) -> None:
    begin: Begin | None = None
    end = 0
    for message in decode_all(major, 1):
        match message:
            case Begin():
                assert begin is None
                begin = message
            case Commit(commit_lsn, end_lsn, commit_ts):
                assert begin is not None
                assert (commit_lsn, commit_ts) == (begin.final_lsn, begin.commit_ts)
                assert end <= commit_lsn < end_lsn
                assert commit_ts == JANUARY_2020_US or commit_ts > JANUARY_2020_US * 1.1, "µs since 1970"
                begin, end = None, end_lsn
            case _:
                pass
    assert begin is None


@pytest.mark.parametrize("major", MAJORS)
def test_column_types_are_those_of_the_catalog(major: int) -> None:
    relations = {message.name: message for message in decode_all(major, 1) if isinstance(message, Relation)}
    for table, types in captured(major)["protocol_1"]["types"].items():
        relation = relations["Ta%ble" if "Ta%ble" in table else table]
        assert {column.name: sql_type(column) for column in relation.columns} == {
            name: spelled(text) for name, text in types.items()
        }


def spelled(format_type: str) -> str:
    """format_type's output in sql_type's words."""
    text = format_type.replace(" without time zone", "")
    text = re.sub(r"^(time|timestamp)(\(\d\))? with time zone", r"\1tz\2", text)
    word, rest = re.fullmatch(r"([^(\[]+)(.*)", text).groups()  # type: ignore[union-attr]  # None would fail the test
    return SHORT.get(word, word) + rest


@pytest.mark.parametrize("major", MAJORS)
def test_domains_come_as_their_base_type(major: int) -> None:
    (kinds,) = (m for m in decode_all(major, 1) if isinstance(m, Relation) and m.name == "kinds")
    names = {column.name: column.type_name for column in kinds.columns}
    assert names["sp"] == "pg_catalog.numeric"
    assert names["tg"] == "pg_catalog._text"
    assert names["mds"] == "public._mood"
    assert "gen" not in names
    assert "gone" not in names


@pytest.mark.parametrize("major", MAJORS)
def test_quoted_names_are_kept_apart(major: int) -> None:
    decoded = decode_all(major, 1)
    (relation,) = (m for m in decoded if isinstance(m, Relation) and m.name == "Ta%ble")
    assert relation.namespace == 'Odd ". Schema'
    assert [column.name for column in relation.columns] == ["I.d", 'co"lumn', "%d"]
    assert relation.columns[2].type_name == '"Odd "". Schema"."dotted.type"'
    assert TypeDefinition(relation.columns[2].type_oid, 'Odd ". Schema', "dotted.type") in decoded


@pytest.mark.parametrize("major", MAJORS)
def test_a_new_relation_message_makes_a_new_relation(major: int) -> None:
    before, *_, after = (m for m in decode_all(major, 1) if isinstance(m, Relation) and m.name == "plain")
    assert [column.name for column in before.columns] == ["id", "note"]
    assert [column.name for column in after.columns] == ["id", "note", "added"]
    assert before.relation_id == after.relation_id
    assert before != after
    assert [column.in_identity for column in after.columns] == [True, False, False]


@pytest.mark.parametrize("major", MAJORS)
def test_streamed_transaction(major: int) -> None:
    decoder = PgOutputDecoder()
    rows: dict[int, list[tuple[int, Message]]] = {}
    committed: list[Message] = []
    order: list[str] = []
    for data in messages(major, 2):
        message = decoder.decode(data)
        order.append(type(message).__name__)
        match message:
            case StreamStart(xid, first):
                assert first == (xid not in rows)
                rows.setdefault(top := xid, [])
            case StreamStop():
                assert decoder.stream_xid is None
            case StreamAbort(xid, subxid):
                rows[xid] = [] if xid == subxid else [entry for entry in rows[xid] if entry[0] != subxid]
            case StreamCommit(xid, commit_lsn, end_lsn, _):
                assert commit_lsn < end_lsn
                committed += [entry for _, entry in rows.pop(xid)]
            case _ if decoder.stream_xid is not None:
                rows[top].append((decoder.stream_xid, message))
            case _:
                committed.append(message)
    assert [name for name, _ in groupby(order)][-4:] == ["Begin", "Relation", "Insert", "Commit"]
    inserted = [m.new for m in committed if isinstance(m, Insert)]
    assert [row[0] for row in inserted] == [str(n).encode() for n in (*range(1001, 1451), 7)]
    assert [row[1:] for row in inserted[-1:]] == [(b"afterwards", b"1.5", None)], (
        "its ALTER TABLE holds after its commit"
    )
    updates = [m for m in committed if isinstance(m, Update)]
    assert [m.new[3] for m in updates] == [b"l"] * 150 + [b"m"] * 150
    (mark,) = (m for m in committed if isinstance(m, LogicalMessage))
    assert (mark.prefix, mark.content) == ("streamed", b"inside")
    (truncate,) = (m for m in committed if isinstance(m, Truncate))
    assert [relation.name for relation in truncate.relations] == ["big"]
