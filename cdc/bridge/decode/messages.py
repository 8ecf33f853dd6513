"""Reads the messages that are not rows: one function each, fields in wire order, starting after the tag (and xid).

https://www.postgresql.org/docs/current/protocol-logicalrep-message-formats.html
"""

from __future__ import annotations

from cdc.base.lsn import LSN
from cdc.bridge.decode.buffer import Reader
from cdc.contract.change import (
    Begin,
    Column,
    Commit,
    LogicalMessage,
    Origin,
    Relation,
    ReplicaIdentity,
    StreamAbort,
    StreamCommit,
    StreamStart,
    TypeDefinition,
)
from cdc.contract.pgtypes import BUILTIN_NAMES, CATALOG, type_name

_IN_IDENTITY = 1
_CASCADE = 1
_RESTART_IDENTITY = 2
_IDENTITIES = {ord(identity.value): identity for identity in ReplicaIdentity}


def read_begin(reader: Reader) -> Begin:
    return Begin(final_lsn=LSN(reader.u64()), commit_ts=reader.unix_us(), xid=reader.u32())


def read_commit(reader: Reader) -> Commit:
    _no_flags(reader)
    return Commit(commit_lsn=LSN(reader.u64()), end_lsn=LSN(reader.u64()), commit_ts=reader.unix_us())


def read_origin(reader: Reader) -> Origin:
    return Origin(commit_lsn=LSN(reader.u64()), name=reader.string())


def read_logical_message(reader: Reader) -> LogicalMessage:
    transactional = reader.flag()
    return LogicalMessage(transactional, LSN(reader.u64()), reader.string(), reader.raw(reader.u32()))


def read_type(reader: Reader) -> TypeDefinition:
    return TypeDefinition(oid=reader.u32(), namespace=reader.string() or CATALOG, name=reader.string())


def read_truncate(reader: Reader) -> tuple[tuple[int, ...], bool, bool]:
    """Returns relation ids, cascade, and restart identity."""
    count, flags = reader.u32(), reader.u8()
    if flags & ~(_CASCADE | _RESTART_IDENTITY):
        raise reader.error(f"unknown flags 0x{flags:02x}", reader.offset - 1)
    ids = reader.raw(4 * count)
    relation_ids = tuple(int.from_bytes(ids[i : i + 4], "big") for i in range(0, len(ids), 4))
    return relation_ids, flags & _CASCADE != 0, flags & _RESTART_IDENTITY != 0


def read_relation(reader: Reader, announced: dict[int, TypeDefinition]) -> Relation:
    """Returns a relation. Types that are not built in must have been announced before, as pgoutput does."""
    relation_id, namespace, name = reader.u32(), reader.string() or CATALOG, reader.string()
    identity = _IDENTITIES.get(reader.u8())
    if identity is None:
        raise reader.error("unknown replica identity", reader.offset - 1)
    columns = tuple(_read_column(reader, announced) for _ in range(reader.u16()))
    return Relation(relation_id, namespace, name, identity, columns)


def _read_column(reader: Reader, announced: dict[int, TypeDefinition]) -> Column:
    in_identity, name = reader.flag(), reader.string()
    offset, oid, modifier = reader.offset, reader.u32(), reader.i32()
    definition = announced.get(oid)
    named = type_name(definition.namespace, definition.name) if definition else BUILTIN_NAMES.get(oid)
    if named is None:
        raise reader.error(f"column {name!r} has type {oid}, which was not announced and is not built in", offset)
    return Column(name, oid, modifier, named, in_identity)


def read_stream_start(reader: Reader) -> StreamStart:
    return StreamStart(xid=reader.u32(), first_segment=reader.flag())


def read_stream_commit(reader: Reader) -> StreamCommit:
    xid = reader.u32()
    _no_flags(reader)
    return StreamCommit(xid, LSN(reader.u64()), LSN(reader.u64()), reader.unix_us())


def read_stream_abort(reader: Reader) -> StreamAbort:
    return StreamAbort(xid=reader.u32(), subxid=reader.u32())


def _no_flags(reader: Reader) -> None:
    flags = reader.u8()
    if flags:
        raise reader.error(f"unknown flags 0x{flags:02x}", reader.offset - 1)
