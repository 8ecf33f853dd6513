"""What comes from the source: messages of the stream, lines of COPY, texts of values. C must do what Python does."""

from __future__ import annotations

import random
from collections.abc import Iterator
from contextlib import suppress
from functools import cache, lru_cache
from typing import Final

from cdc.base.errors import CdcError, DecodeError
from cdc.base.lsn import LSN
from cdc.bridge.backfill.lines import Encoded, LineEncoder
from cdc.bridge.decode.pgoutput import PgOutputDecoder
from cdc.bridge.decode.walsender import parse_keepalive
from cdc.bridge.encode import TableEncoder
from cdc.bridge.order.touched import Recording
from cdc.contract.change import Relation, ReplicaIdentity
from cdc.contract.formats.format import NOT_ENCODABLE
from cdc.contract.formats.json_format import JSON
from cdc.contract.header import HeaderStamp
from cdc.contract.record import Position, Progress, SourceIdentity
from tests.fuzz.pieces import LAYOUTS, SEEDS, cells, joined, layout, parts_of, split
from tests.golden.files import MAJORS, messages
from tests.support import random_rows
from tests.support.engines import Side, batches, shapes
from tests.support.pgoutput import encoded, frame

_SOURCE: Final = SourceIdentity("7", 1, 5)
_STAMP: Final = HeaderStamp(LSN(0x1_0192_5728), None, 1_795_190_486_566_123, "734:736:734")


@cache
def _described(major: int) -> tuple[dict[int, Relation], list[bytes]]:
    """The relations of a captured stream, and its messages about types."""
    decoder = PgOutputDecoder()
    sent = [data for data in messages(major, 1) if data[0] in b"RY"]
    for data in sent:
        decoder.decode(data)
    return decoder.relations, [data for data in sent if data[0] in b"Y"]


def _decoder(choice: int) -> PgOutputDecoder:
    decoder = PgOutputDecoder()
    relations, types = _described(MAJORS[choice % len(MAJORS)])
    decoder.relations.update(relations)
    for data in types:
        decoder.decode(data)
    return decoder


def pgoutput(data: bytes) -> None:
    """Messages of the stream, after the relations of a captured one."""
    choice, parts = split(data)
    decoder = _decoder(choice)
    with suppress(DecodeError):
        for part in parts:
            message = decoder.decode(part)
            assert encoded(message, decoder.stream_xid) in (None, part), "bytes were lost"
    with suppress(DecodeError):
        parse_keepalive(parts[0])


def pgoutput_seeds() -> Iterator[bytes]:
    for choice, major in enumerate(MAJORS):
        for protocol in (1, 2):
            sent = messages(major, protocol)
            yield from (joined(choice, sent[place : place + 6]) for place in range(0, len(sent), 6))


def frames(data: bytes) -> None:
    """Frames of the stream, in an engine with its twin in C and in one without."""
    choice, parts = split(data)
    partial = Position(LSN(1_000), choice >> 6) if choice & 1 else None
    resume = Progress(LSN(100) if partial else LSN(1_500 if choice & 2 else 100), partial, 0, _SOURCE)
    histories = frozenset(("t2",) if choice & 4 else ())
    watched, hidden = bool(choice & 8), {2, 3} if choice & 16 else ()
    sides = [
        Side(resume, in_c=in_c, watched=watched, histories=histories, ours={1, 2, 3}, enveloped={3}, hidden=hidden)
        for in_c in (True, False)
    ]
    outcomes = [_fed(side, [frame(part) for part in parts]) for side in sides]
    assert outcomes[0] == outcomes[1]
    assert sides[0].standing() == sides[1].standing()


def _fed(side: Side, sent: list[bytes]) -> str:
    # A server sends no row outside of a transaction, so the engine may fail there as it likes: alike is enough
    try:
        return side.feed(sent)
    except Exception as error:  # noqa: BLE001 - whatever it is, both must say the same
        return repr(error)


def frames_seeds() -> Iterator[bytes]:
    for number in range(SEEDS):
        rng = random.Random(number)
        sent = [each[25:] for batch in batches(rng, shapes(rng)) for each in batch]
        yield joined(rng.randrange(256), sent)


# What a backfill reads, and what rows become.


@lru_cache(maxsize=LAYOUTS)
def _line_encoders(number: int) -> tuple[LineEncoder, LineEncoder]:
    columns = layout(number)
    names = tuple(column.name for column in columns)
    table = TableEncoder(Relation(7, "public", "t", ReplicaIdentity.DEFAULT, columns), names[:2], "shop.public.t")
    in_c, in_python = LineEncoder(table), LineEncoder(table)
    in_python.compiled = None
    return in_c, in_python


def lines(data: bytes) -> None:
    """Lines of COPY, which become records."""
    choice, parts = split(data)
    in_c, in_python = _line_encoders(choice)
    recording = Recording("shop.public.t", ())
    recording.keys.update(dict.fromkeys(parts[1:], 700))
    sent = [line + b"\n" for line in parts[0].split(b"\n")]
    assert _encoded_lines(in_c, sent, recording) == _encoded_lines(in_python, sent, recording)


def _encoded_lines(encoder: LineEncoder, sent: list[bytes], recording: Recording) -> Encoded | str:
    try:
        return encoder.encode(sent, recording, _STAMP, 9)
    except CdcError as error:
        return str(error)


def lines_seeds() -> Iterator[bytes]:
    for number in range(SEEDS):
        rng = random.Random(number)
        sent = b"".join(random_rows.copy_line(rng, layout(number), damage=0.05) for _ in range(4))
        yield joined(number, [sent.removesuffix(b"\n")])


def objects(data: bytes) -> None:
    """Rows of the stream, which become JSON objects."""
    choice, parts = split(data)
    writer = JSON.writer(layout(choice))
    row = cells(parts)
    found = writer.compiled.encode(row) if writer.compiled is not None else None
    try:
        expected = writer.encode(row)
    except NOT_ENCODABLE:
        assert found is None
        return
    expected.decode()
    assert found is None or (found, ()) == (expected, writer.null_documents(row))


def objects_seeds() -> Iterator[bytes]:
    for number in range(SEEDS):
        row = random_rows.row(random.Random(number), layout(number), damage=0.05)
        yield joined(number, parts_of(row))
