"""Rows that cannot be carried, and their entries in ``{name}.__quarantine``.

An entry's key is ``{"topic":"…","key":"…"}``: where the row would be, and under which key. A key that is not UTF-8, as
those in Avro are, is in base64 as ``key64``. Its value says which change brought the row, why it cannot be carried, and
what its columns held, as far as that may leave: excluded columns are absent, and masked ones masked. Cells are in
base64, because some of them are not text. A tombstone removes an entry.

An entry has to fit where its row did not: of a cell, at most ``CELL_BYTES`` are kept, and of a row ``ROW_BYTES``. Each
cell says how many bytes it had.
"""

from __future__ import annotations

from base64 import b64decode, b64encode
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, Final

import orjson

from cdc.base.errors import DecodeError
from cdc.base.lsn import LSN
from cdc.contract.header import parse_header
from cdc.contract.parsing import integer, parse_record, text
from cdc.contract.record import Position

CELL_BYTES: Final = 4_096
ROW_BYTES: Final = 131_072
_REASON_CHARS: Final = 1_000


class RefusedRow(bytes):
    """Stands for the value of a row that cannot be carried: JSON with what its entry keeps of the row.

    It is the value of a ``Ready`` until the publisher puts an entry and a tombstone in its place.
    """

    table: str
    reason: str
    remedy: str

    @classmethod
    def of(cls, table: str, reason: str, remedy: str, cells: Iterable[tuple[str, str, bytes | None]]) -> RefusedRow:
        """Make one.

        Args:
            table: its qualified name.
            reason: why the row cannot be carried; it must not tell what is hidden.
            remedy: what to do about it.
            cells: name, type and text of each column that may leave, masked where it has to be; None for NULL.
        """
        left = ROW_BYTES
        kept = []
        for name, type_name, cell in cells:
            shown = None if cell is None else cell[: min(CELL_BYTES, left)]
            left -= len(shown or b"")
            kept.append(
                {
                    "name": name,
                    "type": type_name,
                    "size": None if cell is None else len(cell),
                    "text64": None if shown is None else b64encode(shown).decode(),
                }
            )
        row = cls(orjson.dumps({"table": table, "reason": reason[:_REASON_CHARS], "columns": kept}))
        row.table, row.reason, row.remedy = table, reason, remedy
        return row


@dataclass(frozen=True, slots=True)
class KeptCell:
    """What an entry keeps of one column.

    Attributes:
        name: the column.
        type_name: its type.
        size: how many bytes the value had; None if it was NULL.
        content: the first of these bytes, all of them if there are as many.
    """

    name: str
    type_name: str
    size: int | None
    content: bytes

    @property
    def is_cut(self) -> bool:
        """Whether the value had more bytes than are kept."""
        return self.size is not None and self.size > len(self.content)


@dataclass(frozen=True, slots=True)
class QuarantineEntry:
    """A row in quarantine.

    Attributes:
        topic: the state topic of its table.
        key: the key under which it would be there.
        table: ``namespace.table``.
        position: of the change that brought the row.
        ts: when that was committed, or read from the table, µs since 1970.
        reason: why it cannot be carried.
        cells: its columns.
    """

    topic: str
    key: bytes
    table: str
    position: Position
    ts: int
    reason: str
    cells: tuple[KeptCell, ...]


def entry_key(topic: str, key: bytes) -> bytes:
    """The key of the entry of a row."""
    try:
        return orjson.dumps({"topic": topic, "key": key.decode()})
    except UnicodeDecodeError:
        return orjson.dumps({"topic": topic, "key64": b64encode(key).decode()})


def entry_value(row: RefusedRow, header: bytes) -> bytes:
    """The value of the entry of a row that came with this header."""
    parsed = parse_header(header)
    at = {"v": 1, "lsn": str(parsed.lsn), "seq": parsed.seq, "ts": parsed.ts}
    return orjson.dumps({**at, **orjson.loads(bytes(row))})


def parse_entry(key: bytes, value: bytes) -> QuarantineEntry:
    """Parse the record of an entry.

    Raises:
        DecodeError: not an entry of version 1.
    """
    try:
        place = orjson.loads(key)
        topic = text(place["topic"])
        row_key = b64decode(place["key64"], validate=True) if "key64" in place else text(place["key"]).encode()
    except (KeyError, TypeError, ValueError) as error:
        raise DecodeError(
            f"a record of the quarantine topic has another key than an entry: {key[:200]!r}",
            remedy="find out who wrote into this topic: another program, or a newer version of cdc",
        ) from error

    def entry(fields: dict[str, Any]) -> QuarantineEntry:
        return QuarantineEntry(
            topic=topic,
            key=row_key,
            table=text(fields["table"]),
            position=Position(LSN.parse(text(fields["lsn"])), integer(fields["seq"])),
            ts=integer(fields["ts"]),
            reason=text(fields["reason"]),
            cells=tuple(map(_cell, fields["columns"])),
        )

    return parse_record("entry", "quarantine", value, entry)


def _cell(fields: dict[str, Any]) -> KeptCell:
    size = fields["size"]
    return KeptCell(
        name=text(fields["name"]),
        type_name=text(fields["type"]),
        size=None if size is None else integer(size),
        content=b"" if fields["text64"] is None else b64decode(fields["text64"], validate=True),
    )
