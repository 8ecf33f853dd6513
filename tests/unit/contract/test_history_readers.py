"""History topics have several readers, on purpose without shared code: given the same records, they tell the same."""

from __future__ import annotations

import os
import random
from typing import Any, ClassVar, NamedTuple

import orjson
import pyarrow as pa
import pytest

from cdc.base.errors import DecodeError
from cdc.base.lsn import LSN
from cdc.contract.header import BACKFILL, DELETE, INSERT, TRUNCATE, UPDATE, HeaderStamp, newer
from cdc.contract.history import HistoryEncoder, parse_history
from cdc.spark.history.trail import change
from cdc.spark.snapshot.history import read_states
from cdc.spark.values.objects import split_object

SEED = int(os.environ.get("SEED", str(random.SystemRandom().randrange(1 << 32))))
SCHEMA = "3f2a91c05b7e6d14"
ROWS = (
    '{"id":1,"n":"1.10","doc":{"a" : 1.0,   "a": 2},"é \\"x\\"":null}',
    '{"id":9007199254740993,"n":"NaN","doc":" null ","é \\"x\\"":[1,null,"{}"]}',
    '{"id":-1,"n":null,"doc":12345678901234567890.10,"é \\"x\\"":"\\n\\u0001,}"}',
)


class Facts(NamedTuple):
    """What a reader tells of one record; rows as JSON texts by column."""

    op: str
    position: tuple[str, int]
    xid: int | None
    ts: int
    schema: str
    new: dict[str, str] | None
    old: dict[str, str] | None


class Written(NamedTuple):
    """A history value, and what it was made of."""

    value: bytes
    facts: Facts


def write(op: str, new: str | None, old: str | None, *, xid: int | None = 734, later: bool = False) -> Written:
    snap = "700:710:" if xid is None else None
    header = HeaderStamp(LSN(0x1925728), xid, 1_795_190_486_566_123, snap).header(op, 17, SCHEMA)
    value = HistoryEncoder({}, lambda value, _: value).value(
        None if new is None else new.encode(), newer(header) if later else header, None if old is None else old.encode()
    )
    told = DELETE if op == UPDATE and new is None else op
    rows = [None if row is None else split_object(row) for row in (new, old)]
    return Written(value, Facts(told, ("0/1925728", 17), xid, 1_795_190_486_566_123, SCHEMA, *rows))


def every_change() -> list[Written]:
    first, second, third = ROWS
    return [
        write(INSERT, first, None),
        write(UPDATE, second, None),
        write(UPDATE, second, first),
        write(UPDATE, second, '{"id":1}', later=True),
        write(UPDATE, None, '{"id":1}'),
        write(DELETE, None, third),
        write(BACKFILL, third, None, xid=None),
        write(BACKFILL, None, None, xid=None),
        write(TRUNCATE, None, None),
    ]


class HistoryReaderContract:
    """Of a reader of history values."""

    columns: ClassVar[tuple[str, ...]] = Facts._fields
    """What this reader tells."""

    def read(self, value: bytes) -> Facts:
        """Raises ``DecodeError`` for what is no history value."""
        raise NotImplementedError

    def told(self, facts: Facts) -> dict[str, Any]:
        return {name: value for name, value in facts._asdict().items() if name in self.columns}

    def test_every_kind_of_change(self) -> None:
        assert [self.told(self.read(each.value)) for each in every_change()] == [
            self.told(each.facts) for each in every_change()
        ]

    def test_random_rows(self) -> None:
        rng = random.Random(SEED)

        def row() -> str | None:
            letters = 'a"\\{}[]:, é\n\x01'
            names = {"".join(rng.choices(letters, k=3)) for _ in range(rng.randint(1, 6))}
            values: tuple[object, ...] = (
                None,
                True,
                1.5,
                -7,
                "".join(rng.choices(letters, k=8)),
                [1, None],
                {"a": [{}]},
            )
            return None if rng.random() < 0.2 else orjson.dumps({each: rng.choice(values) for each in names}).decode()

        changes = [write(rng.choice((INSERT, UPDATE, DELETE)), row(), row()) for _ in range(300)]
        assert [self.told(self.read(each.value)) for each in changes] == [self.told(each.facts) for each in changes], (
            f"SEED={SEED}"
        )

    def test_what_is_no_history_value_is_refused(self) -> None:
        whole = write(INSERT, ROWS[0], None).value
        for bad in (b"null", b"{}", b'{"v":1}', b"\xff", whole.replace(b'"v":1', b'"v":2'), whole[:-1], whole + b"}"):
            with pytest.raises(DecodeError, match="history record is not of topic contract version 1"):
                self.read(bad)


class TestHistoryCommand(HistoryReaderContract):
    """``cdc history``."""

    def read(self, value: bytes) -> Facts:
        found = parse_history(value)
        position = str(found.position.lsn), found.position.seq
        old = None if found.old is None else dict(found.old)
        return Facts(
            found.op, position, found.xid, found.ts, found.schema, None if found.new is None else dict(found.new), old
        )


class TestAudit(HistoryReaderContract):
    """``cdc audit``."""

    def read(self, value: bytes) -> Facts:
        found = change(value)
        rows = [None if found[each] is None else split_object(found[each]) for each in ("new", "old")]
        position = found["lsn"], found["seq"]
        return Facts(found["op"], position, found["xid"], found["commit_us"], found["schema"], *rows)


class TestSnapshot(HistoryReaderContract):
    """``cdc snapshot`` of the past: only the row from then on."""

    columns = ("new",)

    def read(self, value: bytes) -> Facts:
        batch = pa.RecordBatch.from_pydict({"value": pa.array([value], pa.binary())})
        state = next(iter(read_states(iter([batch])))).column("value")[0].as_py()
        return Facts("", ("", 0), None, 0, "", None if state is None else split_object(state.decode()), None)
