"""The Delta mirror without servers: what a table may become, where a round ends, and when a cut is proven."""

from __future__ import annotations

import pyarrow
import pytest

from cdc.base.lsn import LSN
from cdc.contract.record import BackfillProgress, Lead, Position, Progress, SchemaColumn, SourceIdentity
from cdc.spark.mirror.cut_log import MadeCut, superseded
from cdc.spark.mirror.published import CutPoint, is_newest
from cdc.spark.mirror.rounds import capped
from cdc.spark.mirror.rows import LakeRecordForm, RecordRefused
from cdc.spark.mirror.typed_rows import TypedForm, holds_all, names_that_clash, needs_mapping
from cdc.spark.offsets import Extent
from cdc.spark.snapshot.point import PublishedPoint
from cdc.spark.snapshot.rows import RowDecoder
from cdc.spark.values.columns import kind_of

SOURCE = SourceIdentity("7", 1, 5)


@pytest.mark.parametrize(
    ("narrow", "wide"),
    [
        ("int", "int"),
        ("smallint", "bigint"),
        ("int", "string"),
        ("int", "decimal(12,2)"),
        ("bigint", "decimal(19,0)"),
        ("decimal(10,2)", "decimal(12,3)"),
        ("decimal(10,2)", "string"),
        ("array<int>", "array<int>"),
    ],
)
def test_values_that_tell_how_records_spell_them_are_cast(narrow: str, wide: str) -> None:
    assert holds_all(wide, narrow)


@pytest.mark.parametrize(
    ("narrow", "wide"),
    [
        ("bigint", "int"),
        ("int", "decimal(11,2)"),
        ("decimal(10,2)", "decimal(10,3)"),
        ("decimal(10,2)", "decimal(12,1)"),
        ("float", "double"),
        ("double", "string"),
        ("boolean", "string"),
        ("string", "int"),
        ("timestamp_ntz", "timestamp"),
        ("int", "map<string,string>"),
    ],
)
def test_what_a_cast_might_spell_otherwise_is_rebuilt(narrow: str, wide: str) -> None:
    assert not holds_all(wide, narrow)


def test_names_that_are_one_for_delta() -> None:
    assert names_that_clash(["cdc_key", "a", "b"]) is None
    assert names_that_clash(["a", "Größe", "A"]) == ("a", "A")
    assert names_that_clash(["cdc_key", "CDC_KEY"]) == ("cdc_key", "CDC_KEY")
    assert [needs_mapping(each) for each in ("a", "a b", "a,b", "a(1)", "ä-b", 'a"')] == [
        False, True, True, True, False, False,
    ]  # fmt: skip


def test_a_round_takes_all_or_the_same_part_of_each_partition() -> None:
    ranges = [Extent("a", "1", (0, 10), (100, 10)), Extent("b", "2", (50,), (350,))]
    assert capped(ranges, 400) == ranges
    assert capped(ranges, 40) == [Extent("a", "1", (0, 10), (10, 10)), Extent("b", "2", (50,), (80,))]
    ones = [Extent("a", "1", (0, 0, 0), (1, 1, 1))]
    assert capped(ones, 1) == ones, "each partition advances, or a round would do nothing for ever"


def progress(lsn: int, partial: Position | None = None, lead: Lead | None = None) -> Progress:
    return Progress(LSN(lsn), partial, 0, SOURCE, (), lead)


def test_a_progress_with_nothing_after_it() -> None:
    assert is_newest(progress(10))
    assert not is_newest(progress(10, Position(LSN(12), 5))), "part of the next transaction is published"
    assert is_newest(progress(10, lead=Lead(LSN(10), is_open=False)))
    assert not is_newest(progress(10, lead=Lead(LSN(11), is_open=False)))
    assert not is_newest(progress(10, lead=Lead(LSN(9), is_open=True)))


def test_a_cut_is_proven_for_as_long_as_nothing_can_erase() -> None:
    point = CutPoint(LSN(10), is_alone=True, at_ms=1_000, point=PublishedPoint(LSN(10), {}))
    assert point.is_proven(read_ms=50_999, lag_ms=60_000)
    assert not point.is_proven(read_ms=51_000, lag_ms=60_000), "ten seconds for clocks that differ"
    beside = CutPoint(LSN(10), is_alone=False, at_ms=1_000, point=PublishedPoint(LSN(10), {}))
    assert not beside.is_proven(read_ms=1_000, lag_ms=60_000)


def test_a_table_is_whole_from_its_backfill_on() -> None:
    def whole(*told: tuple[int, bool]) -> bool:
        backfills = [backfill(lsn, is_whole) for lsn, is_whole in told]
        return CutPoint(LSN(10), True, 0, PublishedPoint(LSN(10), {"public.t": backfills})).is_whole("public.t")

    assert whole(), "it was never backfilled"
    aside = CutPoint(LSN(10), True, 0, PublishedPoint(LSN(10), {}), frozenset({"public.t"}))
    assert (aside.is_whole("public.t"), aside.is_whole("public.u")) == (False, True)
    assert whole((10, True))
    assert not whole((5, False))
    assert not whole((11, True))
    assert not whole((5, True), (8, False))


def backfill(lsn: int, is_whole: bool) -> BackfillProgress:
    return BackfillProgress(
        table="public.t", topic="t", request="r", state="done", cause="initial", whole=is_whole, where=None, rate=None,
        sweep=False, below=(), leaves=(), estimated_rows=0, rows=0, swept=0, seq=0, lsn=LSN(lsn), started_at=0,
        updated_at=0,
    )  # fmt: skip


def typed() -> TypedForm:
    kinds = {"id": kind_of("int4"), "price": kind_of("numeric(5,2)")}
    columns = (SchemaColumn("id", "int4"), SchemaColumn("price", "numeric(5,2)"))
    return TypedForm(LakeRecordForm("t", tuple(kinds), {"beef": kinds}), RowDecoder(columns, {"beef": tuple(kinds)}))


def records(*values: bytes | None, header: str | None = "v=1;op=u;lsn=0/10;seq=1;xid=7;ts=1;schema=beef") -> object:
    count = len(values)
    return pyarrow.RecordBatch.from_arrays(
        [
            pyarrow.array([b"k%d" % number for number in range(count)], pyarrow.binary()),
            pyarrow.array(values, pyarrow.binary()),
            pyarrow.array([3] * count, pyarrow.int32()),
            pyarrow.array(range(17, 17 + count), pyarrow.int64()),
            pyarrow.array([header] * count, pyarrow.string()),
        ],
        names=["key", "value", "partition", "offset", "header"],
    )


def test_rows_have_types_and_tombstones_have_keys_only() -> None:
    batch = records(b'{"id":1,"price":"1.50"}', None, b'{"id":3,"price":"NaN"}')
    (rows,) = typed().convert(iter([batch]))
    assert rows.schema.names == typed().batch_schema().fieldNames()
    assert [(row["cdc_deleted"], row["cdc_key"], row["id"], str(row["price"])) for row in rows.to_pylist()] == [
        (False, "k0", 1, "1.50"),
        (True, "k1", None, "None"),
        (False, "k2", 3, "None"),
    ]
    assert [row["_beyond"] for row in rows.to_pylist()] == [None, None, [("price", "NaN")]]


def test_a_record_of_another_program_is_named() -> None:
    for batch in (records(b"{}", header=None), records(b"[1]"), records(b'{"id":true}')):
        with pytest.raises(RecordRefused, match="topic t, partition 3, offset 17, key b'k0'"):
            list(typed().convert(iter([batch])))


def test_records_that_cannot_be_read_are_told_with_their_places() -> None:
    batch = records(b'{"id":1,"price":"1.50"}', b"[1]", None, b'{"id":true}')
    (found,) = typed().refused(iter([batch]))
    told = [(row["partition"], row["offset"], row["key"]) for row in found.to_pylist()]
    assert told == [(3, 18, "b'k1'"), (3, 20, "b'k3'")]
    (none,) = typed().refused(iter([records(b'{"id":1}')]))
    assert (none.num_rows, none.schema) == (0, found.schema)


DAY_MS = 86_400_000


def test_old_cuts_go_and_of_those_in_between_an_even_few_stay() -> None:
    now_ms = 100 * DAY_MS
    cuts = [MadeCut(number, now_ms - (5000 - number) * 600_000, number % 2 == 0) for number in range(5001)]
    assert superseded(cuts, now_ms, 7, None) == {each.number for each in cuts if each.at_ms < now_ms - 7 * DAY_MS}
    kept = [each for each in cuts if each.number not in superseded(cuts, now_ms, 7, 100)]
    older = [each for each in kept if each.at_ms < now_ms - 3_600_000]
    assert 98 <= len(older) <= 102
    assert all(each.is_exact for each in older), "where an exact one can stay, it does"
    assert [each.number for each in kept if each.at_ms >= now_ms - 3_600_000] == list(range(4994, 5001))
    assert superseded([MadeCut(1, 0, True)], now_ms, 7, 100) == set(), "the last one stays"
