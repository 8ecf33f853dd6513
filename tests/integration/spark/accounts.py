"""A table in each form of values, what somebody else writes into its topic, and what must be found there."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Final

from cdc.contract.change import Column
from cdc.contract.formats.debezium.envelope import EnvelopeMaker
from cdc.contract.formats.debezium.rows import DebeziumWriter
from cdc.contract.formats.format import RowWriter
from cdc.contract.formats.protobuf import wire
from cdc.contract.formats.registered import HEAD_BYTES, head, registered
from cdc.contract.naming import schemas_topic
from cdc.contract.record import TableSchema
from cdc.contract.schema import parse_schema
from cdc.spark.report.document import from_json
from cdc.spark.report.model import Report
from tests.support.deployment import Deployment
from tests.support.forms import FORMS
from tests.support.reconciling import run_command
from tests.support.topic_audit import read_records
from tests.support.topic_damage import Damage

ROWS: Final = 60
COLUMNS: Final = (
    Column("id", 23, -1, "pg_catalog.int4", True),
    Column("balance", 1700, (12 << 16 | 2) + 4, "pg_catalog.numeric", False),
    Column("note", 25, -1, "pg_catalog.text", False),
    Column("rate", 701, -1, "pg_catalog.float8", False),
    Column("raw", 17, -1, "pg_catalog.bytea", False),
    Column("day", 1082, -1, "pg_catalog.date", False),
    Column("at", 1184, -1, "pg_catalog.timestamptz", False),
    Column("more", 3802, -1, "pg_catalog.jsonb", False),
)
BEGIN: Final = (
    "CREATE TABLE {0} (id int PRIMARY KEY, balance numeric(12,2), note text, rate float8, raw bytea, day date,"
    " at timestamptz)",
    "INSERT INTO {0} SELECT n, n + 0.5, 'é\"' || n, CASE n % 2 WHEN 0 THEN 'NaN' ELSE 0.1 END,"
    " decode(lpad(n::text, 4, '0'), 'hex'), '2026-11-27', '2026-11-27 12:00:00.5Z' FROM generate_series(1, {1}) n",
)
"""Rows that the backfill reads."""
GO_ON: Final = (
    "DELETE FROM {0} WHERE id = 30",
    "UPDATE {0} SET id = 131 WHERE id = 31",
    "ALTER TABLE {0} ADD COLUMN more jsonb",
    "UPDATE {0} SET more = CASE id % 3 WHEN 0 THEN NULL WHEN 1 THEN 'null' ELSE '[1]' END::jsonb",
)
"""Changes that give the topic values of two schemas, and of rows that are gone."""
_IN_JSON: Final = (
    b'{"id":6,"balance":"6.50","note":"\xc3\xa9\\"6","rate":"NaN","raw":"\\\\x0006","day":"2026-11-27",'
    b'"at":"2026-11-27 12:00:00.5+00","more":null}'
)
_ENVELOPE: Final = re.compile(rb";envelope=[^;]*")


@dataclass(frozen=True)
class Told:
    """What a job tells of values that it cannot read."""

    damaged: str
    unknown: str
    no_value: str = "the value is not UTF-8"


_UNKNOWN: Final = "(a value whose schema is in no"
_OF_EVENT: Final = "(a change event that is cut or damaged)", "(a change event whose schema is not"
TOLD: Final[Mapping[str, Told]] = {
    "avro": Told("(Avro that is cut or damaged)", _UNKNOWN),
    "protobuf": Told("(Protobuf that is cut or damaged)", _UNKNOWN),
    "json-schema": Told("(JSON that is cut or damaged)", _UNKNOWN, "expected an object at character 0: '\\x01"),
    "debezium": Told(*_OF_EVENT, _OF_EVENT[0]),
    "debezium in avro": Told(*_OF_EVENT, _OF_EVENT[0]),
}


def table(form: str) -> str:
    """The table whose topic is in a form."""
    return "public.account_" + form.replace(" ", "_").replace("-", "_")


def formats(forms: Sequence[str]) -> dict[str, str]:
    """What ``topics.formats`` has for their tables."""
    return {table(form): FORMS[form].get("format", "json") for form in forms}


class Account:
    """A table at rest, and what somebody else writes into its topic."""

    def __init__(self, deployment: Deployment, form: str) -> None:
        self.form, self.table = form, table(form)
        self._topic = deployment.records(self.table)
        self._newest = {each.key: each for each in self._topic}
        self._damage = Damage(deployment)
        records = read_records(deployment.bootstrap, [schemas_topic(deployment.name)])
        definitions = [parse_schema(each.value) for each in records if each.value is not None]
        *_, definition = [each for each in definitions if each.topic == deployment.topic(self.table)]
        self._row, self._surround = _writer(definition), _envelope(definition)

    @property
    def _has_events(self) -> bool:
        return self.form.startswith("debezium")

    def expected(self) -> dict[int, str]:
        """What the jobs must tell, by the rows' ids."""
        told = TOLD[self.form]
        found = {7: "nose", 8: "-8.50", 9: told.damaged, 10: told.unknown, 11: told.damaged, 12: ""}
        found |= {14: told.damaged, 15: told.no_value, 30: "stale version", 900: "900.50"}
        if self._has_events:
            found |= {16: "(a change event in modes that", 17: ""}
        if self.form == "debezium":
            found[18] = told.damaged
        return found

    def damage(self) -> None:
        """Write what no bridge writes, and the rows 5 and 6 anew, in the same form and in JSON: these do not differ."""
        other_head = wire.head(999_999) if self.form == "protobuf" else head(999_999)
        self._write(5, self._value(5))
        self._write(6, _IN_JSON, lambda header: _ENVELOPE.sub(b"", header))
        self._write(7, self._value(7, note=b"nose"))
        self._write(8, self._value(8, balance=b"-8.50"))
        self._write(9, self._bridges(9)[:-2])
        self._write(10, other_head + self._bridges(10)[len(other_head) :])
        self._write(11, self._bridges(11) + b"\0")
        self._write(12, None)
        self._write(14, self._bridges(14)[:HEAD_BYTES])
        self._write(15, b"\1" + self._bridges(15)[1:])
        former = next(each for each in self._topic if each.key == b'{"id":30}')
        self._damage.write(self.table, former.key or b"", former.value, header=former.header)
        self._write(900, self._value(900))
        if self._has_events:
            self._write(16, self._bridges(16), lambda header: header.replace(b".microseconds", b".fortnights"))
            *_, deletes = (each for each in self._topic if each.key == b'{"id":30}' and each.value is not None)
            self._damage.write(self.table, b'{"id":17}', deletes.value, header=deletes.header)
        if self.form == "debezium":
            self._write(18, self._bridges(18).replace(b'"balance":"', b'"balance":"!'))
        self._damage.done()

    def _bridges(self, number: int) -> bytes:
        """The value that the bridge wrote."""
        return self._newest[b'{"id":%d}' % number].value or b""

    def _value(self, number: int, *, note: bytes | None = None, balance: bytes | None = None) -> bytes:
        """A row as the bridge would write it."""
        row = self._row.encode(
            (
                b"%d" % number,
                b"%d.50" % number if balance is None else balance,
                b'\xc3\xa9"%d' % number if note is None else note,
                b"0.1" if number % 2 else b"NaN",
                b"\\x%04d" % number,
                b"2026-11-27",
                b"2026-11-27 12:00:00.5+00",
                (None, b"null", b"[1]")[number % 3],
            )
        )
        return self._surround(row, self._header(number))

    def _header(self, number: int) -> bytes:
        key = b'{"id":%d}' % number
        return self._newest[key if key in self._newest else b'{"id":3}'].header

    def _write(self, number: int, value: bytes | None, change: Callable[[bytes], bytes] = bytes) -> None:
        """Write a record with a header of the bridge, or what ``change`` makes of it."""
        header = self._header(number)
        if change is not bytes and self._has_events:
            assert change(header) != header
        self._damage.write(self.table, b'{"id":%d}' % number, value, header=change(header))


def _writer(definition: TableSchema) -> RowWriter:
    """What writes rows as the bridge does now."""
    if not definition.written:
        assert definition.envelope is not None
        return DebeziumWriter(COLUMNS, definition.envelope)
    number, schema, form = definition.written[-1]
    return registered(form, definition.envelope).writer(COLUMNS, schema, number)


def _envelope(definition: TableSchema) -> Callable[[bytes, bytes], bytes]:
    """What surrounds a row, given the header of its record."""
    modes = definition.envelope
    if modes is None:
        return lambda row, _: row
    maker = EnvelopeMaker("shop", "shop", "0.1.0", lambda: 1)
    maker.learn(definition, COLUMNS, modes)

    def surround(row: bytes, header: bytes) -> bytes:
        ((value, _),) = maker.values(b"", row, _ENVELOPE.sub(b"", header), None)
        return value or b""

    return surround


@dataclass(frozen=True)
class Healed:
    """What ``cdc reconcile --repair`` found, what it found when it looked again, and what it printed."""

    found: Report
    again: Report
    said: str


@dataclass
class Accounts:
    """A deployment whose topics were damaged after all was published."""

    deployment: Deployment
    accounts: Mapping[str, Account]
    folder: Path

    @property
    def tables(self) -> list[str]:
        return [each.table for each in self.accounts.values()]

    @property
    def lake(self) -> Path:
        """What a mirror keeps of the topics."""
        return self.folder / "lake"

    @cached_property
    def healed(self) -> Healed:
        """The topics hold the rows of the source again."""
        folder = self.folder / "report"
        _, said = run_command(self.deployment, folder, *self.tables, "--repair", "--yes", "--fence-timeout", "20")
        documents = (folder / "report.json", folder / "after-repair" / "report.json")
        found, again = (from_json(each.read_text(encoding="utf-8")) for each in documents)
        return Healed(found, again, said)
