# cython: boundscheck=False, wraparound=False
"""Turns frames of ordinary rows into records in C, without decoder, engine and encoder, but with the same outcome.

``take_rows`` goes through a batch of frames and stops at the first one that it declines. It takes inserts, updates and
deletes of tables that the engine knows, with texts and NULLs in them, and unchanged TOAST if the old row in the same
frame has the value. It declines all that needs a decision: other messages, rows that must be read again, updates that
change the key, tables with a history, the JSON document ``null``, and whatever looks wrong. A frame that it declines
has changed nothing. So Python takes that frame from its first byte, and Python raises every error.

To read this if you know Python: ``cdef`` declares what is C. ``const unsigned char*`` is an address inside of a frame,
which the list keeps alive. Nothing checks bounds past an address, so each length that a frame claims is compared with
the frame's end before it is used.

https://www.postgresql.org/docs/current/protocol-logicalrep-message-formats.html has the layout.
"""

from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_GET_SIZE
from libc.stdint cimport int64_t, uint32_t
from libc.stdlib cimport calloc, free

from cdc.base._source cimport CDC_SOURCE
from cdc.contract._header cimport header
from cdc.contract.formats._objects cimport Buffer, Cell, RowWriter

SOURCE = CDC_SOURCE

cdef enum:
    _MESSAGE_AT = 25  # after the frame's tag and three numbers of eight bytes
    _RELATION_AT = 26
    _TUPLE_AT = 30  # its tag: N, K or O


cdef class PlainTable:
    """What it takes to write a table's records; belongs to one engine.

    Args:
        topic: the topic of its records.
        fingerprint: its definition's fingerprint.
        writers: the compiled writers of values and keys.
        key_places: the indexes of the key's columns, in key order.
        most_bytes: a row whose key and value, or whose old row, are larger is declined.
        counts: counts its changes.
        has_envelope: whether old rows have the form of values. If not, tables with a history are declined.
    """

    cdef str topic
    cdef str fingerprint
    cdef RowWriter values
    cdef RowWriter keys
    cdef tuple key_places
    cdef Py_ssize_t most_bytes
    cdef object counts
    cdef bint has_envelope
    cdef Cell* cells
    cdef Cell* old_cells
    cdef Cell* key_cells
    cdef Buffer buffer
    # Set for the transaction that is being read
    cdef object stamp
    cdef bytes inserted  # what stands before a header's ordinal
    cdef bytes updated
    cdef bytes deleted
    cdef bytes after_seq
    # Set for this batch
    cdef tuple watched
    cdef bint keeps_old
    cdef Py_ssize_t changes

    def __cinit__(self, topic, fingerprint, writers, key_places, most_bytes, counts, has_envelope):
        self.topic = topic
        self.fingerprint = fingerprint
        self.values, self.keys = writers
        self.key_places = tuple(key_places)
        if len(self.key_places) != self.keys.width or not all([0 <= each < self.values.width for each in key_places]):
            raise ValueError("as many places as the key has columns, each of a column")
        self.most_bytes = most_bytes
        self.counts = counts
        self.has_envelope = has_envelope
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

    cdef void begin(self, object stamp, tuple watched, bint keeps_old) except *:
        """Prepare for rows of this transaction."""
        self.watched = watched
        self.keeps_old = keeps_old
        if self.stamp is not stamp:
            self.stamp = stamp
            before_op, before_seq, self.after_seq = stamp.around(self.fingerprint)
            self.inserted = before_op + b"c" + before_seq
            self.updated = before_op + b"u" + before_seq
            self.deleted = before_op + b"d" + before_seq

    cdef void end(self) except *:
        """Count the changes, as another table follows or the batch is over."""
        if self.changes:
            self.counts.changes += self.changes
            self.changes = 0

    cdef tuple record(self, const unsigned char* at, const unsigned char* end, int64_t seq):
        """Returns the record of one message, whose tag is at ``at``; None when it is declined."""
        cdef unsigned char tag = at[0]
        cdef unsigned char part = at[_TUPLE_AT - _MESSAGE_AT]
        cdef bytes key
        cdef bytes value = None
        cdef bytes old = None
        cdef bytes before_seq = self.deleted
        at += _TUPLE_AT - _MESSAGE_AT + 1
        if part == b"N" and (tag == b"I" or tag == b"U"):
            at = self.read(at, end, self.cells, NULL)
            if at != end:
                return None
            key = self.key(self.cells)
        elif tag == b"U" and (part == b"K" or part == b"O"):
            at = self.read(at, end, self.old_cells, NULL)
            if at == NULL or at == end or at[0] != b"N":
                return None
            at = self.read(at + 1, end, self.cells, self.old_cells)
            if at != end:
                return None
            key = self.key(self.cells)
            if key is None or self.key(self.old_cells) != key:
                return None
        elif tag == b"D" and (part == b"K" or part == b"O"):
            at = self.read(at, end, self.old_cells, NULL)
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
            if PyBytes_GET_SIZE(value) + PyBytes_GET_SIZE(key) > self.most_bytes:
                return None
        if self.keeps_old and part != b"N":
            self.buffer.clear()
            if not self.values.write(self.buffer, self.old_cells):
                return None
            old = self.buffer.taken()
            if PyBytes_GET_SIZE(old) > self.most_bytes:
                return None
        self.changes += 1
        return (self.topic, key, value, header(before_seq, seq, self.after_seq), old)

    cdef const unsigned char* read(
        self, const unsigned char* at, const unsigned char* end, Cell* cells, const Cell* old
    ) noexcept:
        """Reads the cells of one tuple. Returns the address after it; NULL when it is declined.

        ``old`` has what the tuple leaves out as unchanged; NULL where there is no old row. A value that was left out is
        never SQL NULL, so a NULL in the old row says that the old row does not have it, either.
        """
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
            if at[0] == b"u" and old != NULL and old[i].start != NULL:
                cells[i] = old[i]
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
        """Returns a row's key; None when a column of it is NULL or declined."""
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
    """Take rows up to the first that is not ordinary.

    Args:
        frames: a batch, as the walsender sent them.
        place: the index of the first frame to take.
        relations: the relations that the decoder knows now, by id.
        plain: the ``PlainTable`` of each relation that is published.
        ready: the list that records are added to.
        seq: the ordinal of the last change that was taken.
        transaction: its ``HeaderStamp``, its 64-bit id, the keys that are watched by topic, and topics whose records
            need the old row.

    Returns:
        The index of the first frame that is declined, and ``seq`` of the last change that was taken.
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
            if table is None or (table.topic in histories and not table.has_envelope):
                table = None
                break
            table.begin(stamp, watched.get(table.topic), table.topic in histories)
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
