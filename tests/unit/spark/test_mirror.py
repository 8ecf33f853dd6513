"""The mirror without servers: whose turn a batch is, what a manifest holds, which record has no row."""

from __future__ import annotations

import json
from pathlib import Path

import pyarrow
import pytest

from cdc.spark.errors import JobError
from cdc.spark.mirror import manifest as manifests
from cdc.spark.mirror.manifest import LakeManifest
from cdc.spark.mirror.position import KeyAside, LakePosition, MicroBatch, NotItsTurn, admits
from cdc.spark.mirror.rows import LakeRecordForm, RecordRefused
from cdc.spark.offsets import Extent
from cdc.spark.values.columns import kind_of

HEADER = "v=1;op=u;lsn=0/10;seq=1;xid=7;ts=1;schema=beef"


def test_the_next_batch_is_taken_and_the_same_again_is_not() -> None:
    position = LakePosition("g", 4, {0: 10})
    assert admits(position, MicroBatch("g", 5, {}), {0: 12})
    assert not admits(position, MicroBatch("g", 4, {}), {0: 10})
    assert not admits(position, MicroBatch("g", 0, {}), {})
    after = position.after(MicroBatch("g", 5, {}, 99), {1: 3, 0: 12})
    assert after == LakePosition("g", 5, {0: 12, 1: 3}, 99)
    assert not admits(after, MicroBatch("g", 5, {}), {0: 12, 1: 3})


def test_a_new_generation_begins_where_the_target_stands() -> None:
    assert admits(LakePosition(), MicroBatch("g", 0, {}), {0: 1})
    assert admits(LakePosition("old", 4, {0: 10}), MicroBatch("g", 0, {0: 10}), {0: 11})


@pytest.mark.parametrize(
    ("position", "batch"),
    [
        (
            LakePosition("g", 4, {0: 10}),
            MicroBatch("g", 6, {}),
        ),  # a batch is missing: the target is older than the notes
        (LakePosition("old", 4, {0: 10}), MicroBatch("g", 3, {0: 10})),  # another mirror wrote meanwhile
        (LakePosition("old", 4, {0: 12}), MicroBatch("g", 0, {0: 10})),  # likewise, before our first batch
        (LakePosition(), MicroBatch("g", 2, {})),
        (LakePosition("g", 4, {0: 10}), MicroBatch("g", 3, {})),  # part of the notes is lost: they count from 0 again
    ],
)
def test_whatever_would_leave_something_out_is_refused(position: LakePosition, batch: MicroBatch) -> None:
    with pytest.raises(NotItsTurn):
        admits(position, batch, {0: 13})


def test_who_missed_nothing_may_come_back_after_any_time() -> None:
    """`cdc mirror --once` from cron on a quiet topic refused once tombstones of its last record could be gone."""
    begun = LakePosition().after(MicroBatch("g", 0, {}, 1_000), {0: 10})
    assert not LakePosition().may_have_missed({0: 10}, 10**9, 100), "it has nothing that a tombstone could delete"
    assert not begun.may_have_missed({0: 20}, 1_100, 100)
    assert begun.may_have_missed({0: 20}, 1_101, 100), "it never had everything, and began too long ago"
    current = begun.current({0: 11}, 5_000)
    assert not current.may_have_missed({0: 11}, 10**9, 100), "nothing was written since"
    assert not current.may_have_missed({0: 12}, 5_100, 100)
    assert current.may_have_missed({0: 12}, 5_101, 100)
    later = current.after(MicroBatch("g", 1, {}, 6_000), {0: 15})
    assert later.may_have_missed({0: 16}, 5_101, 100), "a batch on the way is not the end"


def test_offsets_are_of_one_topic_and_of_all_of_it() -> None:
    batch = MicroBatch("g", 0, {}, 1_000, "first")
    begun = LakePosition().after(batch, {0: 10, 1: 5})
    assert begun.why_lost(Extent("t", "first", (0, 5), (10, 9))) is None
    assert begun.why_lost(Extent("t", "first", (0, 0, 0), (10, 9, 7))) is None, "a partition more"
    assert begun.after(batch, {}).why_lost(Extent("t", "first", (0, 0), (10, 9))) is None
    assert LakePosition().why_lost(Extent("t", "first", (0, 3), (10, 9))) is None, "it holds nothing yet"
    for extent, why in (
        (Extent("t", "other", (0, 0), (10, 9)), "was deleted and recreated"),
        (Extent("t", "first", (0, 0), (10, 4)), "partition 1 no longer reaches offset 5"),
        (Extent("t", "first", (0,), (10,)), "partition 1 no longer reaches offset 5"),
        (Extent("t", "first", (11, 0), (20, 9)), "partition 0 now begins at offset 11"),
    ):
        assert why in (begun.why_lost(extent) or "")
    unknown = LakePosition.from_fields({"generation": "g", "batch": 0, "offsets": {"0": 10}})
    assert "does not say which topic" in (unknown.why_lost(Extent("t", "first", (0,), (10,))) or "")


def test_positions_survive_json() -> None:
    position = LakePosition("g", 4, {0: 10, 11: 3}, 5, {0: 11, 11: 3}, "id")
    assert LakePosition.from_fields(position.as_fields()) == position


def test_keys_that_stand_aside_survive_json_and_are_absent_from_positions_without() -> None:
    aside = (KeyAside.of(b'{"id":1}', 0, 9, "damaged"), KeyAside.of(b"\xff", 11, 2, "not text"))
    position = LakePosition("g", 4, {0: 10, 11: 3}, aside=aside)
    fields = json.loads(json.dumps(position.as_fields()))
    assert LakePosition.from_fields(fields) == position
    assert "aside" not in LakePosition("g", 4).as_fields()
    assert LakePosition.from_fields({"generation": "g", "batch": 4}).aside == ()
    moved = position.after(MicroBatch("g", 5, {}), {0: 12}).current({0: 12}, 7)
    assert moved.aside == aside
    long = KeyAside.of(b"k" * 1_000_000, 0, 1, "r" * 1_000_000)
    assert len(json.dumps(long)) < 400
    assert long.identity != KeyAside.of(b"k" * 999_999, 0, 1, "").identity


def test_a_key_stands_aside_until_its_next_record() -> None:
    one, two = KeyAside.of(b"1", 0, 9, "damaged"), KeyAside.of(b"2", 0, 20, "damaged")
    position = LakePosition(aside=(one, two))
    assert position.putting_aside({}, ()).aside == (one, two)
    assert position.putting_aside({one.identity: 11}, ()).aside == (two,)
    again = KeyAside.of(b"1", 0, 11, "not an object")
    assert position.putting_aside({one.identity: 11}, [again]).aside == (again, two)
    assert position.putting_aside({one.identity: 9}, [one]).aside == (one, two), "read a second time"
    # Of records that are read again, a batch may have older ones only.
    assert position.putting_aside({two.identity: 15}, ()).aside == (one, two)
    older = KeyAside.of(b"2", 0, 15, "damaged")
    assert position.putting_aside({two.identity: 15}, [older]).aside == (one, two)
    assert KeyAside.of(None, 0, 1, "no key").identity not in {KeyAside.of(b"", 0, 1, "").identity}


def test_a_manifest_is_read_as_it_was_written_and_keeps_what_it_names(tmp_path: Path) -> None:
    for name in ("changes-1", "changes-2", "state-1", "given-up"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "part-0.parquet").touch()
    manifest = LakeManifest(
        "t", {"id": "int4"}, ("id",), changes=("changes-1", "changes-2"), position=LakePosition("g", 1, {0: 5})
    )
    manifests.write(tmp_path, manifest)
    assert manifests.read(tmp_path, "t") == manifest
    compacted = manifest.compacted("state-1")
    manifests.write(tmp_path, compacted)
    assert manifests.read(tmp_path, "t") == compacted
    assert (compacted.changes, compacted.state_offsets) == ((), {0: 5})
    manifests.sweep(tmp_path, compacted)
    assert {each.name for each in tmp_path.iterdir()} == {"changes-1", "changes-2", "state-1", "current.json"}
    manifests.sweep(tmp_path, compacted.compacted("state-2").compacted("state-3"))
    assert {each.name for each in tmp_path.iterdir()} == {"current.json"}
    with pytest.raises(JobError, match=r"current\.json is not a manifest of version 1: .*topic t"):
        manifests.read(tmp_path, "other")


def batch(key: bytes | None, value: bytes | None, header: str | None) -> pyarrow.RecordBatch:
    return pyarrow.RecordBatch.from_pydict(
        {"key": [key], "value": [value], "partition": [3], "offset": [17], "header": [header]}
    )


def form() -> LakeRecordForm:
    columns = {"id": kind_of("int4"), "doc": kind_of("jsonb"), "n": kind_of("numeric")}
    return LakeRecordForm("t", ("n", "new", "doc", "id"), {"beef": columns})


def test_texts_come_in_the_order_of_the_target_and_unchanged() -> None:
    value = b'{"id":1,"doc":null,"n":"1.500"}'
    assert list(form().rows(batch(b"k", value, HEADER))) == [("k", 3, 17, ["1.500", None, None, "1"])]
    assert list(form().rows(batch(b"k", value, HEADER + ";json_null=1"))) == [
        ("k", 3, 17, ["1.500", None, "null", "1"])
    ]
    assert list(form().rows(batch(b"k", None, None))) == [("k", 3, 17, None)]


@pytest.mark.parametrize(
    ("value", "header", "cause"),
    [
        (b"{}", None, "no header cdc"),
        (b"{}", "v=2", "not of topic contract version 1"),
        (b"{}", HEADER.replace("beef", "dead"), "does not have the definition dead"),
        (b"null", HEADER, "expected an object"),
        (b"\xff", HEADER, "UTF-8"),
        (b'{"n":"a\\u0000"}', HEADER, "NUL"),
        (b'{"n":"a\\ud83d"}', HEADER, "half a surrogate pair"),
        (b'{"n":"a\\uD83D","new":"\\uDE00"}', HEADER, "half a surrogate pair"),
    ],
)
def test_a_record_without_a_row_is_named(value: bytes, header: str | None, cause: str) -> None:
    with pytest.raises(RecordRefused, match=rf"topic t, partition 3, offset 17, key b'k': .*{cause}"):
        list(form().rows(batch(b"k", value, header)))
    (refused,) = form().refused(batch(b"k", value, header))
    assert cause in refused.reason


def test_half_a_pair_in_a_document_is_what_postgresql_took() -> None:
    assert list(form().rows(batch(b"k", b'{"doc":"\\ud83d","n":"\\ud83d\\ude00"}', HEADER))) == [
        ("k", 3, 17, ["\U0001f600", None, '"\\ud83d"', None])
    ]


@pytest.mark.parametrize("key", [b"\xff", None])
def test_a_tombstone_whose_key_is_not_text_deletes_nothing(key: bytes | None) -> None:
    assert list(form().rows(batch(key, None, None))) == []
    assert list(form().refused(batch(key, None, None))) == []
    with pytest.raises(RecordRefused, match="offset 17, key b'"):
        list(form().rows(batch(key, b'{"n":"1"}', HEADER)))
