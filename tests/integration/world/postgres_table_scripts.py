"""Scripts about snapshots, tables and the catalog: each is a promise of the model of PostgreSQL."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from cdc.bridge.capture.chunk import Chunk, ChunkReader, Heap, open_chunk_reader, view_table
from cdc.bridge.capture.key_rows import read_keys
from cdc.bridge.capture.reading import column_signatures, shape_of
from cdc.bridge.capture.reread import current_snapshot, reread
from cdc.bridge.source.catalog import find_tables
from cdc.bridge.source.connect import connect
from cdc.bridge.source.locks import naming_locks
from cdc.bridge.source.membership import memberships
from cdc.bridge.source.publication import add_table, ensure_publication, inspect_publication
from cdc.bridge.source.slot import recent_xid
from cdc.bridge.source.table import TableInfo
from cdc.contract.change import Begin
from cdc.contract.snapshot import Snapshot
from tests.integration.world.postgres_observed import (
    BIG,
    ITEMS,
    Oid,
    Script,
    Xid,
    adds,
    described,
    failure_of,
    info_of,
    into,
    short,
    told,
)
from tests.integration.world.postgres_sides import (
    PUBLICATION,
    Side,
    Stream,
    Writer,
    done,
    prepare,
    reading,
    written,
)

SCRIPTS: Final[dict[str, Script]] = {}
HELD_SCRIPTS: Final[dict[str, Script]] = {}
"""Scripts that need a server on which commits hang between WAL and visibility."""


# Snapshots and visibility.


@into(SCRIPTS)
def a_snapshot_names_what_is_running(side: Side) -> list[Any]:
    done(side, lambda writer: writer.create_table("items", ITEMS["items"], ["id"]))
    writers = [side.begin() for _ in range(4)]
    for key, writer in enumerate(writers):
        writer.insert("items", {"id": b"%d" % key})
    xids = [side.xid(each) for each in writers]
    idle = side.begin()
    with connect(side.connection, application_name="look") as conn:
        seen = [_seen(current_snapshot(conn), xids)]
        writers[2].commit()
        seen.append(_seen(current_snapshot(conn), xids))
        writers[0].abort()
        seen.append(_seen(current_snapshot(conn), xids))
        writers[3].savepoint("a")
        writers[3].insert("items", {"id": b"9"})
        writers[3].rollback_to("a")
        seen.append(_seen(current_snapshot(conn), xids))
        writers[3].commit()
        writers[1].commit()
        last = current_snapshot(conn)
        seen.append(_seen(last, xids))
        return [list(map(Xid, xids)), side.xid(idle), seen, side.rows("items"), recent_xid(conn) >= max(xids)]


def _seen(snapshot: Snapshot, xids: list[int]) -> list[Any]:
    return [(snapshot.sees(xid), xid in snapshot.running, xid < snapshot.xmax) for xid in xids]


@into(SCRIPTS)
def row_locks_make_writers_wait(side: Side) -> list[Any]:
    prepare(side, ITEMS)
    done(side, adds(1))
    first, second = side.begin(), side.begin()
    first.update("items", {"id": b"1"}, {"name": b"first"})
    first.insert("items", {"id": b"2"})
    observed: list[Any] = [
        side.waits(second, lambda: second.update("items", {"id": b"1"}, {"name": b"second"})),
        side.waits(second, lambda: second.delete("items", {"id": b"1"})),
        side.waits(second, lambda: second.insert("items", {"id": b"2"})),
        side.waits(second, lambda: second.update("items", {"id": b"2"}, {"name": b"second"})),
        side.waits(second, lambda: second.truncate("items")),
        side.waits(second, lambda: second.add_column("items", "extra", "text")),
        side.waits(second, lambda: second.lock("items", "ShareLock")),
        side.waits(second, lambda: second.lock("items", "AccessShareLock")),
    ]
    first.commit()
    observed += [
        side.refusal(second, lambda: second.insert("items", {"id": b"2"})),
        second.update("items", {"id": b"1"}, {"name": b"second"}),
        second.update("items", {"id": b"3"}, {"name": b"second"}),
        second.delete("items", {"id": b"2"}),
        side.refusal(second, lambda: second.insert("nowhere", {"id": b"2"})),
    ]
    second.commit()
    return [*observed, side.rows("items")]


@into(HELD_SCRIPTS)
def a_commit_is_streamed_before_it_is_visible(side: Side) -> list[Any]:
    prepare(side, ITEMS)
    done(side, lambda writer: writer.insert("items", {"id": b"1", "body": BIG}))
    stream = Stream(side)
    with connect(side.connection, application_name="look") as conn:
        before = told(stream.so_far())
        relation = shape_of(conn, info_of(conn), PUBLICATION)
        side.hold(lambda writer: writer.update("items", {"id": b"1"}, {"name": b"held"}))
        arrived = stream.next_transaction()
        begin = arrived[0]
        assert isinstance(begin, Begin)
        other = side.begin()
        locked = side.waits(other, lambda: other.update("items", {"id": b"1"}, {"name": b"late"}))
        other.abort()
        xid = begin.xid
        held = reread(conn, relation, ["id"], ["name"], [(b"1",)])
        side.let_go()
        shown = reread(conn, relation, ["id"], ["name"], [(b"1",)])
        observed = [
            (
                each.snapshot.sees(xid),
                each.rows[(b"1",)].xmin == xid,
                each.rows[(b"1",)].values,
            )
            for each in (held, shown)
        ]
    stream.close()
    return [before, told(arrived), locked, observed]


@into(HELD_SCRIPTS)
def ddl_is_streamed_before_the_catalog_shows_it(side: Side) -> list[Any]:
    prepare(side, ITEMS)
    done(side, adds(1))

    def alter(writer: Writer) -> None:
        writer.add_column("items", "extra", "text", b"filled")
        writer.insert("items", {"id": b"2"})

    stream = Stream(side)
    with connect(side.connection, application_name="look", lock_timeout_s=1) as conn:
        info = info_of(conn)
        relation = shape_of(conn, info, PUBLICATION)

        def read() -> object:
            with naming_locks(conn, [info.oid], "AccessShareLock"):
                return reread(conn, relation, ["id"], ["name"], [(b"1",)])

        before = told(stream.so_far())
        side.hold(alter)
        arrived = told(stream.next_transaction())
        held = [info_of(conn).columns, shape_of(conn, info, PUBLICATION) == relation, failure_of(read)]
        side.let_go()
        shown = [info_of(conn).columns, failure_of(read)]
    stream.close()
    return [before, arrived, held[0], held[2], shown]


# Tables beside the stream.


@into(SCRIPTS)
def a_chunk_has_the_rows_of_its_snapshot(side: Side) -> list[Any]:
    prepare(side, ITEMS)
    done(side, *map(_adds_ten, range(3)))
    running = side.begin()
    running.insert("items", {"id": b"100"})
    conn = open_chunk_reader(side.connection, application_name="chunk", lock_timeout_s=1)
    info = info_of(conn)
    view = view_table(conn, info, PUBLICATION, None, None)
    (heap,) = view.heaps
    middle = heap.blocks // 2
    with ChunkReader(conn, Chunk(info, "public", "items", 0, middle, None), PUBLICATION) as reader:
        begun = reader.begin(None)
        assert begun is not None
        done(
            side,
            lambda writer: writer.update("items", {"id": b"1"}, {"name": b"later"}),
            lambda writer: writer.delete("items", {"id": b"2"}),
            adds(101),
        )
        blocked = side.begin()
        waits = [side.waits(blocked, lambda: blocked.truncate("items"))]
        blocked.abort()
        lines = _copied(reader)
        beside = open_chunk_reader(side.connection, application_name="rest")
        with beside, ChunkReader(beside, _rest(info, middle), PUBLICATION) as rest:
            after = rest.begin(None)
            assert after is not None
            rest_lines = _copied(rest)
            sees = [begun.snapshot.sees(side.xid(running)), after.snapshot.sees(side.xid(running))]
    running.commit()
    conn.close()
    both = sorted({line.split(b"\t")[0] for line in (*lines, *rest_lines)}, key=int)
    return [
        described(begun.relation),
        [each.number for each in begun.relation.columns],
        begun.filenode == heap.filenode == info.oid,
        heap.blocks > 1,
        (heap.namespace, heap.name),
        waits,
        sees,
        [each for each in both if each not in (b"1", b"101")],
        b"100" in both,
    ]


def _adds_ten(part: int) -> Callable[[Writer], None]:
    def act(writer: Writer) -> None:
        for key in range(part * 10, part * 10 + 10):
            writer.insert("items", {"id": b"%d" % key, "name": b"a" * 1_000})

    return act


def _rest(info: TableInfo, start: int) -> Chunk:
    return Chunk(info, "public", "items", start, None, None)


def _copied(reader: ChunkReader) -> list[bytes]:
    reader.copy()
    lines: list[bytes] = []
    while not reader.is_at_end:
        lines += reader.rows(100, 2**20)
    return lines


@into(SCRIPTS)
def a_snapshot_is_kept_to_the_end_of_a_chunk(side: Side) -> list[Any]:
    prepare(side, ITEMS)
    odd = b"tab\t, line\n, backslash\\, \r\x08\x0b\x0c"
    done(side, lambda writer: writer.insert("items", {"id": b"1", "name": odd}))
    done(side, lambda writer: writer.insert("items", {"id": b"2", "body": b"\\N"}))
    conn = open_chunk_reader(side.connection, application_name="chunk", lock_timeout_s=1)
    observed: list[Any] = []
    with ChunkReader(conn, _rest(info_of(conn), 0), PUBLICATION) as reader:
        for _ in range(2):
            view = reader.begin(None)
            assert view is not None
            done(
                side,
                lambda writer: writer.update("items", {"id": b"1"}, {"name": b"later"}),
                lambda writer: writer.delete("items", {"id": b"2"}),
            )
            observed += [sorted(_copied(reader)), view.lsn <= written(side)]
    conn.close()
    return [*observed, side.rows("items")]


@into(SCRIPTS)
def a_rewrite_changes_the_file(side: Side) -> list[Any]:
    prepare(side, ITEMS)
    done(side, adds(1))
    with connect(side.connection, application_name="look") as conn:
        infos, files = [info_of(conn)], [_heap(conn, info_of(conn)).filenode]
        for change in (
            lambda writer: writer.add_column("items", "extra", "text", b"filled"),
            lambda writer: writer.truncate("items"),
        ):
            done(side, change)
            infos.append(info_of(conn))
            files.append(_heap(conn, infos[-1]).filenode)
        done(side, adds(2))
        side.rewrite("items")
        infos.append(info_of(conn))
        files.append(_heap(conn, infos[-1]).filenode)
    with reading(side) as stream:
        return [
            [Oid(each) for each in files],
            [(Oid(each.oid), each.is_as_created, each.columns, each.numbers) for each in infos],
            told(stream.so_far()),
        ]


def _heap(conn: Any, info: TableInfo) -> Heap:
    (heap,) = view_table(conn, info, PUBLICATION, None, None).heaps
    return heap


@into(SCRIPTS)
def a_locked_table_makes_a_read_wait(side: Side) -> list[Any]:
    prepare(side, ITEMS)
    done(side, adds(1))
    conn = open_chunk_reader(side.connection, application_name="reader", lock_timeout_s=1)
    info = info_of(conn)
    relation = shape_of(conn, info, PUBLICATION)
    writer = side.begin()
    writer.lock("items")

    def read() -> object:
        return reread(conn, relation, ["id"], ["name"], [(b"1",)])

    def begin() -> None:
        with ChunkReader(conn, _rest(info, 0), PUBLICATION) as reader:
            reader.begin(None)

    def named(act: Callable[[], object]) -> object:
        with naming_locks(conn, [info.oid], "AccessShareLock"):
            return act()

    observed = [
        failure_of(read),
        failure_of(lambda: named(read)),
        failure_of(begin),
        failure_of(lambda: named(begin)),
        failure_of(lambda: view_table(conn, info, PUBLICATION, None, None)),
        info_of(conn).columns,
        failure_of(lambda: shape_of(conn, info, PUBLICATION)),
    ]
    writer.commit()
    observed += [failure_of(read), failure_of(begin)]
    conn.close()
    return observed


@into(SCRIPTS)
def a_read_that_has_waited_sees_what_it_waited_for(side: Side) -> list[Any]:
    prepare(side, ITEMS)
    done(side, adds(1))
    conn = open_chunk_reader(side.connection, application_name="reader", lock_timeout_s=60)
    info = info_of(conn)
    relation = shape_of(conn, info, PUBLICATION)

    def read() -> Any:
        found = reread(conn, relation, ["id"], ["name"], [(b"1",)])
        return [found.numbers, [each.values for each in found.rows.values()]]

    def meeting(change: Callable[[Writer], object], act: Callable[[], Any]) -> Any:
        writer = side.begin()
        writer.lock("items")

        def go_on() -> None:
            change(writer)
            writer.commit()

        with side.meanwhile((writer, go_on)):
            return act()

    def begin() -> Any:
        with ChunkReader(conn, _rest(info, 0), PUBLICATION) as reader:
            view = reader.begin(None)
            if view is None:
                return None
            return described(view.relation), sorted(_copied(reader)), view.filenode == info.oid

    def replaced(writer: Writer) -> None:
        writer.drop_table("items")
        writer.create_table("items", {"id": "int8", "other": "text"}, ["id"])
        writer.insert("items", {"id": b"5", "other": b"new"})

    observed = [
        meeting(lambda writer: writer.update("items", {"id": b"1"}, {"name": b"seen"}), read),
        meeting(lambda writer: writer.add_column("items", "extra", "text", b"filled"), read),
        meeting(lambda writer: writer.update("items", {"id": b"1"}, {"name": b"again"}), begin),
        meeting(lambda writer: writer.truncate("items"), begin),
        meeting(replaced, begin),
        meeting(lambda writer: writer.drop_table("items"), begin),
    ]
    conn.close()
    return observed


@into(SCRIPTS)
def a_read_that_waits_can_be_cancelled(side: Side) -> list[Any]:
    prepare(side, ITEMS)
    with connect(side.connection, application_name="reader") as conn:
        info = info_of(conn)
        relation = shape_of(conn, info, PUBLICATION)
        writer = side.begin()
        writer.lock("items")

        def read() -> Any:
            return reread(conn, relation, ["id"], ["name"], [(b"1",)])

        with side.meanwhile((writer, lambda: conn.cancel_safe(timeout=60))):
            observed = [failure_of(read)]
        writer.commit()
        return [*observed, failure_of(read)]


@into(SCRIPTS)
def a_reread_tells_what_the_columns_are_now(side: Side) -> list[Any]:
    prepare(side, ITEMS)
    done(side, lambda writer: writer.insert("items", {"id": b"1", "name": b"a", "body": BIG}))
    with connect(side.connection, application_name="reread", lock_timeout_s=1) as conn:
        relation = shape_of(conn, info_of(conn), PUBLICATION)

        def read(*names: str) -> Any:
            found = reread(conn, relation, ["id"], names, [(b"1",), (b"7",)])
            rows = {key: list(map(short, row.values)) for key, row in found.rows.items()}
            return [found.numbers, list(rows.items())]

        observed = [read("body"), read("name", "body")]
        done(side, lambda writer: writer.rename_table("items", "things"))
        observed.append(read("body"))
        done(side, lambda writer: writer.drop_column("things", "name"))
        observed += [read("body"), failure_of(lambda: read("name"))]
        done(side, lambda writer: writer.add_column("things", "name", "text", b"new"))
        observed += [failure_of(lambda: read("body")), failure_of(lambda: read("name"))]
        done(side, lambda writer: writer.drop_table("things"))
        return [*observed, failure_of(lambda: read("body"))]


@into(SCRIPTS)
def rows_are_found_by_their_keys(side: Side) -> list[Any]:
    prepare(side, ITEMS)
    done(side, lambda writer: writer.insert("items", {"id": b"7", "name": b"a"}))
    conn = open_chunk_reader(side.connection, application_name="keys", lock_timeout_s=1)
    asked = [(b"7",), (b" 007 ",), (b"x",), None, (b"8",), (b"9" * 30,)]
    found = read_keys(conn, info_of(conn), PUBLICATION, lambda _: asked, lambda _: True, None)
    refused = read_keys(conn, info_of(conn), PUBLICATION, lambda _: asked, lambda _: False, None)
    assert found is not None
    conn.close()
    return [
        list(found.answers),
        found.key,
        described(found.relation),
        found.moment.filenode == found.relation.relation_id,
        refused,
    ]


# The catalog.


@into(SCRIPTS)
def the_catalog_tells_what_the_bridge_asks(side: Side) -> list[Any]:
    prepare(side, {**ITEMS, "others": {"id": "int8", "amount": "numeric", "doc": "jsonb"}}, published=["items"])
    with connect(side.connection, application_name="look") as conn:
        before = column_signatures(conn, [info_of(conn).oid])
        done(
            side,
            lambda writer: writer.drop_column("items", "name"),
            lambda writer: writer.add_column("items", "extra", "text"),
            lambda writer: writer.set_identity("others", "f"),
        )
        after = column_signatures(conn, [info_of(conn).oid])
        infos = find_tables(conn, ["public.*"], (), {})
        told_of = [
            (Oid(each.oid), each.name, each.key, each.key_source, each.toastable, each.columns, each.numbers)
            for each in infos
        ]
        indexes = [(each.replica_identity.value, each.primary_key, each.unique_indexes) for each in infos]
        return [told_of, indexes, before == after, before.keys() == after.keys()]


@into(SCRIPTS)
def an_entry_of_a_publication_is_another_when_it_is_made_again(side: Side) -> list[Any]:
    prepare(side, {**ITEMS, "others": {"id": "int8"}}, published=["items"])
    with connect(side.connection, application_name="look") as conn:
        infos = [info_of(conn, name) for name in ("items", "others")]
        states = [memberships(conn, PUBLICATION, infos)]
        for change in (
            lambda writer: writer.alter_publication(PUBLICATION, add=["others"]),
            lambda writer: writer.alter_publication(PUBLICATION, to=["others", "items"]),
            lambda writer: writer.alter_publication(PUBLICATION, drop=["items"]),
            lambda writer: writer.alter_publication(PUBLICATION, add=["items"]),
        ):
            done(side, change)
            states.append(memberships(conn, PUBLICATION, infos))
        writer = side.begin()
        refused = [
            side.refusal(writer, lambda: writer.alter_publication(PUBLICATION, add=["items"])),
            side.refusal(writer, lambda: writer.create_publication(PUBLICATION, ["items"])),
            side.refusal(writer, lambda: writer.alter_publication("nowhere", add=["items"])),
        ]
        writer.abort()
        first = states[0]["public.items"]
        steps = [
            {
                name: (each == first, each.version == first.version, each.publication == first.publication)
                for name, each in sorted(state.items())
            }
            for state in states
        ]
        return [steps, refused]


@into(SCRIPTS)
def the_bridge_makes_and_alters_its_publication(side: Side) -> list[Any]:
    done(
        side,
        lambda writer: writer.create_table("items", ITEMS["items"], ["id"]),
        lambda writer: writer.create_table("others", {"id": "int8"}, ["id"]),
        lambda writer: writer.create_table("third", {"id": "int8"}, ["id"]),
    )
    with connect(side.connection, application_name="look", lock_timeout_s=1) as conn:
        items, others, third = (info_of(conn, name) for name in ("items", "others", "third"))

        def ensure(*infos: TableInfo) -> Any:
            how = ensure_publication(conn, name=PUBLICATION, mode="filtered", tables=infos)
            state = inspect_publication(conn, PUBLICATION)
            return how, sorted(state.tables) if state is not None else None

        busy = side.begin()
        busy.insert("others", {"id": b"1"})
        observed = [inspect_publication(conn, PUBLICATION), ensure(items), ensure(items, others), ensure(items, others)]
        observed += [ensure(others), add_table(conn, PUBLICATION, others), add_table(conn, PUBLICATION, items)]
        busy.commit()
        writer = side.begin()
        writer.lock("third", "ShareUpdateExclusiveLock")
        observed.append(failure_of(lambda: add_table(conn, PUBLICATION, third)))
        writer.drop_table("third")
        writer.commit()
        return [*observed, add_table(conn, PUBLICATION, third)]
