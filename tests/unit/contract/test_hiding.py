"""What rules hide of a row, by itself and in all that a table's encoder writes or says."""

from __future__ import annotations

import hashlib
import hmac
from collections.abc import Mapping
from dataclasses import replace

import pytest

from cdc.base.compiled import twin
from cdc.base.errors import EncodeError
from cdc.bridge.encode import TableEncoder
from cdc.contract.change import UNCHANGED_TOAST, Column, Relation, ReplicaIdentity
from cdc.contract.formats.json_format import JSON
from cdc.contract.hiding import ColumnRules, Hiding, Mask
from cdc.contract.schema import parse_schema, schema_value

SALT = b"0123456789abcdef"
COLUMNS = (
    Column("id", 23, -1, "pg_catalog.int4", True),
    Column("secret", 25, -1, "pg_catalog.text", False),
    Column("born", 1082, -1, "pg_catalog.date", False),
    Column("doc", 3802, -1, "pg_catalog.jsonb", False),
    Column("nick", 25, -1, "pg_catalog.text", False),
)
RELATION = Relation(1, "public", "person", ReplicaIdentity.DEFAULT, COLUMNS)
ROW = (b"7", b"hunter2", b"1970-01-02", b"null", b"Bo")


def rules(
    masks: Mapping[str, Mask], *exclude: str, keep: tuple[str, ...] | None = None, salt: bytes = SALT
) -> ColumnRules:
    return ColumnRules(frozenset(exclude), masks, None if keep is None else frozenset(keep), SALT)


def encoder(relation: Relation, hidden: ColumnRules) -> TableEncoder:
    return TableEncoder(relation, ("id",), "x.public.person", hiding=Hiding(relation, hidden))


def keyed(text: bytes) -> str:
    return hmac.new(SALT, text, hashlib.sha256).hexdigest()


@pytest.mark.skipif(twin("cdc.contract._hiding") is None, reason="nothing was compiled")
def test_the_writer_in_c_refuses_places_that_are_not_there() -> None:
    writer = JSON.writer(COLUMNS[:2]).compiled
    shown = twin("cdc.contract._hiding").ShownRowWriter
    assert shown(writer, 5, [(4, None), (0, None)]).encode(ROW) == b'{"id":Bo,"secret":"7"}'
    for width, cells in (
        (5, [(0, None)]),
        (5, [(0, None), (5, None)]),
        (1, [(0, None), (1, None)]),
        (5, [(0, None), (-1, None)]),
    ):
        with pytest.raises(ValueError, match="as many places"):
            shown(writer, width, cells)


def test_a_hash_is_of_its_column_unless_it_is_joinable() -> None:
    table = encoder(RELATION, rules({"born": "sha256", "nick": "sha256-joinable"}, "secret", "doc"))
    born, nick = keyed(b"public.person.born\0" + ROW[2]), keyed(ROW[4])
    assert table.value(ROW).decode() == f'{{"id":7,"born":"{born}","nick":"{nick}"}}'


def test_a_hashed_key_is_hashed_wherever_it_is_told() -> None:
    table = encoder(RELATION, rules({"id": "sha256"}, "secret", "born", "doc"))
    hashed = keyed(b"public.person.id\0" + ROW[0])
    assert table.key(ROW).decode() == f'{{"id":"{hashed}"}}'
    assert table.value(ROW).decode() == f'{{"id":"{hashed}","nick":"Bo"}}'
    assert table.old((b"7", None, None, None, None), False) == table.key(ROW)
    assert table.has_hashed_key
    assert not encoder(RELATION, rules({"nick": "sha256"})).has_hashed_key
    assert table.schema.columns[0].sql_type == "text"
    with pytest.raises(EncodeError, match=hashed):
        table.value((*ROW[:4], b"\xff"))
    with pytest.raises(EncodeError, match="NULL in a key column"):
        table.key((None, *ROW[1:]))


@pytest.mark.parametrize(
    ("text", "left"),
    [("", "****"), ("1234567", "****"), ("12345678", "****5678"), ("äöüßäöü", "****"), ("äöüßäöüß", "****äöüß")],
)
def test_a_short_text_shows_nothing_of_itself(text: str, left: str) -> None:
    assert Hiding(RELATION, rules({"nick": "last4"})).row((*ROW[:4], text.encode()))[4] == left.encode()


@pytest.mark.parametrize("mask", ["null", "last4", "sha256", "sha256-joinable"])
def test_null_stays_null(mask: Mask) -> None:
    assert Hiding(RELATION, rules({"nick": mask})).row((*ROW[:4], None)) == (*ROW[:4], None)


def test_a_masked_column_is_text_and_a_nulled_one_keeps_its_type() -> None:
    table = encoder(RELATION, rules({"born": "last4", "doc": "null"}, "secret"))
    assert [(each.name, each.sql_type) for each in table.schema.columns] == [
        ("id", "int4"),
        ("born", "text"),
        ("doc", "jsonb"),
        ("nick", "text"),
    ]
    assert table.null_documents(ROW) == ()  # the document null is hidden, not told
    assert encoder(RELATION, rules({}, "secret")).null_documents(ROW) == (2,)  # of the published columns


def test_the_definition_tells_the_rules_and_not_the_salt() -> None:
    hidden = rules({"nick": "sha256", "born": "last4"}, "secret")
    table = encoder(RELATION, hidden)
    others = [
        rules({"nick": "sha256", "born": "last4"}),
        rules({"nick": "sha256"}, "secret"),
        replace(hidden, salt=b"x" * 16),
    ]
    assert len({encoder(RELATION, each).fingerprint for each in (hidden, *others)}) == 4
    assert [each[0] for each in table.schema.rules] == ["born", "nick", "secret"]
    assert SALT not in schema_value(table.schema)
    assert parse_schema(schema_value(table.schema)).rules == table.schema.rules


def test_old_rows_are_hidden_too() -> None:
    relation = replace(RELATION, columns=tuple(replace(each, in_identity=True) for each in COLUMNS))
    table = encoder(relation, rules({"born": "null", "nick": "last4"}, "secret", "doc"))
    assert table.old(ROW, True) == table.value(ROW) == b'{"id":7,"born":null,"nick":"****"}'
    assert table.old(ROW, False) == table.value(ROW)


def test_what_is_hidden_need_not_be_read_again() -> None:
    table = encoder(RELATION, rules({"born": "null", "nick": "sha256"}, "secret"))
    row = (b"7", UNCHANGED_TOAST, UNCHANGED_TOAST, b"1", UNCHANGED_TOAST)
    assert table.missing(row) == (4,)
    whole = table.fill_at(row, {4: ROW[4]})
    assert table.value(whole) == table.value((b"7", b"other", b"2000-01-01", b"1", ROW[4]))


def test_a_refusal_does_not_tell_what_is_hidden() -> None:
    table = encoder(RELATION, rules({"born": "last4"}, "secret"))
    row = (b"7", b"hunter2\xff", b"hunter3\xff", b"null", b"Bo")
    with pytest.raises(EncodeError, match=r"column born \(pg_catalog.date\): not UTF-8") as refused:
        table.value(row)
    assert "hunter" not in refused.value.message
    assert table.null_documents(row) == ()


@pytest.mark.parametrize(
    ("hidden", "said"),
    [
        (rules({"id": "null"}), "has 'id' in its key"),
        (rules({"id": "last4"}), "has 'id' in its key"),
        (rules({"id": "sha256"}), ""),
        (rules({"id": "sha256-joinable"}, "secret", keep=("nick", "doc", "born")), ""),
        (rules({}, "id"), "has 'id' in its key"),
        (rules({"mail": "null"}), "has no published column 'mail'"),
        (rules({}, "Secret"), "has no published column 'Secret'"),
        (rules({"born": "null"}, "secret", keep=("nick",)), "strict policy in source.columns does not name: 'doc'"),
        (rules({"born": "null"}, "secret", keep=("nick", "doc", "age")), "has no published column 'age'"),
        (rules({"born": "null"}, "secret", keep=("nick", "doc")), ""),
        (rules({"born": "null"}, "secret"), ""),
    ],
)
def test_rules_that_do_not_fit_are_told(hidden: ColumnRules, said: str) -> None:
    found = hidden.misfit([each.name for each in COLUMNS], ["id"])
    assert (said in found) if said else found == ""


def test_a_row_of_another_width_is_refused() -> None:
    with pytest.raises(EncodeError, match="6 values for 5 columns"):
        encoder(RELATION, rules({}, "secret")).value((*ROW, b"1"))
