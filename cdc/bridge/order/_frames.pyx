# cython: boundscheck=False, wraparound=False
"""Ordinary rows from frames to records in C: the short way past decoder, engine and encoder, with the same outcome.

``take_rows`` goes through a batch of frames and stops at the first that it declines. It takes inserts, updates and
deletes of tables that the engine knows, with texts and NULLs in them. It declines all that wants a decision: every other
message, rows with unchanged TOAST, updates that change the key, tables with a history, the JSON document ``null``,
and whatever looks wrong. A frame that it declines has changed nothing, so Python takes it from its first byte, and
Python raises every error.

To read this knowing Python: ``cdef`` declares what is C; ``const unsigned char*`` is an address inside of a frame, which
the list keeps alive. Nothing checks bounds behind an address, so each length that a frame claims is compared with
where the frame ends before it is used. Layout: https://www.postgresql.org/docs/current/protocol-logicalrep-message-formats.html
"""

from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_GET_SIZE
from libc.stdint cimport int64_t, uint32_t
from libc.stdlib cimport calloc, free

from cdc.contract._header cimport header
from cdc.contract.formats._objects cimport Buffer, Cell, ObjectWriter

cdef enum:
    _MESSAGE_AT = 25  # behind the frame's tag and three numbers of eight bytes
    _RELATION_AT = 26
    _TUPLE_AT = 30  # its tag: N, K or O


cdef class PlainTable:
    """What there is to know of a table to write its records; it belongs to one engine.

    Args:
        topic: of its records.
        fingerprint: of its definition.
        writers: the compiled writers of values and keys.
        key_places: of the key's columns, in key order.
        counts: of its changes.
    """

    cdef str topic
    cdef str fingerprint
    cdef ObjectWriter values
    cdef ObjectWriter keys
    cdef tuple key_places
    cdef object counts
    cdef Cell* cells
    cdef Cell* old_cells
    cdef Cell* key_cells
    cdef Buffer buffer
    # Of the transaction that is being read
    cdef object stamp
    cdef bytes inserted  # what stands before a header's ordinal
    cdef bytes updated
    cdef bytes deleted
    cdef bytes behind_seq
    # Of this batch
    cdef tuple watched
    cdef Py_ssize_t changes

    def __cinit__(self, topic, fingerprint, writers, key_places, counts):
        self.topic = topic
        self.fingerprint = fingerprint
        self.values, self.keys = writers
        self.key_places = tuple(key_places)
        if len(self.key_places) != self.keys.width or not all([0 <= each < self.values.width for each in key_places]):
            raise ValueError("as many places as the key has columns, each of a column")
        self.counts = counts
        self.buffer = Buffer()
        self.cells = <Cell*>calloc(self.values.width, sizeof(Cell))
        self.old_cells = <Cell*>calloc(self.values.width, sizeof(Cell))
        self.key_cells = <Cell*>calloc(self.keys.width, sizeof(Cell))
        if self.cells == NULL or self.old_cells == NULL or self.key_cells == NULL:
            raise MemoryError

    def __dealloc__(self):
        free(self.cells)
        free(self.old_cells)
        free(self.key_cells)

    cdef void begin(self, object stamp, tuple watched) except *:
        """Rows of this transaction follow."""
        self.watched = watched
        if self.stamp is not stamp:
            self.stamp = stamp
            before_op, before_seq, self.behind_seq = stamp.around(self.fingerprint)
            self.inserted = before_op + b"c" + before_seq
            self.updated = before_op + b"u" + before_seq
            self.deleted = before_op + b"d" + before_seq

    cdef void end(self) except *:
        """Another table follows, or the batch is over."""
        if self.changes:
            self.counts.changes += self.changes
            self.changes = 0

    cdef tuple record(self, const unsigned char* at, const unsigned char* end, int64_t seq):
        """The record of one message, whose tag is at ``at``; None when it is declined."""
        cdef unsigned char tag = at[0]
        cdef unsigned char part = at[_TUPLE_AT - _MESSAGE_AT]
        cdef bytes key
        cdef bytes value = None
        cdef bytes before_seq = self.deleted
        at += _TUPLE_AT - _MESSAGE_AT + 1
        if part == b"N" and (tag == b"I" or tag == b"U"):
            at = self.read(at, end, self.cells)
            if at != end:
                return None
            key = self.key(self.cells)
        elif tag == b"U" and (part == b"K" or part == b"O"):
            at = self.read(at, end, self.old_cells)
            if at == NULL or at == end or at[0] != b"N":
                return None
            at = self.read(at + 1, end, self.cells)
            if at != end:
                return None
            key = self.key(self.cells)
            if key is None or self.key(self.old_cells) != key:
                return None
        elif tag == b"D" and (part == b"K" or part == b"O"):
            at = self.read(at, end, self.old_cells)
            if at != end:
                return None
            key = self.key(self.old_cells)
        else:
            return None
        if key is None:
            return None
        if tag != b"D":
            before_seq = self.inserted if tag == b"I" else self.updated
            self.buffer.clear()
            if not self.values.write(self.buffer, self.cells):
                return None
            value = self.buffer.taken()
        self.changes += 1
        return (self.topic, key, value, header(before_seq, seq, self.behind_seq), None)

    cdef const unsigned char* read(self, const unsigned char* at, const unsigned char* end, Cell* cells) noexcept:
        """The cells of one tuple, and the address behind it; NULL when it is declined."""
        cdef Py_ssize_t i
        cdef uint32_t length
        if end - at < 2 or (at[0] << 8 | at[1]) != self.values.width:
            return NULL
        at += 2
        for i in range(self.values.width):
            if at == end:
                return NULL
            if at[0] == b"n":
                cells[i].start = NULL
                cells[i].length = 0
                at += 1
                continue
            if at[0] != b"t" or end - at < 5:
                return NULL
            length = _u32(at + 1)
            at += 5
            if length > end - at:
                return NULL
            cells[i].start = at
            cells[i].length = length
            at += length
        return at

    cdef bytes key(self, const Cell* cells):
        """Of a row; None when it has none, or one that is declined."""
        cdef Py_ssize_t i
        for i in range(self.keys.width):
            self.key_cells[i] = cells[<Py_ssize_t>self.key_places[i]]
            if self.key_cells[i].start == NULL:
                return None
        self.buffer.clear()
        if not self.keys.write(self.buffer, self.key_cells):
            return None
        return self.buffer.taken()


def take_rows(list frames, Py_ssize_t place, dict relations, dict plain, list ready, int64_t seq, transaction):
    """Take rows as far as they are ordinary.

    Args:
        frames: a batch, as the walsender sent them.
        place: where to begin.
        relations: by id, as the decoder knows them now.
        plain: the ``PlainTable`` of each relation that is published.
        ready: where records go.
        seq: of the last change that was taken.
        transaction: its ``HeaderStamp``, its 64-bit id, the keys that are watched by topic, and topics with a history.

    Returns:
        The place of the first frame that is declined, and ``seq`` of the last change that was taken.
    """
    stamp, xid, watched, histories = transaction
    cdef PlainTable table = None
    cdef uint32_t relation_id = 0
    cdef bytes frame
    cdef const unsigned char* data
    cdef tuple record
    while place < len(frames):
        frame = <bytes>frames[place]
        data = <const unsigned char*>PyBytes_AS_STRING(frame)
        if PyBytes_GET_SIZE(frame) <= _TUPLE_AT or data[0] != b"w":
            break
        if table is None or _u32(data + _RELATION_AT) != relation_id:
            if table is not None:
                table.end()
            relation_id = _u32(data + _RELATION_AT)
            table = _table(relations, plain, relation_id)
            if table is None or table.topic in histories:
                table = None
                break
            table.begin(stamp, watched.get(table.topic))
        record = table.record(data + _MESSAGE_AT, data + PyBytes_GET_SIZE(frame), seq + 1)
        if record is None:
            break
        if table.watched is not None:
            for keys in table.watched:
                keys[record[1]] = xid
        ready.append(record)
        seq += 1
        place += 1
    if table is not None:
        table.end()
    return place, seq


cdef PlainTable _table(dict relations, dict plain, uint32_t relation_id):
    relation = relations.get(relation_id)
    return None if relation is None else plain.get(relation)


cdef inline uint32_t _u32(const unsigned char* at) noexcept:
    return <uint32_t>at[0] << 24 | <uint32_t>at[1] << 16 | <uint32_t>at[2] << 8 | at[3]
