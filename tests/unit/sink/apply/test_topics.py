"""The topics of one session of the sink: from which cut on a topic counts as the one that the bridge knows."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from types import SimpleNamespace
from typing import Any, cast

import pytest
from structlog.testing import capture_logs

from cdc.base.errors import ConfigError
from cdc.base.lsn import ZERO
from cdc.contract.known_topic import KnownTopic
from cdc.contract.partition import partition_of
from cdc.contract.ports import BeginAnew, Partition, RecordReader, ReplicaWriter, Restored, StoredRecord, TopicFacts
from cdc.contract.record import Progress, SourceIdentity
from cdc.kafka.replay.backfills import StoredTopic
from cdc.kafka.replay.cut import Cut, CutBuffer
from cdc.sink.apply import topics as subject
from cdc.sink.apply.topics import MirroredTopics, RebuildOrder

OLD, NEW = KnownTopic("old", (0,), (0,)), KnownTopic("new", (0,), (0,))


NEVER = Restored(None, {}, {}, 0.0, {})


class Reader:
    """Shows the topic that was made anew, or as ``facts`` say; notes where it is told to read."""

    def __init__(self, facts: TopicFacts | None = None) -> None:
        self.facts = facts or TopicFacts("new", (0,), (0,), 60.0, 60.0)
        self.starts: dict[Partition, int] = {}
        self.missing: set[str] = set()

    def look_at(self, topics: Collection[str]) -> Mapping[str, TopicFacts]:
        return {topic: self.facts for topic in topics if topic not in self.missing}

    def add(self, starts: Mapping[Partition, int]) -> None:
        self.starts |= starts

    def ids(self, topics: Collection[str]) -> Mapping[str, str]:
        return {topic: f"{self.facts.topic_id}/{len(self.facts.ends)}" for topic in topics if topic not in self.missing}


class Replica:
    """Takes every topic into the cut, unless it is told otherwise; notes what it is asked."""

    def __init__(self, beginning: str = "joined") -> None:
        self.beginning = beginning
        self.asked: dict[str, Any] = {}
        self.left: list[str] = []
        self.stopped: list[str] = []

    def begin(self, *_: object, **asked: Any) -> str:
        self.asked = asked
        return self.beginning

    def leave_cut(self, topic: str) -> None:
        self.left.append(topic)

    def stop_topic(self, topic: str, _reason: str) -> None:
        self.stopped.append(topic)


def mirrored(
    published: Mapping[str, StoredTopic],
    restored: Restored = NEVER,
    reader: Reader | None = None,
    replica: Replica | None = None,
    order: RebuildOrder | None = None,
    buffer: CutBuffer | None = None,
) -> MirroredTopics:
    return MirroredTopics(
        cast("RecordReader", reader or Reader()),
        cast("ReplicaWriter[Any]", replica or Replica()),
        buffer or CutBuffer(100, 1000, ZERO),
        restored,
        published,
        order or RebuildOrder(),
    )


def cut(offset: int) -> Cut:
    return Cut(Progress(ZERO, None, 0, SourceIdentity("1", 1, 1)), offset)


def test_a_topic_that_the_bridge_notes_before_its_definition_comes() -> None:
    """The bridge may note a topic long before it writes the first row. The sink forgot that note, and waited for ever
    for another one: a table was never exact until the sink started again."""
    topics = mirrored({"t": StoredTopic(OLD, 3)})
    topics.saw("t", NEW, 20)
    topics.take_up({"t": "public.t"}, 0.0)
    assert topics.unmet(cut(20)) == {"t"}
    assert topics.unmet(cut(21)) == frozenset()


def test_a_topic_that_the_bridge_has_not_noted_as_it_is() -> None:
    topics = mirrored({"t": StoredTopic(OLD, 3)})
    topics.take_up({"t": "public.t"}, 0.0)
    assert topics.unmet(cut(100)) == {"t"}
    topics.saw("t", OLD, 101)
    assert topics.unmet(cut(102)) == {"t"}
    topics.saw("t", NEW, 102)
    assert topics.unmet(cut(102)) == {"t"}
    assert topics.unmet(cut(103)) == frozenset()


def test_a_topic_that_lost_records_is_met_once_the_bridge_knows_of_all_of_them() -> None:
    reader = Reader(TopicFacts("new", (5, 7), (9, 9), 60.0, 60.0))
    topics = mirrored({"t": StoredTopic(KnownTopic("new", (5, 6), (9, 9)), 3)}, reader=reader)
    topics.take_up({"t": "public.t"}, 0.0)
    topics.saw("t", KnownTopic("new", (4, 7), (9, 9)), 10)
    assert topics.unmet(cut(99)) == {"t"}
    topics.saw("t", KnownTopic("new", (5, 7), (9, 9)), 11)
    topics.saw("t", KnownTopic("new", (5, 8), (9, 9)), 12)
    assert topics.unmet(cut(11)) == {"t"}
    assert topics.unmet(cut(12)) == frozenset()


def test_a_topic_that_the_bridge_never_noted_is_not_waited_for() -> None:
    topics = mirrored({})
    topics.take_up({"t": "public.t"}, 0.0)
    assert topics.unmet(cut(0)) == frozenset()


def test_a_recreated_topic_waits_for_a_cut_behind_the_note_that_the_bridge_has_made_meanwhile() -> None:
    restored = Restored(None, {("t", 0): 4}, {"t": "old"}, 0.0, {})
    topics = mirrored({"t": StoredTopic(NEW, 30)}, restored)
    topics.take_up({"t": "public.t"}, 0.0)
    assert topics.unmet(cut(30)) == {"t"}
    assert topics.unmet(cut(31)) == frozenset()


class TestWhereItBegins:
    FACTS = TopicFacts("id", (0, 0), (50, 60), 60.0, 3_600.0)
    STORED = Restored(None, {("t", 0): 40, ("t", 1): 41, ("u", 0): 9}, {"t": "id"}, 1_000.0, {})

    def begun(self, replica: Replica, restored: Restored = STORED, now: float = 1_010.0) -> Mapping[Partition, int]:
        reader = Reader(self.FACTS)
        mirrored({}, restored, reader, replica).take_up({"t": "public.t"}, now)
        return reader.starts

    @pytest.mark.parametrize("beginning", ["joined", "outside"])
    def test_it_goes_on_at_the_stored_offsets(self, beginning: str) -> None:
        replica = Replica(beginning)
        assert self.begun(replica) == {("t", 0): 40, ("t", 1): 41}
        assert replica.asked == {
            "ends": (50, 60),
            "resumes": True,
            "why_anew": "",
            "is_asked": False,
            "now": 1_010.0,
        }

    def test_what_the_replica_rebuilds_is_read_from_the_first_record(self) -> None:
        assert self.begun(Replica("anew")) == {("t", 0): 0, ("t", 1): 0}

    def test_a_stopped_table_is_not_read(self) -> None:
        assert self.begun(Replica("stopped")) == {}

    def test_a_topic_that_was_never_read_does_not_resume(self) -> None:
        replica = Replica()
        assert self.begun(replica, NEVER, now=1e9) == {("t", 0): 0, ("t", 1): 0}
        assert (replica.asked["resumes"], replica.asked["why_anew"]) == (False, "")

    def test_a_recreated_topic_says_so(self) -> None:
        replica = Replica("anew")
        self.begun(replica, self.STORED._replace(topic_ids={"t": "another"}))
        assert "recreated" in replica.asked["why_anew"]

    @pytest.mark.parametrize(("away_s", "is_too_long"), [(60 + 3_600 - 10 - 1, False), (60 + 3_600 - 10, True)])
    def test_an_absence_longer_than_tombstones_are_kept_says_so(self, away_s: float, is_too_long: bool) -> None:
        replica = Replica()
        self.begun(replica, now=1_000.0 + away_s)
        assert ("delete.retention.ms" in replica.asked["why_anew"]) is is_too_long

    def test_a_table_outside_the_cut_was_last_read_when_it_says(self) -> None:
        replica = Replica()
        self.begun(replica, self.STORED._replace(read_since={"t": 1.0}), now=1.0 + 3_650)
        assert "delete.retention.ms" in replica.asked["why_anew"]

    def test_the_operator_asks_for_a_table_by_its_name_in_the_source(self) -> None:
        for order, is_asked in (
            (RebuildOrder(["public.t"]), True),
            (RebuildOrder(["t"]), False),
            (RebuildOrder(everything=True), True),
        ):
            replica = Replica()
            mirrored({}, replica=replica, order=order).take_up({"t": "public.t"}, 0.0)
            assert replica.asked["is_asked"] is is_asked


class TestOverdue:
    """Tombstones are kept for 60 + 3,600 - 10 s."""

    LONGEST = 3_650.0

    def topics(self, beginning: str, buffer: CutBuffer, replica: Replica | None = None) -> MirroredTopics:
        restored = Restored(None, {("t", 0): 0}, {"t": "new"}, 0.0, {"t": 1_000.0})
        reader = Reader(TopicFacts("new", (0,), (0,), 60.0, 3_600.0))
        topics = mirrored({}, restored, reader, replica or Replica(beginning), buffer=buffer)
        topics.take_up({"t": "public.t"}, 1_010.0)
        return topics

    @pytest.mark.parametrize(("late_s", "is_overdue"), [(-1.0, False), (0.0, True)])
    def test_a_topic_of_the_cut_counts_from_when_the_cut_was_caught_up(self, late_s: float, is_overdue: bool) -> None:
        topics = self.topics("joined", CutBuffer(100, 1_000, ZERO))
        ends(is_overdue, topics, 5_000.0, (), 5_000.0 + self.LONGEST + late_s)

    @pytest.mark.parametrize(("beginning", "since"), [("outside", 1_000.0), ("anew", 1_010.0)])
    @pytest.mark.parametrize(("late_s", "is_overdue"), [(-1.0, False), (0.0, True)])
    def test_a_topic_that_joins_counts_from_when_it_was_begun(
        self, beginning: str, since: float, late_s: float, is_overdue: bool
    ) -> None:
        topics = self.topics(beginning, CutBuffer(100, 1_000, ZERO))
        ends(is_overdue, topics, 5_000.0, ["t"], since + self.LONGEST + late_s)

    def test_a_topic_outside_does_not_matter_before_it_joins(self) -> None:
        topics = self.topics("outside", CutBuffer(100, 1_000, ZERO))
        ends(False, topics, 5_000.0, (), 1e9)

    def test_a_topic_that_left_the_cut_counts_from_then_on(self) -> None:
        replica, buffer = Replica(), CutBuffer(100, 1_000, ZERO)
        topics = self.topics("joined", buffer, replica)
        topics.leave_cut(["t"], 7_000.0)
        assert replica.left == ["t"]
        assert buffer.outside == {"t"}
        ends(False, topics, 0.0, ["t"], 7_000.0 + self.LONGEST - 1)
        ends(True, topics, 0.0, ["t"], 7_000.0 + self.LONGEST)

    def test_each_topic_is_looked_at(self) -> None:
        replica = Replica("outside")
        topics = self.topics("outside", CutBuffer(100, 1_000, ZERO), replica)
        replica.beginning = "joined"
        topics.take_up({"u": "public.u"}, 1_010.0)
        ends(True, topics, 0.0, (), self.LONGEST)


def ends(is_overdue: bool, topics: MirroredTopics, joined: float, joining: Collection[str], now: float) -> None:
    if is_overdue:
        with pytest.raises(BeginAnew):
            topics.refuse_overdue(joined, joining, now)
    else:
        topics.refuse_overdue(joined, joining, now)


class TestLook:
    @pytest.fixture
    def clock(self, monkeypatch: pytest.MonkeyPatch) -> list[float]:
        now = [100.0]
        monkeypatch.setattr(subject, "time", SimpleNamespace(monotonic=lambda: now[0]))
        return now

    def test_topics_are_looked_at_every_five_seconds(self, clock: list[float]) -> None:
        reader = Reader()
        topics = mirrored({}, reader=reader)
        topics.take_up({"t": "public.t"}, 0.0)
        reader.missing.add("t")
        clock[0] += 4.9
        topics.look()
        reader.missing.clear()
        clock[0] += 0.1
        topics.look()
        reader.missing.add("t")
        clock[0] += 4.9
        topics.look()
        clock[0] += 0.1
        with pytest.raises(BeginAnew):
            topics.look()

    def test_partitions_that_were_added_and_a_new_id_are_changes(self, clock: list[float]) -> None:
        for facts in (TopicFacts("new", (0, 0), (0, 0), 60.0, 60.0), TopicFacts("newer", (0,), (0,), 60.0, 60.0)):
            reader = Reader()
            topics = mirrored({}, reader=reader)
            topics.take_up({"t": "public.t", "u": "public.u"}, 0.0)
            reader.facts = facts
            clock[0] += 5.0
            with pytest.raises(BeginAnew), capture_logs() as said:
                topics.look()
            assert said[0]["topics"] == ["t", "u"]

    def test_a_topic_that_was_missing_and_exists_is_a_change(self, clock: list[float]) -> None:
        reader, replica = Reader(), Replica()
        reader.missing.add("t")
        topics = mirrored({}, reader=reader, replica=replica)
        topics.take_up({"t": "public.t", "u": "public.u"}, 0.0)
        assert replica.stopped == ["t"]
        assert set(topics.watched) == {"u"}
        clock[0] += 5.0
        topics.look()
        reader.missing.clear()
        clock[0] += 5.0
        with pytest.raises(BeginAnew):
            topics.look()


class TestAtHome:
    KEY = b"k"

    def record(self, number: int, value: bytes | None = b"{}") -> StoredRecord:
        return StoredRecord("t", number, 0, self.KEY, value, b"")

    def test_a_partition_that_was_added_later_holds_no_keys(self) -> None:
        """The bridge goes on with the partitions that it knows, until it has noted more."""
        one, three = KnownTopic("id", (0,), (0,)), KnownTopic("id", (0, 0, 0), (0, 0, 0))
        reader = Reader(TopicFacts("id", (0, 0, 0), (0, 0, 0), 60.0, 60.0))
        topics = mirrored({"t": StoredTopic(one, 3)}, reader=reader)
        topics.take_up({"t": "public.t"}, 0.0)
        number = partition_of(self.KEY, 3)
        assert number > 0, "else it would be at home in both cases"
        assert topics.at_home([self.record(0)]) == [self.record(0)]
        topics.saw("t", three, 9)
        assert topics.at_home([self.record(0), self.record(number)]) == [self.record(number)]
        topics.saw("t", KnownTopic("another", (0,), (0,)), 9)
        assert topics.at_home([self.record(0), self.record(number)]) == [self.record(number)]

    def test_without_a_note_all_partitions_hold_keys(self) -> None:
        reader = Reader(TopicFacts("id", (0, 0, 0), (0, 0, 0), 60.0, 60.0))
        topics = mirrored({}, reader=reader)
        topics.take_up({"t": "public.t"}, 0.0)
        assert topics.at_home([self.record(0)]) == []

    def test_another_programs_rows_are_told_once_and_the_tombstones_of_a_repair_never(self) -> None:
        reader = Reader(TopicFacts("id", (0, 0, 0), (0, 0, 0), 60.0, 60.0))
        topics = mirrored({}, reader=reader)
        topics.take_up({"t": "public.t"}, 0.0)
        with capture_logs() as said:
            topics.at_home([self.record(0, None)])
            assert said == []
            for _ in range(2):
                topics.at_home([self.record(0)])
        assert [(each["topic"], each["partition"]) for each in said] == [("t", 0)]


def test_the_shortest_compaction_lag_of_all_topics_counts() -> None:
    reader = Reader()
    topics = mirrored({}, reader=reader)
    assert topics.compaction_lag_s == 0.0
    topics.take_up({"t": "public.t"}, 0.0)
    reader.facts = reader.facts._replace(compaction_lag_s=20.0)
    topics.take_up({"u": "public.u"}, 0.0)
    reader.facts = reader.facts._replace(compaction_lag_s=40.0)
    topics.take_up({"v": "public.v"}, 0.0)
    assert topics.compaction_lag_s == 20.0


class TestRebuildOrder:
    def test_an_order_is_carried_out_once_except_for_tables_that_are_held(self) -> None:
        order = RebuildOrder(["s.a", "s.b"])
        order.close(["s.a", "s.b", "s.c"], ["s.b", "s.c"])
        assert [order.names(each) for each in ("s.a", "s.b", "s.c")] == [False, True, False]

    def test_so_is_one_for_everything(self) -> None:
        order = RebuildOrder(everything=True)
        order.close(["s.a", "s.b"], ["s.b"])
        assert [order.names(each) for each in ("s.a", "s.b", "s.c")] == [False, True, False]

    def test_all_tables_that_nobody_publishes_are_named(self) -> None:
        with pytest.raises(ConfigError, match=r"names s\.x, s\.y") as caught:
            RebuildOrder(["s.y", "s.a", "s.x"]).close(["s.b", "s.a"])
        assert "s.a, s.b" in caught.value.remedy
