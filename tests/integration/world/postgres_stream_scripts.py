"""Scripts about the stream and its slot: each is a promise of the model of PostgreSQL."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from cdc.base.errors import CdcError
from cdc.base.lsn import LSN, ZERO
from cdc.bridge.capture.copy_both import CopyBoth
from cdc.bridge.capture.reading import shape_of
from cdc.bridge.capture.reread import current_snapshot, reread
from cdc.bridge.decode.pgoutput import Message
from cdc.bridge.decode.walsender import standby_status
from cdc.bridge.source.catalog import exists, find_tables, names_of
from cdc.bridge.source.connect import connect
from cdc.bridge.source.publication import inspect_publication
from cdc.bridge.source.slot import create_slot, drop_slot, inspect_slot
from cdc.bridge.source.slot_lock import lock_holder
from cdc.contract.change import Begin, Commit, StreamAbort, StreamCommit, StreamStart
from tests.integration.world.postgres_observed import (
    BIG,
    ITEMS,
    Oid,
    Script,
    Xid,
    adds,
    failure_of,
    info_of,
    into,
    told,
)
from tests.integration.world.postgres_sides import (
    MARKS,
    PUBLICATION,
    Side,
    Stream,
    Writer,
    done,
    make_slot,
    prepare,
    reading,
    state_of,
    written,
)

SCRIPTS: Final[dict[str, Script]] = {}


# The stream.


@into(SCRIPTS)
def transactions_come_in_the_order_of_their_commits(side: Side) -> list[Any]:
    prepare(side, ITEMS)
    first, second = side.begin(), side.begin()
    first.insert("items", {"id": b"1"})
    second.insert("items", {"id": b"2"})
    first.insert("items", {"id": b"3"})
    second.commit()
    done(side, lambda third: third.insert("items", {"id": b"4"}))
    first.commit()
    with reading(side) as stream:
        return [told(stream.so_far()), side.rows("items")]


@into(SCRIPTS)
def what_is_rolled_back_leaves_nothing(side: Side) -> list[Any]:
    prepare(side, ITEMS)
    writer = side.begin()
    writer.insert("items", {"id": b"1"})
    writer.abort()
    writer = side.begin()
    writer.insert("items", {"id": b"2"})
    writer.savepoint("a")
    writer.insert("items", {"id": b"3"})
    writer.savepoint("b")
    writer.update("items", {"id": b"2"}, {"name": b"lost"})
    writer.rollback_to("a")
    writer.insert("items", {"id": b"4"})
    writer.savepoint("c")
    writer.insert("items", {"id": b"5"})
    writer.release("c")
    writer.update("items", {"id": b"2"}, {"name": b"kept"})
    writer.commit()
    with reading(side) as stream:
        return [told(stream.so_far()), side.rows("items")]


@into(SCRIPTS)
def the_id_of_a_subtransaction_is_in_its_rows_alone(side: Side) -> list[Any]:
    prepare(side, ITEMS)
    writer = side.begin()
    writer.insert("items", {"id": b"1"})
    writer.savepoint("a")
    writer.insert("items", {"id": b"2"})
    writer.release("a")
    writer.commit()
    with connect(side.connection, application_name="reread") as conn, reading(side) as stream:
        begin = stream.so_far()[0]
        assert isinstance(begin, Begin)
        found = reread(conn, shape_of(conn, info_of(conn), PUBLICATION), ["id"], ["name"], [(b"1",), (b"2",)])
        xids = [Xid(found.rows[key].xmin) for key in ((b"1",), (b"2",))]
        return [Xid(begin.xid), xids, found.snapshot.sees(begin.xid)]


@into(SCRIPTS)
def a_prepared_transaction_is_streamed_when_it_commits(side: Side) -> list[Any]:
    prepare(side, ITEMS)
    done(side, adds(1))
    writer = side.begin()
    writer.update("items", {"id": b"1"}, {"name": b"prepared"})
    xid, gid = side.xid(writer), f"gid_{side.slot}"
    writer.prepare(gid)
    other = side.begin()
    observed: list[Any] = [side.waits(other, lambda: other.update("items", {"id": b"1"}, {"name": b"late"}))]
    other.insert("items", {"id": b"2"})
    other.commit()
    with connect(side.connection, application_name="look") as conn, reading(side) as stream:
        observed += [told(stream.so_far()), current_snapshot(conn).sees(xid), side.rows("items")]
        side.commit_prepared(gid)
        return [*observed, told(stream.so_far()), current_snapshot(conn).sees(xid), side.rows("items")]


@into(SCRIPTS)
def values_out_of_line_are_left_out_unless_they_are_set(side: Side) -> list[Any]:
    prepare(side, ITEMS)
    done(
        side,
        lambda writer: writer.insert("items", {"id": b"1", "name": b"a", "body": BIG}),
        lambda writer: writer.update("items", {"id": b"1"}, {"name": b"b"}),
        lambda writer: writer.update("items", {"id": b"1"}, {"id": b"2"}),
        lambda writer: writer.update("items", {"id": b"2"}, {"body": BIG}),
        lambda writer: writer.update("items", {"id": b"2"}, {"body": b"short"}),
        lambda writer: writer.update("items", {"id": b"2"}, {"name": b"c"}),
        lambda writer: writer.delete("items", {"id": b"2"}),
    )
    with reading(side) as stream:
        return told(stream.so_far())


@into(SCRIPTS)
def the_old_key_is_sent_when_it_changes(side: Side) -> list[Any]:
    prepare(side, {"pairs": {"id": "int8", "name": "text", "part": "int8"}})
    done(
        side,
        lambda writer: writer.set_key("pairs", ["part", "id"]),
        lambda writer: writer.insert("pairs", {"id": b"1", "part": b"1", "name": b"a"}),
        lambda writer: writer.update("pairs", {"id": b"1"}, {"name": b"b"}),
        lambda writer: writer.update("pairs", {"id": b"1"}, {"part": b"2"}),
        lambda writer: writer.update("pairs", {"id": b"1"}, {"part": b"2", "id": b"1"}),
        lambda writer: writer.set_key("pairs", ["id"]),
        lambda writer: writer.update("pairs", {"id": b"1"}, {"part": b"3"}),
        lambda writer: writer.delete("pairs", {"id": b"1"}),
    )
    with reading(side) as stream:
        return told(stream.so_far())


@into(SCRIPTS)
def under_full_identity_old_rows_are_whole(side: Side) -> list[Any]:
    prepare(side, ITEMS)
    done(
        side,
        lambda writer: writer.insert("items", {"id": b"1", "body": BIG}),
        lambda writer: writer.set_identity("items", "f"),
        lambda writer: writer.update("items", {"id": b"1"}, {"name": b"b"}),
        lambda writer: writer.update("items", {"id": b"1"}, {"name": b"b"}),
        lambda writer: writer.delete("items", {"id": b"1"}),
    )
    with reading(side) as stream:
        return told(stream.so_far())


@into(SCRIPTS)
def without_an_identity_a_published_table_takes_inserts_alone(side: Side) -> list[Any]:
    prepare(side, ITEMS)
    writer = side.begin()
    writer.set_identity("items", "n")
    writer.insert("items", {"id": b"1"})
    writer.commit()
    writer = side.begin()
    refused = [
        side.refusal(writer, lambda: writer.update("items", {"id": b"1"}, {"name": b"b"})),
        side.refusal(writer, lambda: writer.delete("items", {"id": b"1"})),
    ]
    writer.insert("items", {"id": b"2"})
    writer.commit()
    with reading(side) as stream:
        return [refused, told(stream.so_far())]


@into(SCRIPTS)
def truncate_is_one_message_for_several_tables(side: Side) -> list[Any]:
    prepare(side, {**ITEMS, "others": {"id": "int8"}, "hidden": {"id": "int8"}}, published=["items", "others"])
    done(
        side,
        adds(1),
        lambda writer: writer.truncate("items", "hidden", "others"),
        lambda writer: writer.truncate("hidden"),
        adds(1),
    )
    writer = side.begin()
    writer.insert("items", {"id": b"2"})
    writer.truncate("items")
    writer.insert("items", {"id": b"3"})
    writer.commit()
    with reading(side) as stream:
        return [told(stream.so_far()), side.rows("items"), side.rows("hidden")]


@into(SCRIPTS)
def a_relation_is_described_once_and_again_after_ddl(side: Side) -> list[Any]:
    prepare(side, {**ITEMS, "others": {"id": "int8"}})
    changes: list[Callable[[Writer], object]] = [
        lambda writer: None,
        lambda writer: None,
        lambda writer: writer.add_column("items", "extra", "text", b"filled"),
        lambda writer: writer.rename_column("items", "name", "title"),
        lambda writer: writer.drop_column("items", "extra"),
        lambda writer: writer.set_identity("items", "f"),
        lambda writer: writer.rename_table("others", "elsewhere"),
        lambda writer: writer.rename_table("elsewhere", "others"),
        lambda writer: writer.alter_publication(PUBLICATION, drop=["others"]),
        lambda writer: writer.alter_publication(PUBLICATION, add=["others"]),
    ]
    observed = []
    with reading(side) as stream:
        for key, change in enumerate(changes):
            done(side, change, adds(key), adds(100 + key), *([] if key == 6 else [adds(key, "others")]))
            observed.append(told(stream.so_far()))
    return [*observed, side.rows("items")]


@into(SCRIPTS)
def ddl_inside_a_transaction_divides_its_changes(side: Side) -> list[Any]:
    prepare(side, ITEMS)
    writer = side.begin()
    writer.insert("items", {"id": b"1"})
    writer.add_column("items", "extra", "text", b"filled")
    writer.insert("items", {"id": b"2"})
    writer.update("items", {"id": b"1"}, {"name": b"b"})
    writer.rename_table("items", "things")
    writer.insert("things", {"id": b"3", "extra": None})
    with connect(side.connection, application_name="look") as conn:
        before = [each.qualified_name for each in find_tables(conn, ["public.*"], (), {})]
        writer.commit()
        after = [each.qualified_name for each in find_tables(conn, ["public.*"], (), {})]
    done(side, adds(4, "things"))
    with reading(side) as stream:
        return [before, after, told(stream.so_far()), side.rows("things")]


@into(SCRIPTS)
def a_new_table_of_the_same_name_is_another_table(side: Side) -> list[Any]:
    prepare(side, ITEMS)
    done(side, adds(1))
    with connect(side.connection, application_name="look") as conn:
        old = info_of(conn).oid
        writer = side.begin()
        writer.drop_table("items")
        writer.create_table("items", {"id": "int8", "other": "int8"}, ["id"])
        writer.insert("items", {"id": b"5", "other": b"6"})
        writer.commit()
        new = info_of(conn).oid
        observed: list[Any] = [exists(conn, old), exists(conn, new), names_of(conn, [old, new]).get(new)]
        carried = inspect_publication(conn, PUBLICATION)
        observed += [sorted(carried.tables if carried else ())]
    done(
        side,
        adds(7),
        lambda writer: writer.alter_publication(PUBLICATION, add=["items"]),
        adds(8),
    )
    with reading(side) as stream:
        return [Oid(old), Oid(new), observed, told(stream.so_far())]


@into(SCRIPTS)
def the_publication_counts_as_of_each_change(side: Side) -> list[Any]:
    prepare(side, {**ITEMS, "others": {"id": "int8"}}, published=["others"])
    done(
        side,
        adds(1),
        lambda writer: writer.alter_publication(PUBLICATION, add=["items"]),
        adds(2),
        lambda writer: writer.alter_publication(PUBLICATION, drop=["items"]),
        adds(3),
        adds(3, "others"),
        lambda writer: writer.alter_publication(PUBLICATION, to=["items", MARKS]),
        adds(4),
        adds(4, "others"),
    )
    with reading(side) as stream:
        return told(stream.so_far())


@into(SCRIPTS)
def a_table_may_join_while_a_transaction_changes_it(side: Side) -> list[Any]:
    prepare(side, {**ITEMS, "others": {"id": "int8"}}, published=["others"])
    running = side.begin()
    running.insert("items", {"id": b"1"})
    running.insert("others", {"id": b"1"})
    done(side, lambda writer: writer.alter_publication(PUBLICATION, add=["items"]), adds(2))
    running.insert("items", {"id": b"3"})
    running.update("items", {"id": b"1"}, {"name": b"known"})
    running.commit()
    with reading(side) as stream:
        return told(stream.so_far())


@into(SCRIPTS)
def a_table_may_join_after_the_last_change_of_a_transaction(side: Side) -> list[Any]:
    prepare(side, {**ITEMS, "others": {"id": "int8"}}, published=["others"])
    running = side.begin()
    running.insert("items", {"id": b"1"})
    done(side, lambda writer: writer.alter_publication(PUBLICATION, add=["items"]))
    running.commit()
    done(side, adds(2), adds(2, "others"))
    with reading(side) as stream:
        return told(stream.so_far())


@into(SCRIPTS)
def a_table_may_leave_while_a_transaction_changes_it(side: Side) -> list[Any]:
    prepare(side, {**ITEMS, "others": {"id": "int8"}})
    running = side.begin()
    running.insert("items", {"id": b"1"})
    done(side, lambda writer: writer.alter_publication(PUBLICATION, drop=["items"]), adds(2))
    running.insert("items", {"id": b"3"})
    running.insert("others", {"id": b"3"})
    running.commit()
    with reading(side) as stream:
        return told(stream.so_far())


@into(SCRIPTS)
def changes_from_before_an_alteration_of_the_publication(side: Side) -> list[Any]:
    prepare(side, {**ITEMS, "others": {"id": "int8"}})
    running = side.begin()
    running.insert("items", {"id": b"1"})
    running.insert("others", {"id": b"1"})
    done(side, lambda writer: writer.alter_publication(PUBLICATION, drop=["items"]))
    running.insert("items", {"id": b"2"})
    running.insert("others", {"id": b"2"})
    running.commit()
    own = side.begin()
    own.insert("items", {"id": b"3"})
    own.alter_publication(PUBLICATION, add=["items"], drop=["others"])
    own.insert("items", {"id": b"4"})
    own.insert("others", {"id": b"4"})
    own.savepoint("a")
    own.alter_publication(PUBLICATION, add=["others"])
    own.insert("others", {"id": b"5"})
    own.rollback_to("a")
    own.insert("others", {"id": b"6"})
    own.commit()
    done(side, adds(7), adds(7, "others"))
    with reading(side) as stream:
        return told(stream.so_far())


@into(SCRIPTS)
def ddl_that_is_rolled_back_changes_nothing(side: Side) -> list[Any]:
    prepare(side, {**ITEMS, "others": {"id": "int8"}})
    done(side, adds(1))
    writer = side.begin()
    writer.insert("items", {"id": b"2"})
    writer.savepoint("a")
    writer.add_column("items", "extra", "text", b"filled")
    writer.insert("items", {"id": b"3"})
    writer.rollback_to("a")
    other = side.begin()
    free = [side.waits(other, lambda: other.lock("items", "RowExclusiveLock"))]
    other.abort()
    writer.insert("items", {"id": b"4"})
    writer.savepoint("b")
    writer.truncate("items", "others")
    writer.insert("items", {"id": b"5"})
    writer.rollback_to("b")
    writer.insert("items", {"id": b"6"})
    writer.insert("others", {"id": b"6"})
    writer.commit()
    done(side, adds(7), adds(7, "others"))
    writer = side.begin()
    writer.rename_table("items", "things")
    writer.insert("things", {"id": b"8"})
    writer.abort()
    done(side, adds(9))
    with reading(side) as stream:
        return [free, told(stream.so_far()), side.rows("items")]


@into(SCRIPTS)
def a_reader_that_asks_is_answered(side: Side) -> list[Any]:
    prepare(side, ITEMS)
    with reading(side) as stream:
        done(side, adds(1))
        first = stream.so_far()
        last = first[-1]
        assert isinstance(last, Commit)
        stream.confirm(last.end_lsn)
        stream.position = ZERO
        stream.session.send(standby_status(last.end_lsn, last.end_lsn, last.end_lsn, 0, reply=True))
        stream.follow(last.end_lsn)
        return [told(first), stream.position >= last.end_lsn]


@into(SCRIPTS)
def an_unpublished_transaction_leaves_only_a_position(side: Side) -> list[Any]:
    prepare(side, {**ITEMS, "hidden": {"id": "int8"}}, published=["items"])
    with reading(side) as stream:
        done(side, adds(1))
        first = told(stream.so_far())
        done(side, adds(1, "hidden"))
        end = written(side)
        stream.follow(end)
        return [first, stream.position >= end, told(stream.so_far())]


@into(SCRIPTS)
def a_large_transaction_is_sent_in_blocks(side: Side) -> list[Any]:
    prepare(side, ITEMS)
    stream = Stream(side, is_streaming=True)
    large, lost = side.begin(), side.begin()
    _fill(large, 100)
    large.savepoint("a")
    _fill(large, 200)
    _fill(lost, 300)
    xids = [side.xid(large), side.xid(lost)]
    arrived = stream.so_far()
    has_begun = _begun(arrived)
    large.rollback_to("a")
    large.update("items", {"id": b"100"}, {"name": b"later"})
    large.savepoint("b")
    _fill(large, 400)
    large.release("b")
    lost.abort()
    done(side, adds(1))
    arrived += stream.so_far()
    large.commit()
    done(side, adds(2))
    arrived += stream.so_far()
    observed = [has_begun == _begun(arrived) == set(xids), _ends(arrived), *_rows_of(arrived, stream.xids, xids[0])]
    stream.close()
    stream = Stream(side, is_streaming=True)
    whole = told(stream.whole())
    stream.close()
    stream = Stream(side)
    observed += [whole, whole == told(stream.so_far())]
    stream.close()
    return observed


def _fill(writer: Writer, first: int) -> None:
    for key in range(first, first + 50):
        writer.insert("items", {"id": b"%d" % key, "name": b"n", "body": BIG})


def _begun(messages: list[Message]) -> set[int]:
    return {each.xid for each in messages if isinstance(each, StreamStart) and each.first_segment}


def _ends(messages: list[Message]) -> list[Any]:
    """Returns how transactions that were sent in blocks ended, and their parts that were rolled back."""
    found: list[Any] = []
    for each in messages:
        if isinstance(each, StreamAbort):
            found.append(("abort", Xid(each.xid), each.xid == each.subxid))
        elif isinstance(each, StreamCommit):
            found.append(("commit", Xid(each.xid)))
    return sorted(found)


def _rows_of(messages: list[Message], xids: list[int | None], top: int) -> list[Any]:
    """Returns the rows of a transaction that were not rolled back, and how they are divided by ids of parts."""
    undone = {each.subxid for each in messages if isinstance(each, StreamAbort)}
    return [top not in undone, len(undone), sorted({Xid(each) for each in xids if each is not None} - undone)]


# Slots.


@into(SCRIPTS)
def a_stream_goes_on_from_what_was_confirmed(side: Side) -> list[Any]:
    prepare(side, ITEMS)
    done(side, *map(adds, range(4)))
    stream = Stream(side)
    first = stream.so_far()
    ends = [each.end_lsn for each in first if isinstance(each, Commit)]
    stream.confirm(ends[1])
    stream.close()
    observed = [told(first)]
    for start in (ZERO, ends[0], ends[1], ends[2], LSN(ends[2] - 8)):
        stream = Stream(side, start)
        observed.append(told(stream.so_far()))
        stream.close()
    with connect(side.connection, application_name="look") as conn:
        state = state_of(conn, side.slot)
        observed.append([state.confirmed_flush_lsn == ends[1], (state.restart_lsn or ZERO) <= ends[1], state.lost])
    return observed


@into(SCRIPTS)
def one_reader_has_the_slot(side: Side) -> list[Any]:
    prepare(side, ITEMS)
    stream = Stream(side)
    other = CopyBoth(side.connection, application_name="other")
    with connect(side.connection, application_name="look") as conn:
        holder = lock_holder(conn, side.slot)
        assert holder is not None
        observed = [
            other.hold(side.slot),
            holder.pid == stream.session.backend_pid,
            state_of(conn, side.slot).active_pid == stream.session.backend_pid,
            failure_of(lambda: other.start(side.slot, PUBLICATION, ZERO)),
            failure_of(lambda: drop_slot(conn, side.slot)),
            failure_of(lambda: create_slot(conn, side.slot)),
        ]
        stream.close()
        held = other.hold(side.slot)
        observed += [held is not None and held.pid == other.backend_pid, held == lock_holder(conn, side.slot)]
        other.start(side.slot, PUBLICATION, ZERO)
        observed += [state_of(conn, side.slot).active_pid == other.backend_pid]
        other.close()
    return observed


@into(SCRIPTS)
def a_slot_that_is_not_there_is_a_gap(side: Side) -> list[Any]:
    session = CopyBoth(side.connection, application_name="reader")
    with connect(side.connection, application_name="look") as conn:
        observed: list[Any] = [
            failure_of(lambda: drop_slot(conn, side.slot)),
            inspect_slot(conn, side.slot),
            lock_holder(conn, side.slot),
        ]
    observed += [failure_of(lambda: session.start(side.slot, PUBLICATION, ZERO))]
    session.close()
    return observed


@into(SCRIPTS)
def a_slot_waits_for_open_transactions(side: Side) -> list[Any]:
    done(side, lambda writer: writer.create_table("items", ITEMS["items"], ["id"]))
    writer = side.begin()
    with connect(side.connection, application_name="look") as conn:
        make_slot(side)
        drop_slot(conn, side.slot)
        writer.insert("items", {"id": b"1"})
        observed = [failure_of(lambda: create_slot(conn, side.slot, timeout_s=0.3)), inspect_slot(conn, side.slot)]
        writer.commit()
        start = create_slot(conn, side.slot, timeout_s=30)
        state = state_of(conn, side.slot)
        return [*observed, state.confirmed_flush_lsn == start, state.active, state.wal_status, state.lost]


@into(SCRIPTS)
def a_new_slot_has_what_began_while_it_was_made(side: Side) -> list[Any]:
    done(
        side,
        lambda writer: writer.create_table("items", ITEMS["items"], ["id"]),
        lambda writer: writer.create_table(MARKS, {"id": "int8"}, ["id"]),
        lambda writer: writer.create_publication(PUBLICATION, ["items", MARKS]),
    )
    first, second, third = (side.begin() for _ in range(3))
    first.insert("items", {"id": b"1"})

    def end_first() -> None:
        second.insert("items", {"id": b"2"})
        first.commit()

    def end_second() -> None:
        third.insert("items", {"id": b"3"})
        second.commit()

    with side.meanwhile((first, end_first), (second, end_second)):
        make_slot(side)
    third.insert("items", {"id": b"4"})
    third.commit()
    with reading(side) as stream:
        return [told(stream.so_far()), side.rows("items")]


@into(SCRIPTS)
def a_change_before_the_publication_cannot_be_decoded(side: Side) -> list[Any]:
    done(side, lambda writer: writer.create_table("items", ITEMS["items"], ["id"]))
    make_slot(side)
    done(
        side,
        adds(1),
        lambda writer: writer.create_publication(PUBLICATION, ["items"]),
        adds(2),
    )
    with reading(side) as stream:
        try:
            stream.follow(LSN(2**62))
        except CdcError as error:
            return [type(error).__name__, f'publication "{PUBLICATION}" does not exist' in error.message]
    return []
