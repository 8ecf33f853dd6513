"""What a session of the sink gives to the replica: which rows in which cut, and what it says of the tables there."""

from __future__ import annotations

from dataclasses import replace

import pytest
from structlog.testing import capture_logs

from cdc.base.errors import ConfigError, ReplicaRefused
from cdc.base.lsn import LSN
from cdc.contract.known_topic import KnownTopic
from cdc.contract.ports import BeginAnew
from cdc.contract.record import Lead, Position, SourceIdentity
from cdc.sink.apply.topics import RebuildOrder
from tests.unit.sink.apply.mirror import NOW, OTHER, PROGRESS, SCHEMAS, TOPIC, Mirror, at, backfill


class TestCuts:
    def test_rows_are_applied_with_the_progress_that_covers_them_and_not_before(self, mirror: Mirror) -> None:
        topics = mirror.topics
        topics.create()
        topics.row(10, b"a")
        topics.progress(at(20))
        topics.row(25, b"b")
        topics.events += [lambda: topics.progress(at(30)), lambda: None]
        mirror.run()
        first, second = mirror.replica.commits[0], mirror.replica.commits[-1]
        assert (first.lsn, second.lsn) == (20, 30)
        assert mirror.replica.journal[:2] == [(TOPIC, ((b"a", b"{}"),)), first]
        assert mirror.replica.rows() == [(b"a", b"{}"), (b"b", b"{}")]
        assert first.offsets == {(TOPIC, 0): 1, (PROGRESS, 0): 0}, "the second row is to be read again"
        assert second.offsets == {(TOPIC, 0): 2, (PROGRESS, 0): 1}
        assert first.standing.is_true
        assert mirror.replica.source == at(0).source

    def test_each_cut_is_told_with_its_rows_and_tables(self, mirror: Mirror) -> None:
        topics = mirror.topics
        topics.create()
        topics.create(OTHER)
        topics.row(10, b"a")
        topics.row(11, b"b")
        topics.row(12, b"c", topic=OTHER)
        topics.progress(at(20))
        mirror.run()
        report = mirror.reports[0]
        assert (report.progress.lsn, report.is_true) == (20, True)
        assert dict(report.rows) == {TOPIC: 2, OTHER: 1}
        assert set(report.tables) == {TOPIC, OTHER}

    def test_the_next_session_reads_on_where_the_cut_was(self, mirror: Mirror) -> None:
        topics = mirror.topics
        topics.create()
        topics.row(10, b"a")
        topics.progress(at(20))
        topics.row(25, b"b")
        mirror.run()
        mirror.restart()
        topics.progress(at(30))
        mirror.run()
        assert mirror.replica.rows() == [(b"b", b"{}")]
        assert mirror.replica.begun[TOPIC]["resumes"] is True
        assert mirror.replica.begun[TOPIC]["why_anew"] == ""

    def test_progress_is_read_on_from_the_record_of_the_cut(self, mirror: Mirror) -> None:
        topics = mirror.topics
        topics.create()
        topics.row(5)
        for lsn in (10, 11, 12):
            topics.progress(at(lsn))
        mirror.run()
        assert topics.starts[PROGRESS, 0] == 0
        mirror.restart()
        mirror.run()
        assert topics.starts[PROGRESS, 0] == 2
        assert mirror.replica.commits[-1].lsn == 12

    def test_in_the_middle_of_a_transaction_there_is_no_cut(self, mirror: Mirror) -> None:
        topics = mirror.topics
        topics.create()
        topics.progress(at(10))
        topics.row(20)
        topics.progress(at(10, partial=Position(LSN(20), 1)))
        mirror.run()
        assert {each.lsn for each in mirror.replica.commits} == {10}
        assert mirror.replica.rows() == []

    def test_a_quiet_cut_is_recorded_again_after_half_a_minute(self, mirror: Mirror) -> None:
        topics = mirror.topics
        topics.create()
        topics.progress(at(10))
        mirror.clock.patience = 1_000
        mirror.run()
        cuts = [each.lsn for each in mirror.replica.commits]
        assert cuts == [10] * len(cuts)
        assert 3 <= len(cuts) <= 4, "100 s"
        caught_up = [each.standing.caught_up_at for each in mirror.replica.commits]
        assert caught_up == sorted(caught_up)
        assert caught_up[-1] > NOW + 60

    def test_records_of_other_keys_in_the_progress_topic_do_not_matter(self, mirror: Mirror) -> None:
        topics = mirror.topics
        topics.create()
        topics.write(PROGRESS, b'{"stream":"another"}', b"not ours to read")
        topics.write(PROGRESS, b'{"request":"r"}', None)
        topics.progress(at(10))
        mirror.run()
        assert mirror.replica.commits[0].lsn == 10

    def test_another_database_is_refused_and_another_timeline_is_not(self, mirror: Mirror) -> None:
        topics = mirror.topics
        topics.create()
        topics.progress(at(10))
        topics.events += [
            lambda: topics.progress(replace(at(20), source=SourceIdentity("7", 2, 5))),
            lambda: topics.progress(replace(at(30), source=SourceIdentity("7", 2, 6))),
            lambda: None,
        ]
        with pytest.raises(ReplicaRefused, match=r"database 5 of system 7.*now come from database 6 of system 7"):
            mirror.run()
        assert mirror.replica.commits[-1].lsn == 20

    def test_the_replica_of_another_system_is_refused_at_once(self, mirror: Mirror) -> None:
        topics = mirror.topics
        topics.create()
        topics.progress(at(10))
        mirror.run()
        mirror.restart(progress=replace(at(10), source=SourceIdentity("8", 1, 5)))
        with pytest.raises(ReplicaRefused, match="of system 8"):
            mirror.run()


class TestBackfills:
    def test_a_table_is_loading_until_a_cut_has_the_record_that_says_it_is_whole(self, mirror: Mirror) -> None:
        topics = mirror.topics
        topics.create()
        topics.backfill(backfill(whole=False))
        topics.progress(at(10))
        topics.events += [lambda: topics.backfill(backfill(whole=True, lsn=15)), lambda: topics.progress(at(20))]
        mirror.run()
        loading = {each.lsn: set(each.standing.loading) for each in mirror.replica.commits}
        assert loading[10] == {TOPIC}
        assert loading[20] == set()

    def test_a_table_that_was_exact_stays_so_although_its_backfill_is_read_again(self, mirror: Mirror) -> None:
        topics = mirror.topics
        topics.create()
        topics.progress(at(10))
        mirror.run()
        mirror.replica.state[TOPIC] = mirror.replica.state[TOPIC]._replace(state="exact")
        mirror.restart()
        topics.backfill(backfill(whole=False))
        topics.backfill(backfill(whole=True, lsn=15))
        topics.progress(at(20))
        mirror.run()
        assert [set(each.standing.loading) for each in mirror.replica.commits if each.lsn == 20][-1] == set()

    def test_until_a_cut_has_the_record_that_says_otherwise_an_exact_table_stays_exact(self, mirror: Mirror) -> None:
        topics = mirror.topics
        topics.create()
        topics.progress(at(10))
        mirror.run()
        for state, loading in (("exact", [set(), {TOPIC}]), ("loading", [{TOPIC}, {TOPIC}])):
            mirror.replica.state[TOPIC] = mirror.replica.state[TOPIC]._replace(state=state)
            mirror.restart(progress=at(10), offsets={(TOPIC, 0): 0, (PROGRESS, 0): 0})
            topics.logs[PROGRESS, 0] = []
            topics.batch = 1  # so that each cut lies at the progress that was seen before its fence
            topics.progress(at(20))
            topics.backfill(backfill(whole=False))
            topics.progress(at(30))
            mirror.run()
            found = {each.lsn: set(each.standing.loading) for each in mirror.replica.commits}
            assert [found[20], found[30]] == loading

    def test_a_definition_that_empties_a_table_makes_it_load_until_the_bridge_has_said_so(self, mirror: Mirror) -> None:
        topics = mirror.topics
        topics.create()
        topics.progress(at(10))

        def begin_anew() -> None:
            mirror.replica.emptied = [TOPIC]
            topics.define()
            topics.backfill(backfill(whole=False))
            topics.progress(at(20))

        topics.events += [begin_anew, lambda: topics.backfill(backfill(whole=True, lsn=25)), lambda: None]
        topics.events += [lambda: topics.progress(at(30)), lambda: None]
        mirror.run()
        loading = {each.lsn: set(each.standing.loading) for each in mirror.replica.commits}
        assert loading == {10: set(), 20: {TOPIC}, 30: set()}

    def test_a_loading_table_far_from_its_end_does_not_hold_up_the_others(self, mirror: Mirror) -> None:
        topics = mirror.topics
        topics.create()
        topics.create(OTHER)
        topics.backfill(backfill(whole=False))
        topics.progress(at(10))
        topics.batch = 40

        def load() -> None:
            for _ in range(10_100):
                topics.row(10)
            topics.row(15, topic=OTHER)
            topics.progress(at(20))

        topics.events += [load]
        mirror.run()
        assert mirror.replica.left == [TOPIC]
        outside = [each for each in mirror.replica.commits if TOPIC in each.standing.outside]
        assert outside[0].lsn == 20
        assert mirror.replica.rows(OTHER) == [(b"k", b"{}")]
        assert len(mirror.replica.rows()) == 10_100
        assert TOPIC not in mirror.replica.commits[-1].standing.outside, "it has joined again"
        assert [set(each.standing.joining) for each in mirror.replica.commits].count({TOPIC}) == 1


class TestKnownTopics:
    def test_a_recreated_topic_loads_until_the_bridge_has_noted_it(self, mirror: Mirror) -> None:
        topics = mirror.topics
        topics.create()
        topics.known(TOPIC, KnownTopic("former", (0,), (0,)))
        topics.progress(at(10))
        topics.events += [lambda: topics.known(TOPIC, KnownTopic("id", (0,), (0,))), lambda: topics.progress(at(20))]
        mirror.run()
        loading = {each.lsn: set(each.standing.loading) for each in mirror.replica.commits}
        assert loading[10] == {TOPIC}
        assert loading[20] == set()

    def test_rows_in_partitions_where_they_do_not_belong_are_left_out(self, mirror: Mirror) -> None:
        topics = mirror.topics
        topics.create(count=2)
        topics.known(TOPIC, KnownTopic("id", (0, 0), (0, 0)))
        topics.row(5, b"k", number=0)
        topics.row(6, b"k", number=1)
        topics.progress(at(10))
        mirror.run()
        assert len(mirror.replica.rows()) == 1

    def test_a_changed_topic_ends_the_session(self, mirror: Mirror) -> None:
        topics = mirror.topics
        topics.create()
        topics.progress(at(10))
        mirror.clock.patience = 60  # longer than it takes to look again
        topics.events += [lambda: topics.facts.update({TOPIC: topics.look_at([TOPIC])[TOPIC]._replace(topic_id="new")})]
        topics.events += [lambda: None]
        with pytest.raises(BeginAnew):
            mirror.run()

    def test_another_progress_topic_is_read_from_its_beginning(self, mirror: Mirror) -> None:
        topics = mirror.topics
        topics.create()
        for lsn in (10, 11, 12):
            topics.progress(at(lsn))
        mirror.run()
        assert mirror.replica.known == {PROGRESS: "id"}
        mirror.restart()
        assert mirror.replica.restored.offsets[PROGRESS, 0] == 2
        topics.facts[PROGRESS] = topics.look_at([PROGRESS])[PROGRESS]._replace(topic_id="new")
        topics.logs[PROGRESS, 0] = []
        topics.progress(at(30))
        mirror.run()
        assert mirror.replica.known == {PROGRESS: "new"}
        assert mirror.replica.commits[-1].lsn == 30
        assert mirror.replica.commits[-1].offsets[PROGRESS, 0] == 0

    def test_a_progress_topic_that_is_gone_ends_the_session(
        self, mirror: Mirror, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        mirror.topics.create()
        mirror.topics.progress(at(10))
        monkeypatch.setattr(mirror.topics, "look_at", lambda _: {})
        with pytest.raises(BeginAnew):
            mirror.run()


class TestDefinitions:
    def test_a_table_that_comes_later_is_read_from_its_first_record(self, mirror: Mirror) -> None:
        topics = mirror.topics
        topics.create()
        topics.progress(at(10))

        def create() -> None:
            topics.create(OTHER)
            topics.row(15, topic=OTHER)
            topics.progress(at(20))

        topics.events += [create]
        mirror.run()
        assert mirror.replica.rows(OTHER) == [(b"k", b"{}")]
        assert mirror.replica.commits[-1].offsets[OTHER, 0] == 1

    def test_a_definition_that_was_deleted_says_nothing(self, mirror: Mirror) -> None:
        topics = mirror.topics
        topics.create()
        topics.write(SCHEMAS, b'{"schema":"0"}', None)
        topics.progress(at(10))
        mirror.run()
        assert set(mirror.replica.state) == {TOPIC}

    def test_a_definition_that_stops_a_table_ends_the_session(self, mirror: Mirror) -> None:
        """Rows of it may be in memory."""
        topics = mirror.topics
        topics.create()
        topics.progress(at(10))

        def stop() -> None:
            mirror.replica.stop_topic(TOPIC, "its type")
            topics.create(OTHER)

        topics.events += [stop, lambda: None]
        with pytest.raises(BeginAnew):
            mirror.run()

    def test_a_stopped_table_is_told_once(self, mirror: Mirror) -> None:
        topics = mirror.topics
        topics.create()
        topics.create(OTHER)
        mirror.replica.beginnings[OTHER] = "stopped"
        topics.progress(at(10))
        topics.events += [lambda: topics.define(TOPIC), lambda: None]
        with capture_logs() as said:
            mirror.run()
        (line,) = [each for each in said if each["event"] == "table is stopped"]
        assert (line["table"], line["topic"], line["reason"]) == ("public.u", OTHER, "stopped")

    def test_a_table_without_a_topic_is_stopped_and_the_others_go_on(self, mirror: Mirror) -> None:
        topics = mirror.topics
        topics.create()
        topics.create(OTHER)
        del topics.logs[OTHER, 0]
        topics.row(5)
        topics.progress(at(10))
        mirror.run()
        assert mirror.replica.stopped == {OTHER: f"topic '{OTHER}' does not exist"}
        assert mirror.replica.rows() == [(b"k", b"{}")]

    def test_it_waits_for_the_bridge_to_create_its_topics(
        self, mirror: Mirror, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        topics = mirror.topics
        logs, topics.logs = topics.logs, {}
        waited: list[float] = []

        def wait(seconds: float) -> bool:
            waited.append(seconds)
            mirror.clock.seconds += seconds
            if len(waited) == 20:
                topics.logs = logs
                topics.create()
                topics.progress(at(10))
            return False

        monkeypatch.setattr(mirror.stop, "wait", wait)
        mirror.run()
        assert mirror.replica.commits[-1].lsn == 10
        assert len(waited) == 20

    @pytest.mark.parametrize("has_topics", [False, True])
    def test_told_to_stop_while_it_waits_it_ends_quietly(
        self, mirror: Mirror, has_topics: bool, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """It warned of a topic that is gone, which had never been there."""
        if not has_topics:
            mirror.topics.logs = {}
        monkeypatch.setattr(mirror.stop, "wait", lambda _: True)
        mirror.run()
        assert mirror.replica.journal == []
        assert mirror.replica.source is None
        assert mirror.clock.seconds == 0, "nothing was read"


class TestLargeTransactions:
    """Memory holds 50 records here."""

    def test_what_is_larger_than_memory_is_written_in_parts_and_committed_once(self, mirror: Mirror) -> None:
        topics = mirror.topics
        topics.create()
        topics.batch = 20
        topics.progress(at(10))
        rows = [(b"%d" % number, b"{}") for number in range(200)]

        def write() -> None:
            topics.progress(at(10, partial=Position(LSN(20), 200)))
            for key, value in rows:
                topics.row(20, key, value)
            topics.progress(at(30))

        topics.events += [write]
        mirror.run()
        assert mirror.replica.rows() == rows
        places = [place for place, each in enumerate(mirror.replica.journal) if each[0] == TOPIC]
        assert len(places) > 2
        assert places == [*range(places[0], places[-1] + 1)], "no commit in between"
        commit = mirror.replica.commits[-1]
        assert (commit.lsn, commit.offsets[TOPIC, 0]) == (30, 200)
        assert {TOPIC: 200} in [dict(each.rows) for each in mirror.reports]

    def test_definitions_are_read_before_a_part_is_written(self, mirror: Mirror) -> None:
        topics = mirror.topics
        topics.create()
        topics.batch = 20
        topics.progress(at(10))

        def write() -> None:
            topics.progress(at(10, partial=Position(LSN(20), 200)))
            for number in range(200):
                topics.row(20, b"%d" % number)
            topics.create(OTHER)
            topics.row(20, topic=OTHER)
            topics.progress(at(30))

        topics.events += [write]
        mirror.run()
        assert len(mirror.replica.rows()) == 200
        assert mirror.replica.rows(OTHER) == [(b"k", b"{}")]

    def test_a_lock_that_is_gone_does_not_undo_a_part(self, mirror: Mirror) -> None:
        topics = mirror.topics
        topics.create()
        topics.batch = 20
        topics.progress(at(10))

        def write() -> None:
            topics.progress(at(10, partial=Position(LSN(20), 200)))
            for number in range(200):
                topics.row(20, b"%d" % number)

        def end() -> None:
            mirror.replica.returns = True
            topics.progress(at(30))

        topics.events += [write, end, lambda: None]
        with pytest.raises(BeginAnew):
            mirror.run()
        assert mirror.replica.commits[-1].lsn == 30, "first the cut"
        assert len(mirror.replica.rows()) == 200


class TestFullMemory:
    """Memory holds 50 records here."""

    def test_rows_ahead_of_the_progress_are_paused_until_more_is_published(self, mirror: Mirror) -> None:
        topics = mirror.topics
        topics.create()
        topics.batch = 60
        topics.progress(at(10))
        rows = [(b"%d" % number, b"{}") for number in range(180)]

        def write() -> None:
            for key, value in rows:
                topics.row(20, key, value)

        def pauses() -> None:
            assert topics.held == {(TOPIC, 0)}
            assert topics.at[TOPIC, 0] < len(rows)
            topics.progress(at(10, partial=Position(LSN(20), 200)))

        topics.events += [write, pauses, lambda: topics.progress(at(30))]
        mirror.run()
        assert mirror.replica.rows() == rows
        assert mirror.replica.commits[-1].lsn == 30
        assert topics.held == frozenset()

    def test_while_there_is_room_nothing_is_paused(self, mirror: Mirror) -> None:
        topics = mirror.topics
        topics.create()
        topics.row(10, b"a")
        topics.progress(at(20))
        topics.row(25, b"b")
        topics.events += [lambda: topics.progress(at(30)), lambda: None]
        mirror.run()
        assert len(mirror.replica.commits) > 1
        assert set(topics.holds) == {frozenset()}


class TestForeign:
    def test_a_record_beyond_everything_that_was_published_is_left_out_after_a_while(self, mirror: Mirror) -> None:
        topics = mirror.topics
        topics.create()
        topics.create(OTHER)
        topics.progress(at(10))
        mirror.clock.patience = 60

        def intrude() -> None:
            topics.row(1_000_000, b"foreign")
            topics.row(15, b"ours")
            topics.row(15, topic=OTHER)
            topics.progress(at(20))

        topics.events += [intrude, *(lambda lsn=lsn: topics.progress(at(lsn)) for lsn in (30, 40, 50, 60))]
        with capture_logs() as said:
            mirror.run()
        (line,) = [each for each in said if each["log_level"] == "error"]
        assert (line["topic"], line["partition"], line["offset"], line["key"]) == (TOPIC, 0, 0, "foreign")
        assert "lsn=0/F4240" in line["header"]
        assert mirror.replica.left == [TOPIC]
        assert mirror.replica.rows(OTHER) == [(b"k", b"{}")]
        assert mirror.replica.rows() == [(b"ours", b"{}")]
        last = mirror.replica.commits[-1]
        assert last.standing.outside == {TOPIC}
        assert last.offsets[TOPIC, 0] == 0, "the foreign one is read again by the next session"

    def test_a_row_ahead_of_the_progress_is_ours(self, mirror: Mirror) -> None:
        topics = mirror.topics
        topics.create()
        topics.progress(at(10, Lead(LSN(10), True)))
        topics.events += [
            lambda: topics.row(15),
            lambda: topics.progress(at(12, Lead(LSN(15), True))),
            lambda: topics.progress(at(20, Lead(LSN(20), True))),
        ]
        mirror.run()
        assert mirror.replica.left == []
        assert mirror.replica.rows() == [(b"k", b"{}")]
        assert [PROGRESS] in topics.asked, "rows are not in Kafka transactions, so their ends are high watermarks"


class TestLocks:
    def test_a_table_whose_lock_is_gone_is_taken_up_by_another_session(self, mirror: Mirror) -> None:
        topics = mirror.topics
        topics.create()
        topics.progress(at(10))
        topics.events += [lambda: setattr(mirror.replica, "returns", True), lambda: None]
        with pytest.raises(BeginAnew):
            mirror.run()

    def test_a_held_table_stays_in_the_order_to_rebuild(self, mirror: Mirror) -> None:
        topics = mirror.topics
        topics.create()
        topics.create(OTHER)
        topics.progress(at(10))
        mirror.order = RebuildOrder(["public.t", "public.u"])
        mirror.run()
        assert mirror.replica.begun[TOPIC]["is_asked"] is True
        assert not mirror.order.names("public.t")
        mirror.restart()
        mirror.order = RebuildOrder(["public.t", "public.u"])
        mirror.replica.state[TOPIC] = mirror.replica.state[TOPIC]._replace(reason="held")
        mirror.run()
        assert mirror.order.names("public.t")
        assert not mirror.order.names("public.u")

    def test_an_order_that_names_no_table_is_refused(self, mirror: Mirror) -> None:
        mirror.topics.create()
        mirror.topics.progress(at(10))
        mirror.order = RebuildOrder(["public.nobody"])
        with pytest.raises(ConfigError, match=r"names public\.nobody") as caught:
            mirror.run()
        assert "public.t" in caught.value.remedy


class TestWhetherTrue:
    def test_a_sink_that_is_far_behind_catches_up(self, mirror: Mirror) -> None:
        """The cleaner may have erased what its cuts need: it applies rows, and says that they are not what was."""
        topics = mirror.topics
        topics.create()
        topics.row(5)
        topics.progress(at(10))
        mirror.run()
        mirror.restart(caught_up_at=NOW - 10_000)
        mirror.topics.facts[TOPIC] = topics.look_at([TOPIC])[TOPIC]._replace(compaction_lag_s=20.0)
        topics.batch = 1
        for lsn in range(20, 220):  # more than memory holds
            topics.row(lsn)
            if lsn % 10 == 9:
                topics.progress(at(lsn + 1))
        mirror.run()
        *catching_up, last = mirror.replica.commits
        assert (last.lsn, last.standing.is_true) == (220, True)
        assert len(catching_up) > 2
        assert not any(each.standing.is_true for each in catching_up)
        assert len(mirror.replica.rows()) == 200

    def test_no_topic_joins_a_cut_that_is_not_true(self, mirror: Mirror) -> None:
        topics = mirror.topics
        topics.create()
        topics.create(OTHER)
        topics.row(5)
        topics.progress(at(10))
        mirror.run()
        mirror.restart(caught_up_at=NOW - 10_000)
        mirror.replica.beginnings[OTHER] = "outside"
        topics.facts[TOPIC] = topics.look_at([TOPIC])[TOPIC]._replace(compaction_lag_s=20.0)
        topics.batch = 1
        for lsn in range(20, 220):  # more than memory holds
            topics.row(lsn)
            if lsn % 10 == 9:
                topics.progress(at(lsn + 1))
        mirror.run()
        joining = [(each.standing.is_true, set(each.standing.joining)) for each in mirror.replica.commits]
        assert {is_true for is_true, topics in joining if topics} == {True}
        assert sum(len(topics) for _, topics in joining) == 1
        assert [is_true for is_true, _ in joining].count(False) > 2
