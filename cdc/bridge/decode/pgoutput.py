"""Decodes pgoutput, protocol 1 and 2: the bytes of one message in, one message of ``cdc.contract.change`` out.

Theory of operation. The decoder remembers what later messages refer to: types by oid, and relations by id. A row gets
the ``Relation`` that was in force when it was sent. While a block of a streamed transaction is open (StreamStart to
StreamStop), every message carries an xid, too, and relations are remembered for that transaction alone. Its ALTER TABLE
concerns nobody else until StreamCommit makes it known, or StreamAbort forgets it. The server keeps its record of what
it has sent to us in the same way, per streamed transaction, so nothing is ever missing.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Final, TypeAlias, TypeVar

from cdc.base.errors import DecodeError
from cdc.bridge.decode import messages
from cdc.bridge.decode.buffer import Reader, StructError, decode_error, unpack_row_head, unpack_u32
from cdc.bridge.decode.tuples import read_row
from cdc.contract.change import (
    Begin,
    Commit,
    Delete,
    Insert,
    LogicalMessage,
    Origin,
    Relation,
    Row,
    StreamAbort,
    StreamCommit,
    StreamStart,
    StreamStop,
    Truncate,
    TypeDefinition,
    Update,
)

Message: TypeAlias = (
    Begin
    | Commit
    | Insert
    | Update
    | Delete
    | Truncate
    | LogicalMessage
    | Origin
    | Relation
    | TypeDefinition
    | StreamStart
    | StreamStop
    | StreamCommit
    | StreamAbort
)

_M = TypeVar("_M")

# A named tuple's own constructor is a Python function. Bypassing it saves 0.1 µs per row.
_new_insert: Callable[[tuple[Relation, Row]], Insert] = partial(tuple.__new__, Insert)
_new_update: Callable[[tuple[Relation, Row | None, bool, Row]], Update] = partial(tuple.__new__, Update)

_NEW: Final = ord("N")
_OLD: Final = ord("O")
_KEY: Final = ord("K")
_TWO_PHASE: Final = frozenset(b"bPKrp")


class PgOutputDecoder:
    """Decodes the messages of one replication connection, in order; a new connection needs a new decoder.

    Attributes:
        stream_xid: inside a streamed block, the xid of the last message, maybe a subtransaction's; otherwise None.
    """

    def __init__(self) -> None:
        self.stream_xid: int | None = None
        self._block_xid: int | None = None
        self._types: dict[int, TypeDefinition] = {}
        self._committed: dict[int, Relation] = {}
        self._streamed: dict[int, dict[int, Relation]] = {}
        self._relations = self._committed
        self._body = 1
        self._readers: dict[int, Callable[[bytes], Message]] = {
            ord("I"): self._insert,
            ord("U"): self._update,
            ord("D"): self._delete,
            ord("B"): self._begin,
            ord("C"): self._commit,
            ord("R"): self._relation,
            ord("Y"): self._type,
            ord("T"): self._truncate,
            ord("M"): self._logical_message,
            ord("O"): self._origin,
            ord("S"): self._stream_start,
            ord("E"): self._stream_stop,
            ord("c"): self._stream_commit,
            ord("A"): self._stream_abort,
        }

    @property
    def relations(self) -> dict[int, Relation]:
        """The relations that rows refer to now, by id."""
        return self._relations

    def decode(self, payload: bytes) -> Message:
        """Returns one message.

        Args:
            payload: one pgoutput message, as an XLogData frame carries it.

        Raises:
            DecodeError: truncated, over-long, unknown or contradictory bytes. Do not use the decoder any more then.
        """
        try:
            read = self._readers[payload[0]]
        except (KeyError, IndexError):
            raise _unknown(payload) from None
        return read(payload)

    # Rows.

    def _insert(self, data: bytes) -> Insert:
        relation, offset, tag = self._row_head("Insert", data)
        if tag != _NEW:
            raise decode_error("Insert", offset - 1, f"tuple tag 0x{tag:02x} instead of 'N'")
        new, offset = read_row("Insert", data, offset, len(relation.columns))
        if offset != len(data):
            raise _wrong_end("Insert", data, offset)
        return _new_insert((relation, new))

    def _update(self, data: bytes) -> Update:
        relation, offset, tag = self._row_head("Update", data)
        old, old_is_full = None, tag == _OLD
        if tag in (_KEY, _OLD):
            old, offset = read_row("Update", data, offset, len(relation.columns))
            tag = data[offset] if offset < len(data) else -1
            offset += 1
        if tag != _NEW:
            raise decode_error("Update", offset - 1, "no new tuple" if tag < 0 else f"unknown tuple tag 0x{tag:02x}")
        new, offset = read_row("Update", data, offset, len(relation.columns))
        if offset != len(data):
            raise _wrong_end("Update", data, offset)
        return _new_update((relation, old, old_is_full, new))

    def _delete(self, data: bytes) -> Delete:
        relation, offset, tag = self._row_head("Delete", data)
        if tag not in (_KEY, _OLD):
            raise decode_error("Delete", offset - 1, f"tuple tag 0x{tag:02x} instead of 'K' or 'O'")
        old, offset = read_row("Delete", data, offset, len(relation.columns))
        if offset != len(data):
            raise _wrong_end("Delete", data, offset)
        return Delete(relation, old, tag == _OLD)

    def _row_head(self, kind: str, data: bytes) -> tuple[Relation, int, int]:
        """Returns the relation, the offset after the tuple's tag, and the tag."""
        offset = self._body
        try:
            if offset != 1:
                self.stream_xid = unpack_u32(data, 1)[0]
            relation_id, tag = unpack_row_head(data, offset)
            return self._relations[relation_id], offset + 5, tag
        except KeyError:
            raise decode_error(kind, offset, f"unknown relation {relation_id}") from None
        except StructError:
            raise decode_error(kind, len(data), "truncated before the tuple") from None

    def _truncate(self, data: bytes) -> Truncate:
        reader = self._reader("Truncate", data)
        ids, cascade, restart_identity = messages.read_truncate(reader)
        reader.end()
        unknown = [relation_id for relation_id in ids if relation_id not in self._relations]
        if unknown:
            raise reader.error(f"unknown relation {unknown[0]}", reader.offset)
        return Truncate(tuple(self._relations[relation_id] for relation_id in ids), cascade, restart_identity)

    # What rows refer to.

    def _relation(self, data: bytes) -> Relation:
        reader = self._reader("Relation", data)
        relation = messages.read_relation(reader, self._types)
        reader.end()
        self._relations[relation.relation_id] = relation
        return relation

    def _type(self, data: bytes) -> TypeDefinition:
        reader = self._reader("Type", data)
        definition = messages.read_type(reader)
        reader.end()
        self._types[definition.oid] = definition
        return definition

    # Boundaries and marks.

    def _begin(self, data: bytes) -> Begin:
        return self._outside("Begin", data, messages.read_begin)

    def _commit(self, data: bytes) -> Commit:
        return self._outside("Commit", data, messages.read_commit)

    def _origin(self, data: bytes) -> Origin:
        # Origin follows Begin or StreamStart directly, and carries no xid in either case.
        reader = Reader("Origin", data, 1)
        origin = messages.read_origin(reader)
        reader.end()
        return origin

    def _logical_message(self, data: bytes) -> LogicalMessage:
        reader = self._reader("Message", data)
        message = messages.read_logical_message(reader)
        reader.end()
        return message

    # Streamed transactions.

    def _stream_start(self, data: bytes) -> StreamStart:
        start = self._outside("StreamStart", data, messages.read_stream_start)
        self.stream_xid = self._block_xid = start.xid
        self._relations = self._streamed.setdefault(start.xid, {})
        self._body = 5
        return start

    def _stream_stop(self, data: bytes) -> StreamStop:
        reader = Reader("StreamStop", data, 1)
        reader.end()
        if self._block_xid is None:
            raise reader.error("no streamed block is open", 0)
        self.stream_xid = self._block_xid = None
        self._relations = self._committed
        self._body = 1
        return StreamStop()

    def _stream_commit(self, data: bytes) -> StreamCommit:
        commit = self._outside("StreamCommit", data, messages.read_stream_commit)
        self._committed.update(self._streamed.pop(commit.xid, {}))
        return commit

    def _stream_abort(self, data: bytes) -> StreamAbort:
        abort = self._outside("StreamAbort", data, messages.read_stream_abort)
        if abort.xid == abort.subxid:
            self._streamed.pop(abort.xid, None)
        return abort

    def _outside(self, kind: str, data: bytes, read: Callable[[Reader], _M]) -> _M:
        """Returns a message that must not be inside a streamed block, and that carries no additional xid."""
        reader = Reader(kind, data, 1)
        if self._block_xid is not None:
            raise reader.error("inside a streamed block", 0)
        message = read(reader)
        reader.end()
        return message

    def _reader(self, kind: str, data: bytes) -> Reader:
        """Returns a reader that starts after the tag and, inside a streamed block, after the xid."""
        reader = Reader(kind, data, 1)
        if self._block_xid is not None:
            self.stream_xid = reader.u32()
        return reader


def _wrong_end(kind: str, data: bytes, offset: int) -> DecodeError:
    if offset > len(data):
        return decode_error(kind, len(data), f"truncated: the last column ends at byte {offset}")
    return decode_error(kind, offset, f"{len(data) - offset} bytes too many")


def _unknown(payload: bytes) -> DecodeError:
    if not payload:
        return decode_error("empty", 0, "truncated: no tag")
    if payload[0] in _TWO_PHASE:
        return decode_error(
            "two-phase", 0, f"tag {payload[:1]!r}: prepared transactions were not asked for (option two_phase)"
        )
    return decode_error("unknown", 0, f"tag 0x{payload[0]:02x}")
