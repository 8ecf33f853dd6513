"""Two engines, one with its twin in C and one without, fed with the same frames; and random frames to feed them."""

from __future__ import annotations

import random
import struct
from collections.abc import Collection, Sequence
from typing import Final, NamedTuple

import pytest

from cdc.base.errors import CdcError
from cdc.bridge.decode.pgoutput import PgOutputDecoder
from cdc.bridge.encode import FRAME_BYTES, TableEncoder, ValueForm
from cdc.bridge.order import engine
from cdc.bridge.order.counts import CountsByTable
from cdc.bridge.order.engine import Engine
from cdc.bridge.order.needs import Answer, Definition, Empty, Filled, Need, Rows, Unfilled
from cdc.bridge.order.touched import TouchedKeys
from cdc.contract.change import UNCHANGED_TOAST, Begin, Column, Commit, Delete, Insert, Relation, Row, Update
from cdc.contract.formats.debezium.rows import DebeziumWriter
from cdc.contract.hiding import Hiding
from cdc.contract.record import DebeziumModes, Progress, Ready
from tests.support import random_rows
from tests.support.pgoutput import begin, commit, frame, row_bytes


class Shape(NamedTuple):
    """A table of the stream."""

    number: int
    columns: tuple[Column, ...]
    is_ours: bool
    identity: str

    def relation(self) -> bytes:
        head = b"R" + struct.pack(">I", self.number) + b"public\0t%d\0" % self.number + self.identity.encode()
        return frame(head + struct.pack(">H", len(self.columns)) + b"".join(map(_described, self.columns)))

    def change(self, rng: random.Random) -> bytes:
        row = random_rows.row(rng, self.columns, damage=rng.choice((0.0, 0.02)))
        # A key that is null is an error: rare, as it ends everything
        whole = tuple(b"7" if cell is None and column.in_identity and rng.random() < 0.99 else cell
                      for column, cell in zip(self.columns, row, strict=True))  # fmt: skip
        kind = rng.choice("IIUUUD")
        head = kind.encode() + struct.pack(">I", self.number)
        old = b""
        if kind == "D" or (kind == "U" and rng.random() < 0.4):
            before = list(whole)
            if rng.random() < 0.3:
                before[0] = b"8"
            is_full = self.identity == "f"
            kept = [
                cell if is_full or each.in_identity else None for each, cell in zip(self.columns, before, strict=True)
            ]
            old = (b"O" if is_full else b"K") + row_bytes(kept)
            if kind == "U" and rng.random() < 0.3:
                left_out = rng.randrange(len(whole))  # with or without its value in the old row
                whole = (*whole[:left_out], UNCHANGED_TOAST, *whole[left_out + 1 :])
        return frame(head + old + (b"" if kind == "D" else b"N" + row_bytes(whole)))


_OIDS: Final = {
    "bool": 16, "int4": 23, "int8": 20, "float8": 701, "numeric": 1700, "timestamptz": 1184, "uuid": 2950, "text": 25,
    "bytea": 17, "jsonb": 3802, "_int4": 1007, "_text": 1009, "_jsonb": 3807, "_bool": 1000,
}  # fmt: skip


def _described(column: Column) -> bytes:
    oid = _OIDS[column.type_name.rpartition(".")[2]]
    return bytes((column.in_identity,)) + column.name.encode() + b"\0" + struct.pack(">Ii", oid, -1)


LIMITED_BYTES: Final = FRAME_BYTES + 400
"""How large a record of a limited table may be: about every fourth row is put into quarantine."""


class Side:
    """An engine with its decoder, fed as the loop feeds it."""

    def __init__(
        self,
        resume: Progress,
        *,
        in_c: bool,
        watched: bool,
        histories: frozenset[str],
        ours: set[int],
        enveloped: Collection[int],
        hidden: Collection[int] = (),
        limited: Collection[int] = (),
    ) -> None:
        self.counts = CountsByTable()
        self.touched = TouchedKeys()
        with pytest.MonkeyPatch.context() as patched:
            if not in_c:
                patched.setattr(engine, "take_rows", lambda: None)
            self.engine = Engine(resume=resume, xid=5, counts=self.counts, touched=self.touched, histories=histories)
        self.recording = self.touched.watch("t1", ()) if watched else None
        self.ours = ours
        self.enveloped = enveloped
        self.hidden = hidden
        self.limited = limited
        self.decoder = PgOutputDecoder()
        self.records: list[Ready] = []
        self.fed = 0

    def feed(self, frames: list[bytes]) -> str:
        """The error that ended it, if any."""
        place = 0
        try:
            while True:
                fed = self.engine.feed(frames, place, self.decoder.relations)
                self.fed += fed - place
                if (place := fed) >= len(frames):
                    break
                message = self.decoder.decode(frames[place][25:])
                place += 1
                match message:
                    case Begin():
                        self.engine.begin(message)
                    case Commit():
                        self.engine.commit(message)
                    case Insert():
                        self.answer(self.engine.insert(message))
                    case Update():
                        self.answer(self.engine.update(message))
                    case Delete():
                        self.answer(self.engine.delete(message))
        except CdcError as error:
            return f"{type(error).__name__} {error}"
        self.records += self.engine.take()
        return ""

    def answer(self, need: Need | None) -> None:
        while need is not None:
            match need:
                case Definition(relation):
                    need = self.engine.table(self.encoder(relation))
                case Rows(rows=rows):
                    need = self.engine.rows([found(row) for row in rows])
                case Empty():
                    need = self.engine.emptied()

    def encoder(self, relation: Relation) -> TableEncoder | None:
        keys = tuple(each.name for each in relation.columns if each.in_identity)[:2]
        if relation.relation_id not in self.ours or not keys:
            return None
        hiding = (
            Hiding(relation, random_rows.rules(relation.columns, keys)) if relation.relation_id in self.hidden else None
        )
        form = None
        if relation.relation_id in self.enveloped:
            modes, shown = DebeziumModes(time="microseconds"), relation if hiding is None else hiding.relation
            form = ValueForm("json", DebeziumWriter(shown.columns, modes), envelope=modes)
        table = TableEncoder(relation, keys, f"t{relation.relation_id}", form, hiding=hiding)
        if relation.relation_id in self.limited:
            table.quarantines(LIMITED_BYTES)
        return table

    def standing(self) -> tuple[object, ...]:
        """Everything that may not differ."""
        keys = None if self.recording is None else self.recording.keys
        return self.records, self.engine.progress(), dict(self.counts), keys, self.engine.unpublished_since


def found(row: Row) -> Answer:
    whole = tuple(b"{}" if cell is UNCHANGED_TOAST else cell for cell in row)
    return Filled(whole, True) if row[:1] != (b"8",) else Unfilled.GONE


def shapes(rng: random.Random) -> list[Shape]:
    made = []
    for number in range(1, rng.randrange(2, 5)):
        columns, identity = random_rows.columns(rng), rng.choice("ddf")
        marked = tuple(Column(each.name, each.type_oid, -1, each.type_name, identity == "f" or each.in_identity)
                       for each in columns)  # fmt: skip
        made.append(Shape(number, marked, rng.random() < 0.9, identity))
    return made


def batches(rng: random.Random, tables: Sequence[Shape]) -> list[list[bytes]]:
    """A few transactions, cut into batches anywhere, with a damaged frame now and then."""
    frames: list[bytes] = []
    for number in range(rng.randrange(1, 4)):
        lsn = 1_000 * (number + 1)
        frames.append(frame(begin(lsn, 700 + number)))
        for each in tables:
            if number == 0 or rng.random() < 0.3:
                frames.append(each.relation())
        frames += [rng.choice(tables).change(rng) for _ in range(rng.choice((0, 1, 3, 30)))]
        frames.append(frame(commit(lsn)))
    if rng.random() < 0.2:
        place = rng.randrange(len(frames))
        frames[place] = b"w" + frames[place][1:25] + random_rows.damaged(rng, frames[place][25:])
    cuts = sorted(rng.choices(range(len(frames) + 1), k=2))
    return [frames[: cuts[0]], frames[cuts[0] : cuts[1]], frames[cuts[1] :]]
