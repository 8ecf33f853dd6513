"""The statements that the product sends, and what the model answers. A statement that is not known fails the test."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, Final

from psycopg import errors

from cdc.base.lsn import LSN
from tests.world.pgoutput import Walsender
from tests.world.postgres_errors import failure
from tests.world.postgres_keys import answer_by_key
from tests.world.postgres_names import QUOTED, literal, quoted_name
from tests.world.postgres_tables import TYPE_NAMES, VARIABLE, Cells, WorldTable
from tests.world.postgres_transaction import PUBLISH

if TYPE_CHECKING:
    from tests.world.postgres_sessions import ServerSession

Found = re.Match[str]
Answered = list[tuple[Any, ...]]
Answer = Callable[["ServerSession", Any, Found], Answered]

_LITERAL: Final = r"'(?:[^']|'')*'"
_ANSWERS: list[tuple[re.Pattern[str], Answer]] = []
_known: dict[str, tuple[Answer, Found]] = {}


def find_answer(text: str) -> tuple[Answer, Found]:
    """Returns who answers a statement, and what matched.

    Raises:
        AssertionError: nobody does.
    """
    known = _known.get(text)
    if known is None:
        normal = " ".join(text.split())
        found = ((answer, match) for pattern, answer in _ANSWERS if (match := pattern.match(normal)))
        known = next(found, None)
        assert known is not None, f"the world does not know this query: {normal}"
        _known[text] = known
    return known


def _answers(pattern: str) -> Callable[[Answer], Answer]:
    """The function answers statements that begin with this."""

    def add(answer: Answer) -> Answer:
        _ANSWERS.append((re.compile(pattern, re.DOTALL), answer))
        return answer

    return add


# Transactions and settings.


@_answers(r"BEGIN$")
def _begin(session: ServerSession, values: Any, found: Found) -> Answered:
    session.begin()
    return []


@_answers(r"BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY$")
def _begin_repeatable(session: ServerSession, values: Any, found: Found) -> Answered:
    session.begin(is_repeatable=True)
    return []


@_answers(r"COMMIT$")
def _commit(session: ServerSession, values: Any, found: Found) -> Answered:
    session.commit()
    return []


@_answers(r"ROLLBACK$")
def _rollback(session: ServerSession, values: Any, found: Found) -> Answered:
    session.rollback()
    return []


@_answers(r"(SAVEPOINT|RELEASE) cast_keys$")
def _savepoint(session: ServerSession, values: Any, found: Found) -> Answered:
    return []


@_answers(r"ROLLBACK TO cast_keys$")
def _rollback_to(session: ServerSession, values: Any, found: Found) -> Answered:
    session.is_failed = False
    return []


@_answers(r"SET LOCAL lock_timeout = '?(\d+)(?:s')?$")
def _lock_timeout(session: ServerSession, values: Any, found: Found) -> Answered:
    session.lock_timeout_s = float(found[1])
    return []


@_answers(r"SET LOCAL statement_timeout = (\d+)$")
def _statement_timeout(session: ServerSession, values: Any, found: Found) -> Answered:
    session.statement_timeout_s = int(found[1]) / 1000
    return []


@_answers(r"SET (LOCAL synchronous_commit = local|default_transaction_read_only = on)$")
def _setting(session: ServerSession, values: Any, found: Found) -> Answered:
    return []


@_answers(r"SELECT pg_catalog\.set_config\('application_name', %s, false\)$")
def _application(session: ServerSession, values: Any, found: Found) -> Answered:
    (session.application,) = values
    return [(session.application,)]


# The server and its WAL.


def _position(lsn: int) -> str:
    return str(LSN(lsn))


@_answers(r"IDENTIFY_SYSTEM$")
def _identify_system(session: ServerSession, values: Any, found: Found) -> Answered:
    server = session.server
    end = server.replayed if server.upstream is not None else server.flush_lsn
    return [(server.system_identifier, server.timeline, _position(end), server.database)]


@_answers(r"TIMELINE_HISTORY (\d+)$")
def _timeline_history(session: ServerSession, values: Any, found: Found) -> Answered:
    server = session.server
    if int(found[1]) != server.timeline or server.timeline == 1:
        raise failure(errors.UndefinedFile, f'could not open file "pg_wal/{int(found[1]):08X}.history"')
    lines = "".join(f"{timeline}\t{_position(left)}\tno recovery target\n" for timeline, left in server.timelines)
    return [(f"{int(found[1]):08X}.history", lines)]


@_answers(r"SELECT \(SELECT system_identifier::text FROM pg_catalog\.pg_control_system\(\)\), CASE WHEN")
def _identify(session: ServerSession, values: Any, found: Found) -> Answered:
    server = session.server
    return [(server.system_identifier, f"{server.timeline:x}", server.database_oid)]


@_answers(r"SELECT pg_catalog\.pg_is_in_recovery\(\), pg_catalog\.pg_postmaster_start_time\(\)::text,")
def _server(session: ServerSession, values: Any, found: Found) -> Answered:
    server = session.server
    identity = (server.system_identifier, server.database_oid, server.database, server.timeline)
    return [(server.upstream is not None, server.started, *identity)]


@_answers(r"SELECT pg_catalog\.pg_is_in_recovery\(\)$")
def _in_recovery(session: ServerSession, values: Any, found: Found) -> Answered:
    return [(session.server.upstream is not None,)]


@_answers(r"SELECT pg_catalog\.pg_is_in_recovery\(\), pg_catalog\.pg_last_wal_replay_lsn\(\) >= %s::pg_lsn$")
def _has_replayed(session: ServerSession, values: Any, found: Found) -> Answered:
    server = session.server
    return [(server.upstream is not None, server.upstream is not None and server.replayed >= LSN.parse(values[0]))]


@_answers(r"SELECT CASE WHEN NOT pg_catalog\.pg_is_in_recovery\(\) THEN pg_catalog\.pg_current_wal_lsn\(\)::text END$")
def _written(session: ServerSession, values: Any, found: Found) -> Answered:
    server = session.server
    return [(_position(server.flush_lsn) if server.upstream is None else None,)]


@_answers(r"SELECT \(CASE WHEN pg_catalog\.pg_is_in_recovery\(\) THEN pg_catalog\.pg_last_wal_replay_lsn\(\) ELSE")
def _wal_end(session: ServerSession, values: Any, found: Found) -> Answered:
    server = session.server
    return [(_position(server.insert_lsn if server.upstream is None else server.replayed),)]


@_answers(r"SELECT pg_catalog\.current_setting\('wal_level'\)$")
def _wal_level(session: ServerSession, values: Any, found: Found) -> Answered:
    return [("logical",)]


@_answers(r"SELECT pg_catalog\.pg_current_snapshot\(\)::text$")
def _snapshot(session: ServerSession, values: Any, found: Found) -> Answered:
    return [(session.sees().text,)]


@_answers(r"SELECT pg_catalog\.pg_current_xact_id\(\)$")
def _own_transaction(session: ServerSession, values: Any, found: Found) -> Answered:
    assert session.transaction is None, "not modelled"
    own = session.server.begin("cdc")
    xid = own.take_xid()
    own.commit()
    return [(xid,)]


@_answers(r"SELECT pg_catalog\.pg_snapshot_xmax\(pg_catalog\.pg_current_snapshot\(\)\)::text$")
def _snapshot_end(session: ServerSession, values: Any, found: Found) -> Answered:
    return [(str(session.sees().xmax),)]


@_answers(r"SELECT pg_catalog\.pg_current_snapshot\(\)::text, pg_catalog\.pg_current_wal_insert_lsn\(\)::text$")
def _sight(session: ServerSession, values: Any, found: Found) -> Answered:
    assert session.server.upstream is None
    sees = session.sees()
    session.server.turns.turn()  # the server takes the snapshot first, and others go on meanwhile
    return [(sees.text, _position(session.server.insert_lsn))]


@_answers(r"SELECT pg_catalog\.pg_logical_emit_message\(true, 'cdc', ''\) WHERE NOT pg_catalog\.pg_is_in_recovery\(\)$")
def _emit_message(session: ServerSession, values: Any, found: Found) -> Answered:
    if session.server.upstream is not None:
        return []
    assert session.transaction is not None
    session.transaction.emit_message()
    return [(_position(session.server.insert_lsn),)]


# Slots.


@_answers(
    r"SELECT slot_name, coalesce\(plugin, ''\), coalesce\(database, ''\), active, active_pid, .* WHERE slot_name = %s$"
)
def _inspect_slot(session: ServerSession, values: Any, found: Found) -> Answered:
    server, (name,) = session.server, values
    slot = server.slots.get(name)
    if slot is None:
        return []
    pid = None if slot.reader is None else slot.reader.pid
    started = (each.changes[0].lsn for each in server.running.values() if each.changes)
    restart = min([slot.confirmed, *started])
    end = server.flush_lsn
    kept = (None, None, None) if slot.is_lost else (_position(restart), "reserved", end - restart)
    restart_text, status, retained = kept
    lag = max(end - slot.confirmed, 0)
    status = "lost" if slot.is_lost else status
    head = (name, "pgoutput", server.database, pid is not None, pid, _position(slot.confirmed))
    return [(*head, restart_text, status, None, retained, lag, None)]


@_answers(rf"SELECT lsn::text FROM pg_catalog\.pg_create_logical_replication_slot\(({_LITERAL}), 'pgoutput'\)$")
def _create_slot(session: ServerSession, values: Any, found: Found) -> Answered:
    start = session.server.make_slot(
        literal(found[1]), lambda: session.is_over or session.is_cancelled, session.statement_timeout_s or 600.0
    )
    session.check()
    return [(_position(start),)]


@_answers(r"SELECT pg_catalog\.pg_drop_replication_slot\(%s\)$")
def _drop_slot(session: ServerSession, values: Any, found: Found) -> Answered:
    (name,) = values
    slot = session.server.slots.get(name)
    if slot is None:
        raise failure(errors.UndefinedObject, f'replication slot "{name}" does not exist')
    if slot.reader is not None:
        raise failure(errors.ObjectInUse, f'replication slot "{name}" is active for PID {slot.reader.pid}')
    del session.server.slots[name]
    return [("",)]


_LOCK_KEY: Final = rf"pg_catalog\.hashtextextended\('cdc bridge of slot ' \|\| ({_LITERAL})::text, 0\)"


@_answers(
    rf"SELECT pg_catalog\.set_config\('idle_session_timeout', .* WHERE pg_catalog\.pg_try_advisory_lock\({_LOCK_KEY}\)$"
)
def _hold(session: ServerSession, values: Any, found: Found) -> Answered:
    if session.server.advisory.setdefault(literal(found[1]), session) is not session:
        return []
    return [("", session.pid, session.began)]


@_answers(rf"SELECT l\.pid, coalesce\(a\.backend_start::text, ''\) FROM pg_catalog\.pg_locks l .* = {_LOCK_KEY}$")
def _lock_holder(session: ServerSession, values: Any, found: Found) -> Answered:
    holder = session.server.advisory.get(literal(found[1]))
    return [] if holder is None else [(holder.pid, holder.began)]


@_answers(
    r"START_REPLICATION SLOT \"(?P<slot>[^\"]+)\" LOGICAL (?P<lsn>\S+)"
    r" \(proto_version '(?:1'|(?P<streaming>2', streaming 'on')), publication_names '\"(?P<publication>[^\"']+)\"'\)$"
)
def _start_replication(session: ServerSession, values: Any, found: Found) -> Answered:
    server, name = session.server, found["slot"]
    slot = server.slots.get(name)
    if slot is None:
        raise failure(errors.UndefinedObject, f'replication slot "{name}" does not exist')
    if slot.reader is not None:
        raise failure(errors.ObjectInUse, f'replication slot "{name}" is active for PID {slot.reader.pid}')
    if slot.is_lost:
        message = f'can no longer get changes from replication slot "{name}"'
        raise failure(errors.ObjectNotInPrerequisiteState, message)
    slot.reader, session.slot = session, slot
    start = max(slot.confirmed, LSN.parse(found["lsn"]))
    session.sender = Walsender(server, found["publication"], start, is_streaming=found["streaming"] is not None)
    return []


@_answers(r"SELECT setting::bigint FROM pg_catalog\.pg_settings WHERE name = 'max_slot_wal_keep_size'")
def _keep_size(session: ServerSession, values: Any, found: Found) -> Answered:
    return []


@_answers(r"SELECT pid, gid, owner, database, application, state, since::timestamptz\(0\)::text,")
def _oldest(session: ServerSession, values: Any, found: Found) -> Answered:
    server = session.server
    others = [each for xid, each in sorted(server.running.items()) if each.pid != session.pid]
    if not others:
        return []
    first = others[0]
    state = "prepared" if first.pid is None else "idle in transaction"
    age_s = server.turns.now - first.since
    return [(first.pid, first.gid, "app", server.database, first.application, state, str(first.since), age_s)]


@_answers(r"SELECT pid, gid, owner, database, application, state, since::timestamptz\(0\)::text")
def _oldest_transaction(session: ServerSession, values: Any, found: Found) -> Answered:
    now, running = session.server.turns.now, session.server.running.values()
    oldest = [(now - each.since, each.pid) for each in running if each.pid is not None]
    return [(pid, None, "", "", "", "", str(age), age) for age, pid in sorted(oldest, reverse=True)[:1]]


# Tables.


@_answers(
    rf"WITH chosen AS \(.* AND (?:NOT c\.relispartition AND c\.relkind IN \('r', 'p'\) AND c\.relpersistence = 'p'"
    rf"|n\.nspname = (?P<namespace>{_LITERAL}) AND c\.relname = (?P<name>{_LITERAL}) AND c\.relkind IN \('r', 'p'\))"
    r" \), partitioned"
)
def _tables(session: ServerSession, values: Any, found: Found) -> Answered:
    infos = sorted(session.server.tables.values(), key=lambda each: (each.namespace, each.name))
    if found["name"] is not None:
        wanted = literal(found["namespace"]), literal(found["name"])
        infos = [each for each in infos if (each.namespace, each.name) == wanted]
    return [_table_row(session, each) for each in infos]


def _table_row(session: ServerSession, info: WorldTable) -> tuple[Any, ...]:
    columns = info.columns
    indexes = [
        {
            "name": each.name,
            "immediate": True,
            "columns": [info.attributes[number - 1].name for number in each.numbers],
            "roles": [*["primary"] * each.is_primary, *["identity"] * each.is_identity, "unique"],
        }
        for each in sorted(info.indexes, key=lambda each: each.name)
    ]
    names = [each.name for each in columns]
    toastable = [each.name for each in columns if each.type_oid in VARIABLE]
    none: list[Any] = []
    head = (info.namespace, info.name, "r", info.identity, names, toastable, indexes, 0, none, none, info.oid)
    return (*head, [each.number for each in columns], [], info.filenode == info.oid)


@_answers(r"SELECT n\.nspname::text, c\.relname::text, c\.relkind::text, c\.relpersistence::text, CASE WHEN")
def _others(session: ServerSession, values: Any, found: Found) -> Answered:
    return []


@_answers(r"SELECT n\.nspname::text, c\.relname::text, has_schema_privilege\(")
def _rights(session: ServerSession, values: Any, found: Found) -> Answered:
    names = [name for name in zip(*values, strict=True) if session.server.find(*name) is not None]
    return [(*name, True, True, False, True) for name in names]


@_answers(r"SELECT oid::bigint FROM pg_catalog\.pg_class WHERE oid = ANY\(%s\) AND relpersistence = 'u'$")
def _unlogged(session: ServerSession, values: Any, found: Found) -> Answered:
    return []


@_answers(r"SELECT FROM pg_catalog\.pg_class WHERE oid = %s$")
def _exists(session: ServerSession, values: Any, found: Found) -> Answered:
    return [()] if values[0] in session.server.tables else []


@_answers(r"SELECT c\.oid::bigint, n\.nspname::text, c\.relname::text FROM .* c\.oid = ANY\('\{([\d,]*)\}'")
def _names_of(session: ServerSession, values: Any, found: Found) -> Answered:
    infos = (session.server.tables.get(int(oid)) for oid in found[1].split(",") if oid)
    return [(info.oid, info.namespace, info.name) for info in infos if info is not None]


@_answers(r"SELECT attrelid::bigint, md5\(string_agg\(")
def _signatures(session: ServerSession, values: Any, found: Found) -> Answered:
    infos = (session.server.tables.get(oid) for oid in values[0])
    return [
        (info.oid, ",".join(f"{each.number}:{each.name}:{each.type_oid}" for each in info.columns))
        for info in infos
        if info is not None
    ]


@_answers(r"SELECT a\.attrelid::bigint, a\.attname::text, a\.atttypid::bigint, a\.atttypmod,")
def _columns(session: ServerSession, values: Any, found: Found) -> Answered:
    assert values["columns"] is None, "column lists are not modelled"
    if "table" in values:
        infos = [quoted_name(session, values["table"])]
    else:
        infos = [info for oid in sorted(values["tables"]) if (info := session.server.tables.get(oid)) is not None]
    return [
        (info.oid, each.name, each.type_oid, -1, "pg_catalog", TYPE_NAMES[each.type_oid], each.number, [])
        for info in infos
        for each in info.columns
    ]


@_answers(r"SELECT c\.oid::bigint, n\.nspname::text, c\.relname::text, c\.relkind::text FROM pg_catalog\.pg_class c")
def _keyed_table(session: ServerSession, values: Any, found: Found) -> Answered:
    table = values["table"]
    info = session.server.tables.get(int(table)) if table.isdigit() else quoted_name(session, table)
    return [] if info is None else [(info.oid, info.namespace, info.name, "r")]


@_answers(r"SELECT operator\.nspname::text, operator\.oprname::text FROM pg_catalog\.unnest\(")
def _operators(session: ServerSession, values: Any, found: Found) -> Answered:
    info = session.server.tables.get(values["table"])
    return [("pg_catalog", "=") for name in values["columns"] if info is not None and name in info.by_name]


@_answers(r"SELECT n\.nspname \|\| '\.' \|\| c\.relname, l\.mode, l\.granted, l\.pid,")
def _lock_holders(session: ServerSession, values: Any, found: Found) -> Answered:
    server = session.server
    rows: Answered = []
    for oid in values["tables"]:
        info = server.tables.get(oid)
        for holder, mode in server.locks.get(oid, ()) if info is not None else ():
            if mode in values["modes"] and holder.pid != session.pid:
                name = f"{info.namespace}.{info.name}" if info is not None else ""
                rows.append((name, mode, True, holder.pid, "app", holder.application, str(holder.since)))
    return rows[:3]


# Publications.


@_answers(r"SELECT oid::bigint FROM pg_catalog\.pg_publication WHERE pubname = %s$")
def _publication_oid(session: ServerSession, values: Any, found: Found) -> Answered:
    publication = session.server.publications.get(values[0])
    return [] if publication is None else [(publication.oid,)]


@_answers(r"SELECT oid::bigint, xmin::text, pubowner::bigint, puballtables FROM pg_catalog\.pg_publication WHERE")
def _publication(session: ServerSession, values: Any, found: Found) -> Answered:
    publication = session.server.publications.get(values[0])
    if publication is None:
        return []
    return [(publication.oid, str(publication.version & 0xFFFFFFFF), 10, publication.all_tables)]


@_answers(r"SELECT \(prrelid\)::text, oid::text FROM pg_catalog\.pg_publication_rel WHERE prpubid = %s$")
def _publication_entries(session: ServerSession, values: Any, found: Found) -> Answered:
    of = (each for each in session.server.publications.values() if each.oid == values[0])
    return [(str(table), str(entry)) for each in of for table, entry in each.entries.items()]


@_answers(r"SELECT pg_catalog\.pg_get_expr\(r\.prqual, r\.prrelid\), r\.oid::bigint FROM pg_catalog\.pg_publication p ")
@_answers(r"SELECT \(SELECT n\.nspname FROM .* FROM pg_catalog\.pg_publication_namespace WHERE pnpubid = %s$")
def _parts_that_none_has(session: ServerSession, values: Any, found: Found) -> Answered:
    """Answers for schemas and row filters: the world's publications have neither."""
    return []


@_answers(r"WITH RECURSIVE publication AS \( SELECT \* FROM pg_catalog\.pg_publication WHERE pubname = %s \)")
def _publication_state(session: ServerSession, values: Any, found: Found) -> Answered:
    publication = session.server.publications.get(values[0])
    if publication is None:
        return []
    tables = [[info.namespace, info.name] for oid, info in session.server.tables.items() if publication.carries(oid)]
    return [(True, publication.all_tables, True, True, True, True, True, tables, [], [], False)]


@_answers(r"SELECT CASE WHEN r\.prattrs IS NOT NULL OR to_jsonb\(p\)")
def _published_part(session: ServerSession, values: Any, found: Found) -> Answered:
    publication, namespace, name = values
    is_there = publication in session.server.publications and session.server.find(namespace, name) is not None
    return [(None, None)] if is_there else []


_ONLY: Final = rf"(?P<tables>ONLY {QUOTED}(?:, ONLY {QUOTED})*)"


@_answers(
    rf"CREATE PUBLICATION \"(?P<name>[^\"]+)\" FOR (?:ALL TABLES|TABLE {_ONLY})"
    r" WITH \(publish_via_partition_root = true\);$"
)
def _create_publication(session: ServerSession, values: Any, found: Found) -> Answered:
    tables = None if found["tables"] is None else _to_publish(session, found["tables"])
    assert session.transaction is not None
    session.transaction.create_publication(found["name"], tables)
    return []


@_answers(rf"ALTER PUBLICATION \"(?P<name>[^\"]+)\" (?P<how>ADD|SET) TABLE {_ONLY};$")
def _alter_publication(session: ServerSession, values: Any, found: Found) -> Answered:
    tables = _to_publish(session, found["tables"])
    assert session.transaction is not None
    if found["how"] == "ADD":
        session.transaction.alter_publication(found["name"], add=tables)
    else:
        session.transaction.alter_publication(found["name"], to=tables)
    return []


def _to_publish(session: ServerSession, only: str) -> list[str]:
    """Wait for the locks on tables that are to be published; returns their names."""
    names = []
    for text in re.findall(QUOTED, only):
        info = quoted_name(session, text)
        session.lock(info.oid, PUBLISH)
        names.append(f"{info.namespace}.{info.name}")
    return names


# What reads rows.


@_answers(rf"LOCK TABLE (?:ONLY )?(?P<table>{QUOTED}) IN ACCESS SHARE MODE$")
def _lock_table(session: ServerSession, values: Any, found: Found) -> Answered:
    _locked(session, found["table"])
    return []


def _locked(session: ServerSession, quoted: str) -> WorldTable:
    """Returns a table by its name, once it is locked for reading; the name may be another table's by then."""
    while True:
        info = quoted_name(session, quoted)
        session.lock(info.oid)
        if quoted_name(session, quoted).oid == info.oid:
            return quoted_name(session, quoted)


@_answers(
    r"SELECT pg_catalog\.pg_current_snapshot\(\)::text, pg_catalog\.pg_current_wal_insert_lsn\(\)::text,"
    r" pg_catalog\.pg_relation_filenode\(%s::pg_catalog\.regclass\)::bigint$"
)
def _moment(session: ServerSession, values: Any, found: Found) -> Answered:
    assert session.server.upstream is None
    sees = session.sees()
    session.server.turns.turn()  # as for a sight
    return [(sees.text, _position(session.server.insert_lsn), quoted_name(session, values[0]).filenode)]


@_answers(r"SELECT pg_catalog\.pg_relation_filenode\(%s::pg_catalog\.regclass\)::bigint$")
def _standby_moment(session: ServerSession, values: Any, found: Found) -> Answered:
    session.sees()
    return [(quoted_name(session, values[0]).filenode,)]


@_answers(r"SELECT n\.nspname::text, c\.relname::text, pg_catalog\.pg_relation_filenode\(c\.oid\)::bigint,")
def _heaps(session: ServerSession, values: Any, found: Found) -> Answered:
    info = _locked(session, values[1])
    heap, stride = session.server.heaps[info.filenode], session.server.block_stride
    blocks = (heap.blocks - 1) * stride + 1 if heap.blocks else 0
    return [(info.namespace, info.name, info.filenode, blocks)]


@_answers(rf"EXPLAIN \(FORMAT JSON\) SELECT FROM ONLY (?P<table>{QUOTED})$")
def _explain(session: ServerSession, values: Any, found: Found) -> Answered:
    info = _locked(session, found["table"])
    return [(json.dumps([{"Plan": {"Plan Rows": len(session.server.heaps[info.filenode].versions)}}]),)]


@_answers(
    rf"COPY \(SELECT (?P<columns>.*) FROM ONLY (?P<table>{QUOTED})"
    r" WHERE ctid >= '\((?P<start>\d+),0\)'::pg_catalog\.tid"
    r"(?: AND ctid < '\((?P<end>\d+),0\)'::pg_catalog\.tid)?\) TO STDOUT$"
)
def _copy(session: ServerSession, values: Any, found: Found) -> Answered:
    info = _locked(session, found["table"])
    numbers = [_column(info, name) for name in re.findall(r'"((?:[^"]|"")+)"', found["columns"])]
    start, end = int(found["start"]), int(found["end"] or 2**32)
    stride = session.server.block_stride
    versions = session.sees().rows(session.server.heaps[info.filenode])
    return [(_line(info, each.cells, numbers),) for each in versions if start <= each.block * stride < end]


def _column(info: WorldTable, name: str) -> int:
    column = info.by_name.get(name)
    if column is None:
        raise failure(errors.UndefinedColumn, f'column "{name}" does not exist')
    return column.number


_ESCAPED: Final = {8: b"\\b", 9: b"\\t", 10: b"\\n", 11: b"\\v", 12: b"\\f", 13: b"\\r", 92: b"\\\\"}
_TO_ESCAPE: Final = re.compile(rb"[\x08-\x0d\\]")


def _line(info: WorldTable, cells: Cells, numbers: Sequence[int]) -> bytes:
    found = (info.cell(cells, number) for number in numbers)
    texts = (rb"\N" if cell is None else _TO_ESCAPE.sub(lambda each: _ESCAPED[each[0][0]], cell) for cell in found)
    return b"\t".join(texts) + b"\n"


@_answers(r"SELECT (?:o, |k\.o, |'(?:[^']|'')*'::pg_catalog\.regclass::pg_catalog\.oid, k\.o, )")
def _by_key(session: ServerSession, values: Any, found: Found) -> Answered:
    return answer_by_key(session, found.string, values, _locked)
