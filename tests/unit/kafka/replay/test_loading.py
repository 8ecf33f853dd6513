"""Which topics are incomplete at a cut: by the order of records in the progress topic, whenever they are read."""

from __future__ import annotations

import tracemalloc
from dataclasses import replace

from cdc.base.lsn import LSN
from cdc.contract.record import BackfillProgress, Progress, SourceIdentity
from cdc.kafka.replay.backfills import StoredBackfill
from cdc.kafka.replay.cut import Cut
from cdc.kafka.replay.loading import LoadingTopics
from tests.support.topic_writer import FIRST_BACKFILL


def of(topic: str, lsn: int, *, whole: bool) -> BackfillProgress:
    return replace(FIRST_BACKFILL, table=topic, topic=topic, lsn=LSN(lsn), whole=whole)


def cut(lsn: int, offset: int) -> Cut:
    return Cut(Progress(LSN(lsn), None, 0, SourceIdentity("1", 1, 1)), offset)


def test_a_record_behind_the_cut_does_not_count_yet() -> None:
    loading = LoadingTopics((), 0, ())
    loading.saw(of("t", 10, whole=False), 1)
    loading.saw(of("t", 30, whole=True), 5)
    assert loading.at(cut(10, 2), 2) == {"t"}
    assert loading.at(cut(20, 4), 4) == {"t"}
    assert loading.at(cut(30, 6), 6) == set()


def test_whole_only_from_its_lsn_on_and_in_order() -> None:
    loading = LoadingTopics((), 0, ())
    loading.saw(of("t", 10, whole=False), 1)
    loading.saw(of("t", 30, whole=True), 2)
    loading.saw(of("t", 40, whole=False), 3)
    assert loading.at(cut(20, 9), 9) == {"t"}
    assert loading.at(cut(30, 10), 10) == {"t"}, "whole at 30, and not any more behind that"
    loading.saw(of("t", 50, whole=True), 11)
    assert loading.at(cut(50, 12), 12) == set()


def test_many_records_that_say_the_same_are_remembered_once() -> None:
    loading = LoadingTopics((), 0, ())
    loading.saw(of("t", 10, whole=False), 0)
    tracemalloc.start()
    for offset in range(1, 1_000):
        loading.saw(of("t", 10, whole=False), offset)
    kept, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert kept < 10_000, "ten bytes a record, and none is as small"


def test_restart_takes_the_newest_record_where_it_will_not_be_read_again() -> None:
    before = [StoredBackfill(of("a", 10, whole=False), 3), StoredBackfill(of("b", 10, whole=True), 4)]
    assert LoadingTopics(before, 5, ["a"]).at(cut(20, 9), 9) == {"a"}


def test_restart_takes_the_replicas_word_until_the_newest_record_is_read() -> None:
    ahead = [StoredBackfill(of("a", 30, whole=True), 8), StoredBackfill(of("b", 30, whole=False), 9)]
    loading = LoadingTopics(ahead, 5, ["b"])
    assert loading.at(cut(20, 6), 6) == {"a"}
    loading.saw(of("a", 30, whole=True), 8)
    loading.saw(of("b", 30, whole=False), 9)
    assert loading.at(cut(30, 10), 10) == {"b"}


def test_a_topic_that_begins_anew_is_incomplete_until_its_backfill_is_seen() -> None:
    loading = LoadingTopics((), 0, ())
    loading.begin_anew(["t"], end=8)
    assert loading.at(cut(10, 2), 3) == {"t"}, "its definition was read ahead of the record that says so"
    loading.saw(of("t", 20, whole=False), 4)
    assert loading.at(cut(20, 5), 6) == {"t"}
    loading.saw(of("t", 30, whole=True), 9)
    assert loading.at(cut(20, 6), 10) == {"t"}
    assert loading.at(cut(30, 10), 12) == set()


def test_a_backfill_that_begins_and_ends_between_two_cuts_leaves_nothing_behind() -> None:
    loading = LoadingTopics((), 0, ())
    loading.begin_anew(["t"], end=8)
    loading.saw(of("t", 20, whole=False), 4)
    loading.saw(of("t", 30, whole=True), 5)
    assert loading.at(cut(30, 6), 7) == set()
