"""The judgement alone: which facts mean that changes may be missing, and in which words it is said."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from cdc.base.errors import DecodeError
from cdc.base.lsn import LSN
from cdc.bridge.capture.timeline import parse_history
from cdc.contract.gaps import (
    PublicationGap,
    SlotGap,
    TopicGap,
    foreign_source,
    forgotten_progress,
    lost_before_the_first_progress,
    publication_gaps,
    slot_before_publication,
    stream_gap,
    topic_gaps,
)
from cdc.contract.known_topic import KnownTopic, known_topic_key, known_topic_value, named_topic, parse_known_topic
from cdc.contract.membership import Membership, member_table, membership_key, membership_value, parse_membership
from cdc.contract.progress import stream_key
from cdc.contract.record import Position, Progress, SourceIdentity
from cdc.contract.slot_state import SlotState

SOURCE = SourceIdentity("7710", 1, 5)
STORED = Progress(LSN(1000), None, 1, SOURCE)
SLOT = SlotState(
    name="cdc_shop",
    plugin="pgoutput",
    database="shop",
    active=False,
    active_pid=None,
    confirmed_flush_lsn=LSN(900),
    restart_lsn=LSN(800),
    wal_status="reserved",
    safe_wal_size=None,
    retained_bytes=0,
    lag_bytes=0,
    invalidation_reason=None,
)
TOPIC = KnownTopic("id-1", (0, 0), (10, 20))


def found(**facts: Any) -> SlotGap | None:
    usual: dict[str, Any] = {
        "name": "cdc_shop",
        "stored": STORED,
        "slot": SLOT,
        "source": SOURCE,
        "wal_end": LSN(2000),
        "left_at": lambda: LSN(1000),
    }
    return stream_gap(**{**usual, **facts})


@pytest.mark.parametrize(
    "facts",
    [
        {},
        {"slot": replace(SLOT, confirmed_flush_lsn=LSN(1000))},
        {"wal_end": LSN(1000)},
        {"wal_end": None},
        {"source": replace(SOURCE, timeline=2)},
        {"source": replace(SOURCE, timeline=2), "stored": replace(STORED, partial=Position(LSN(999), 3))},
        {"source": replace(SOURCE, timeline=2), "newest": LSN(1500), "left_at": lambda: LSN(1501)},
        {"source": replace(SOURCE, timeline=2), "newest": LSN(900)},
        {"newest": LSN(2000)},
    ],
)
def test_nothing_is_missing(facts: dict[str, Any]) -> None:
    assert found(**facts) is None


@pytest.mark.parametrize(
    ("facts", "words"),
    [
        ({"slot": None}, "slot 'cdc_shop' is gone, but topics were published up to 0/3E8"),
        (
            {"slot": None, "source": replace(SOURCE, timeline=2)},
            "the server was promoted (timeline 1 → 2), and its slots did not follow",
        ),
        ({"slot": replace(SLOT, wal_status="lost")}, "is lost (lost): changes since 0/3E8 are missing"),
        (
            {"slot": replace(SLOT, invalidation_reason="idle_timeout")},
            "is lost (idle_timeout: nobody read from it for longer than idle_replication_slot_timeout)",
        ),
        ({"slot": replace(SLOT, invalidation_reason="something_new")}, "is lost (something_new): "),
        ({"slot": replace(SLOT, confirmed_flush_lsn=LSN(1001))}, "was confirmed up to 0/3E9, beyond what is published"),
        ({"wal_end": LSN(999)}, "the server's WAL ends at 0/3E7, before 0/3E8, which is published: it was restored"),
        (
            {"source": replace(SOURCE, timeline=3), "left_at": lambda: LSN(999)},
            "the server is on timeline 3, which left timeline 1 at 0/3E7, and 0/3E8 is published",
        ),
        (
            {"source": replace(SOURCE, timeline=3), "left_at": lambda: None},
            "on timeline 3, which does not descend from timeline 1, and 0/3E8 is published",
        ),
        (
            {"source": replace(SOURCE, timeline=2), "stored": replace(STORED, partial=Position(LSN(1000), 3))},
            "left timeline 1 at 0/3E8, and 0/3E9 is published",
        ),
        # rows were ahead of the progress
        (
            {"source": replace(SOURCE, timeline=2), "newest": LSN(1500), "left_at": lambda: LSN(1500)},
            "left timeline 1 at 0/5DC, and 0/5DD is published",
        ),
        ({"newest": LSN(2001)}, "the server's WAL ends at 0/7D0, before 0/7D1, which is published"),
    ],
)
def test_the_stream_does_not_connect(facts: dict[str, Any], words: str) -> None:
    gap = found(**facts)
    assert gap is not None
    assert words in gap.message
    assert "CDC_SOURCE__ON_GAP=rebackfill cdc run" in gap.remedy


def test_only_a_slot_that_is_gone_did_not_follow_a_promotion() -> None:
    for facts in ({"slot": replace(SLOT, wal_status="lost")}, {"slot": None}):
        gap = found(**facts)
        assert gap is not None
        assert "promoted" not in gap.message


def test_the_remedy_names_the_table_if_it_is_one() -> None:
    for names, again in ((("s.a",), "publishes s.a again"), (("s.a", "s.b"), "publishes all tables again")):
        (gap,) = topic_gaps({"t": TOPIC}, {}, {"t": names})
        assert again in gap.remedy


def test_another_server_or_database() -> None:
    assert foreign_source("shop", STORED, replace(SOURCE, timeline=9), "shop") is None
    server = foreign_source("shop", STORED, replace(SOURCE, system_identifier="1"), "shop")
    database = foreign_source("shop", STORED, replace(SOURCE, database_oid=6), "shop")
    assert server is not None
    assert "the topics of 'shop' were published from another server" in server.message
    assert database is not None
    assert "its oid was 5, that of 'shop' is 6" in database.message


@pytest.mark.parametrize(
    ("now", "words", "heals"),
    [
        ({}, "topic 't' is gone", True),
        ({"t": replace(TOPIC, topic_id="id-2")}, "topic 't' was deleted and recreated", True),
        ({"t": replace(TOPIC, ends=(10, 19))}, "partition 1 ends at offset 19, but reached 20 before", True),
        ({"t": replace(TOPIC, low=(3, 0))}, "partition 0 begins at offset 3, but began at 0 before", True),
        ({"t": KnownTopic("id-1", (0, 0, 0), (10, 20, 0))}, "topic 't' has 3 partitions now, but 2 when", False),
    ],
)
def test_a_topic_lost_something(now: dict[str, KnownTopic], words: str, heals: bool) -> None:
    (gap,) = topic_gaps({"t": TOPIC}, now, {"t": ["public.items"]})
    assert words in gap.message
    assert isinstance(gap, TopicGap) is heals
    assert not isinstance(gap, TopicGap) or gap.tables == ("public.items",)


def test_a_topic_that_grew_or_is_new_or_not_ours_any_more() -> None:
    grown = replace(TOPIC, ends=(11, 20))
    assert topic_gaps({"t": TOPIC, "old": TOPIC}, {"t": grown, "new": grown}, {"t": ["a.b"], "new": ["a.c"]}) == []


def test_a_slot_that_was_lost_before_anything_was_published() -> None:
    gap = lost_before_the_first_progress(replace(SLOT, wal_status="lost"))
    assert "is lost (lost): changes since it was created are missing" in gap.message


def test_known_topics_are_read_back() -> None:
    assert parse_known_topic(known_topic_value(TOPIC)) == TOPIC
    assert named_topic(known_topic_key("shop.public.ü")) == "shop.public.ü"
    assert named_topic(stream_key("cdc_shop")) is None
    assert named_topic(None) is None
    for value in (b"{}", b"[]", b'{"v":2}', b'{"v":1,"topic_id":"x","low":["0"],"ends":[1]}', b"nonsense"):
        with pytest.raises(DecodeError):
            parse_known_topic(value)


def test_timeline_history() -> None:
    content = "1\t0/3000000\tno recovery target specified\n\n# a comment\n2\t1/A0\tbefore 2000-01-01 00:00:00+00\n"
    assert parse_history(content) == {1: LSN.parse("0/3000000"), 2: LSN.parse("1/A0")}


MEMBER = Membership(16400, "751", 10, 16390, ("pg_publication_rel 16401",))


@pytest.mark.parametrize(
    ("now", "options_tell", "kind"),
    [
        (MEMBER, True, None),
        (replace(MEMBER, routes=(*MEMBER.routes, "pg_publication_namespace 16500")), True, None),
        (replace(MEMBER, table=16777, routes=("pg_publication_rel 16778",)), True, None),  # made anew: not this table
        (replace(MEMBER, version="760"), False, None),  # PostgreSQL 14, where attaching a partition writes it
        (replace(MEMBER, version="760", owner=11), True, None),
        (replace(MEMBER, version="760"), True, SlotGap),
        (replace(MEMBER, publication=16999, version="760", owner=11), False, SlotGap),
        (replace(MEMBER, routes=("pg_publication_rel 16409",)), True, PublicationGap),
        (replace(MEMBER, version="760", owner=11, routes=("pg_publication_rel 16409",)), True, PublicationGap),
    ],
)
def test_what_the_publication_may_have_left_out(now: Membership, options_tell: bool, kind: type | None) -> None:
    recorded = {"public.items": MEMBER, "public.gone": MEMBER}
    found = publication_gaps(
        "cdc_shop", recorded, {"public.items": now, "public.new": MEMBER}, options_tell=options_tell
    )
    assert [type(each) for each in found] == ([kind] if kind else [])
    if kind is PublicationGap:
        assert isinstance(found[0], PublicationGap)
        assert found[0].tables == ("public.items",)


def test_a_membership_is_read_back() -> None:
    assert parse_membership(membership_value(MEMBER)) == MEMBER
    assert member_table(membership_key('public."ü')) == 'public."ü'
    assert member_table(known_topic_key("shop.public.x")) is None
    assert named_topic(membership_key("public.x")) is None
    for bad in (b"{}", b"[]", b'{"v":2}', membership_value(replace(MEMBER, owner=True))):
        with pytest.raises(DecodeError, match="published record is not of topic contract version 1"):
            parse_membership(bad)


def test_a_slot_that_is_older_than_its_publication_is_to_be_dropped() -> None:
    gap = slot_before_publication("cdc_shop", "pub")
    assert gap.message.startswith("replication slot 'cdc_shop' begins before publication 'pub' was created")
    assert gap.remedy.startswith("SELECT pg_drop_replication_slot('cdc_shop');")
    assert "cdc run" in gap.remedy


def test_topics_without_a_progress_are_published_again() -> None:
    gap = forgotten_progress("shop.__progress", LSN(0x1F))
    assert isinstance(gap, SlotGap)
    assert "'shop.__progress' holds no progress, but topics hold records up to 0/1F" in gap.message


def test_a_slot_whose_reason_nobody_knows_is_lost_all_the_same() -> None:
    for state, reason in (
        (replace(SLOT, wal_status="lost"), "lost"),
        (replace(SLOT, wal_status=None, invalidation_reason="of_later"), "of_later"),
        (replace(SLOT, wal_status="unreserved", invalidation_reason=None), "unreserved"),
    ):
        assert f"'cdc_shop' is lost ({reason})" in lost_before_the_first_progress(state).message


def test_tables_that_the_publication_left_out_are_all_named() -> None:
    was = Membership(1, "1", 10, 7, ("1",))
    recorded = dict.fromkeys(("s.b", "s.a", "s.c"), was)
    now = {**recorded, "s.a": replace(was, routes=("2",)), "s.b": replace(was, routes=())}
    (gap,) = publication_gaps("pub", recorded, now, options_tell=True)
    assert isinstance(gap, PublicationGap)
    assert gap.tables == ("s.a", "s.b")
    assert "'pub' did not carry s.a, s.b for a while" in gap.message
    for other in (replace(was, publication=2), replace(was, version="2")):
        (gap,) = publication_gaps("pub", recorded, {**recorded, "s.b": other}, options_tell=True)
        assert isinstance(gap, SlotGap)
        assert "publication 'pub'" in gap.message


def test_each_topic_is_compared_whatever_is_with_the_others() -> None:
    known = dict.fromkeys(("gone", "lost", "whole", "again"), TOPIC)
    now = {"new": TOPIC, "whole": TOPIC, "lost": replace(TOPIC, low=(0, 1)), "again": replace(TOPIC, topic_id="id-2")}
    tables = {name: (f"s.{name}",) for name in ("new", "gone", "whole", "lost", "again")}
    gaps = topic_gaps(known, now, tables)
    assert [gap.tables for gap in gaps if isinstance(gap, TopicGap)] == [("s.gone",), ("s.lost",), ("s.again",)]
