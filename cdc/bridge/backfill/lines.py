"""Turns lines of ``COPY … TO STDOUT`` into records, except for rows that the stream brought itself.

``_lines.pyx`` does the same in C for plain lines. Python takes each line that it declines, in its place.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

from cdc.base.compiled import twin
from cdc.bridge.decode.copy_text import parse_line
from cdc.bridge.encode import TableEncoder
from cdc.bridge.order.touched import Recording
from cdc.contract.header import BACKFILL, HeaderStamp, with_null_documents
from cdc.contract.record import Ready


class Encoded(NamedTuple):
    """The records of a portion. ``size`` counts the bytes of their values."""

    records: list[Ready]
    size: int


class LineEncoder:
    """Makes records of one relation's rows.

    Args:
        table: encodes rows of the relation.
    """

    def __init__(self, table: TableEncoder) -> None:
        self.table = table
        module, forms = twin("cdc.bridge.backfill._lines"), table.compiled
        self.compiled: Any = None
        if module is not None and forms is not None:
            self.compiled = module.LineWriter(forms.keys, forms.values, forms.key_places, forms.most_bytes)

    def encode(self, lines: list[bytes], recording: Recording, stamp: HeaderStamp, seq: int) -> Encoded:
        """Returns the records of these lines, in their order.

        Args:
            lines: the rows, in COPY's text format.
            recording: the topic's recording; rows whose keys it has are left out.
            stamp: makes the headers.
            seq: the ordinal before the first record's.

        Raises:
            EncodeError: a value cannot be encoded.
        """
        records: list[Ready] = []
        if self.compiled is None:
            return Encoded(records, self._in_python(lines, recording, stamp, seq, records))
        before_op, before_seq, after_seq = stamp.around(self.table.fingerprint)
        same = (recording.topic, before_op + BACKFILL.encode() + before_seq, after_seq)
        place = total = 0
        while place < len(lines):
            place, size = self.compiled.write(lines, place, recording.keys, same, seq + len(records), records)
            declined = lines[place : place + 1]
            total += size + self._in_python(declined, recording, stamp, seq + len(records), records)
            place += 1
        return Encoded(records, total)

    def _in_python(
        self, lines: Sequence[bytes], recording: Recording, stamp: HeaderStamp, seq: int, records: list[Ready]
    ) -> int:
        table, header, fingerprint = self.table, stamp.header, self.table.fingerprint
        topic, touched, size = recording.topic, recording.keys, 0
        for line in lines:
            row = parse_line(line)
            key = table.key(row)
            if key in touched:
                continue
            value = table.value(row)
            seq += 1
            stamped = header(BACKFILL, seq, fingerprint)
            if b"null" in line and (nulls := table.null_documents(row)):
                stamped = with_null_documents(stamped, nulls)
            records.append((topic, key, value, stamped, None))
            size += len(value)
        return size
