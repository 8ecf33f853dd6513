"""The mirror without servers: whose turn a batch is, what a manifest holds, which record has no row."""

from __future__ import annotations

from pathlib import Path

import pyarrow
import pytest

from cdc.spark.errors import JobError
from cdc.spark.mirror import manifest as manifests
from cdc.spark.mirror.manifest import LakeManifest
from cdc.spark.mirror.position import LakePosition, MicroBatch, NotItsTurn, admits
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


def batch(key: bytes, value: bytes | None, header: str | None) -> pyarrow.RecordBatch:
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
    ],
)
def test_a_record_without_a_row_is_named(value: bytes, header: str | None, cause: str) -> None:
    with pytest.raises(RecordRefused, match=rf"topic t, partition 3, offset 17, key b'k': .*{cause}"):
        list(form().rows(batch(b"k", value, header)))
