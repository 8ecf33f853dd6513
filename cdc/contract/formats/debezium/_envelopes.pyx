# cython: boundscheck=False, wraparound=False
"""The twin of ``envelope.py`` and ``avro_envelope.py`` in C: makes the same envelopes, and opens them.

``_objects.pyx`` explains how to read this if you know Python. ``take_records`` declines the records that need a
decision: those of definitions that it does not know, rows under a changed key, deletes with an odd key, and headers that
look different. The readers decline what the bridge does not write, what is damaged, and deletes.
"""

from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize, PyBytes_GET_SIZE
from libc.stdint cimport int64_t, uint64_t
from libc.stdlib cimport calloc, free
from libc.string cimport memcmp, memcpy

from cdc.base._source cimport CDC_SOURCE
from cdc.contract.formats._avro_rows cimport ValueReader, _add_number, _add_varint, _read_counted, _read_varint
from cdc.contract.formats._objects cimport Buffer, Cell, RowWriter, is_utf8
from cdc.contract.formats.debezium._rows cimport EventRowReader, after_text, value_end

SOURCE = CDC_SOURCE

cdef enum:
    # How a key's column is read; envelope.py chooses by these numbers
    INTEGER = 1
    STRING = 2

cdef enum:
    _FINGERPRINT = 16  # letters
    _MOST_DIGITS = 18  # of a number that surely fits into 64 bits
    _MOST_MICROS = 16  # digits of a time in microseconds that fits into 64 bits in nanoseconds
    _NUMBER = 20  # room for the digits of any number of 64 bits
    _HEAD = 5  # bytes before a value in Avro: a zero, and the schema's id

ctypedef const unsigned char* Place


cdef struct Stamp:
    # What a record's header says
    unsigned char op
    Cell lsn
    Cell seq
    int64_t position
    int64_t xid  # -1: the row was read, and no transaction wrote it
    Cell ts
    int64_t micros
    Place fingerprint


cdef class Envelope:
    """Makes the envelopes of one definition.

    Args:
        mark: ends the header of each.
        rows: writes the table's rows.
        key: for each column of the key its name as a JSON string, its place in the row, and how it is read; a number
            that is not known here leaves deletes to Python.
    """

    cdef bytes _mark
    cdef RowWriter _rows
    cdef tuple _labels
    cdef tuple _places
    cdef tuple _kinds
    cdef Cell* _cells

    def __cinit__(self, mark, rows, key, *_):
        self._rows = rows
        self._mark = mark
        names, places, kinds = zip(*key, strict=True)
        self._labels = tuple([(b"," if i else b"{") + name + b":" for i, name in enumerate(names)])
        self._places = tuple(places)
        self._kinds = tuple(kinds)
        if not all([0 <= each < self._rows.width for each in places]):
            raise ValueError("each place is one of a column")
        self._cells = <Cell*>calloc(self._rows.width, sizeof(Cell))
        if self._cells == NULL:
            raise MemoryError

    def __dealloc__(self):
        free(self._cells)

    cdef bytes before(self, bytes key):
        """Returns a row of which only the key is known; None when the key is not as the bridge writes it."""
        cdef Py_ssize_t i
        cdef Place at = <Place>PyBytes_AS_STRING(key)
        cdef Place end
        cdef Cell* cell
        cdef Buffer out
        if not is_utf8(at, PyBytes_GET_SIZE(key)):
            return None
        for i in range(len(self._labels)):
            at = after_text(at, <bytes>self._labels[i])
            end = _after_value(at)
            if end == NULL:
                return None
            cell = &self._cells[<Py_ssize_t>self._places[i]]
            cell.start = at
            cell.length = end - at
            if <int>self._kinds[i] == INTEGER:
                if not _is_integer(cell[0]):
                    return None
            elif <int>self._kinds[i] == STRING and at[0] == b'"':
                cell.start += 1
                cell.length -= 2
                if _has_escapes(cell[0]):
                    return None
            else:
                return None
            at = end
        if at[0] != b"}" or at + 1 != <Place>PyBytes_AS_STRING(key) + PyBytes_GET_SIZE(key):
            return None
        out = Buffer()
        return out.taken() if self._rows.write(out, self._cells) else None

    cdef bytes around(self, unsigned char op, bytes before, bytes after, const Stamp* stamp, int64_t now_ns):
        """Returns the envelope around the rows before and after a change."""
        raise NotImplementedError

    cdef bytes marked(self, bytes header):
        """Returns the header with the mark."""
        cdef Py_ssize_t length = PyBytes_GET_SIZE(header)
        cdef Py_ssize_t more = PyBytes_GET_SIZE(self._mark)
        cdef bytes whole = PyBytes_FromStringAndSize(NULL, length + more)
        memcpy(PyBytes_AS_STRING(whole), PyBytes_AS_STRING(header), length)
        memcpy(PyBytes_AS_STRING(whole) + length, PyBytes_AS_STRING(self._mark), more)
        return whole


cdef bint _is_integer(Cell cell) noexcept nogil:
    """Whether a JSON number is whole, and written as PostgreSQL does."""
    cdef Py_ssize_t i = 0
    if cell.start[0] == b"-":
        i = 1
        if cell.length > 1 and cell.start[1] == b"0":
            return False
    if i == cell.length:
        return False
    while i < cell.length:
        if not b"0" <= cell.start[i] <= b"9":
            return False
        i += 1
    return True


cdef bint _has_escapes(Cell cell) noexcept nogil:
    cdef Py_ssize_t i
    for i in range(cell.length):
        if cell.start[i] == b"\\":
            return True
    return False


cdef inline int _add(Buffer out, bytes text) except -1:
    return out.add(<Place>PyBytes_AS_STRING(text), PyBytes_GET_SIZE(text))


cdef class JsonEnvelope(Envelope):
    """Makes envelopes in JSON.

    Args:
        mark, rows, key: as for ``Envelope``.
        parts: what is the same in all of them: up to the row before, before the time of the change, before its
            sequence, before its transaction, and the end.
    """

    cdef bytes _start
    cdef bytes _source
    cdef bytes _database
    cdef bytes _table
    cdef bytes _end
    cdef Buffer _out

    def __init__(self, mark, rows, key, parts):
        self._start, self._source, self._database, self._table, self._end = parts
        self._out = Buffer()

    cdef bytes around(self, unsigned char op, bytes before, bytes after, const Stamp* stamp, int64_t now_ns):
        cdef Buffer out = self._out
        out.clear()
        _add(out, self._start)
        _add_row(out, before)
        out.add(b',"after":', 9)
        _add_row(out, after)
        _add(out, self._source)
        out.add(b',"ts_ms":', 9)
        out.add(stamp.ts.start, stamp.ts.length - 3)
        out.add(b',"snapshot":"', 13)
        if op == b"r":
            out.add(b"incremental", 11)
        else:
            out.add(b"false", 5)
        _add(out, self._database)
        if op == b"r":
            out.add(b'"[null,\\"', 9)
            _add_number(out, stamp.position)
        else:
            out.add(b'"[\\"', 4)
            _add_number(out, stamp.position)
            out.add(b'\\",\\"', 5)
            out.add(stamp.seq.start, stamp.seq.length)
        out.add(b'\\"]","ts_us":', 13)
        out.add(stamp.ts.start, stamp.ts.length)
        out.add(b',"ts_ns":', 9)
        out.add(stamp.ts.start, stamp.ts.length)
        out.add(b"000", 3)
        _add(out, self._table)
        out.add(b',"txId":', 8)
        if stamp.xid < 0:
            out.add(b"null", 4)
        else:
            _add_number(out, stamp.xid)
        out.add(b',"lsn":', 7)
        _add_number(out, stamp.position)
        out.add(b',"xmin":null,"origin":null,"origin_lsn":null},"transaction":null,"op":"', 71)
        out.add(&op, 1)
        out.add(b'","ts_ms":', 10)
        _add_number(out, now_ns // 1000000)
        out.add(b',"ts_us":', 9)
        _add_number(out, now_ns // 1000)
        out.add(b',"ts_ns":', 9)
        _add_number(out, now_ns)
        _add(out, self._end)
        return out.taken()


cdef inline int _add_row(Buffer out, bytes row) except -1:
    return out.add(b"null", 4) if row is None else _add(out, row)


cdef class AvroEnvelope(Envelope):
    """Makes envelopes in Avro.

    Args:
        mark, rows, key: as for ``Envelope``.
        parts: what is the same in all of them: the head, what begins ``source``, the database, the table.
    """

    cdef bytes _head
    cdef bytes _source
    cdef bytes _database
    cdef bytes _table
    cdef Buffer _out

    def __init__(self, mark, rows, key, parts):
        self._head, self._source, self._database, self._table = parts
        self._out = Buffer()

    cdef bytes around(self, unsigned char op, bytes before, bytes after, const Stamp* stamp, int64_t now_ns):
        cdef Buffer out = self._out
        cdef Buffer sequence = Buffer()
        out.clear()
        _add(out, self._head)
        _add_branch(out, before)
        _add_branch(out, after)
        _add(out, self._source)
        _add_varint(out, stamp.micros // 1000)
        if op == b"r":
            out.add(b"\0\x16incremental", 13)
            sequence.add(b'[null,"', 7)
            _add_number(sequence, stamp.position)
        else:
            out.add(b"\0\x0afalse", 7)
            sequence.add(b'["', 2)
            _add_number(sequence, stamp.position)
            sequence.add(b'","', 3)
            sequence.add(stamp.seq.start, stamp.seq.length)
        sequence.add(b'"]', 2)
        _add(out, self._database)
        _add_long(out, sequence.size)
        out.add(sequence.data, sequence.size)
        _add_long(out, stamp.micros)
        _add_long(out, stamp.micros * 1000)
        _add(out, self._table)
        if stamp.xid < 0:
            out.add(b"\0", 1)
        else:
            _add_long(out, stamp.xid)
        _add_long(out, stamp.position)
        out.add(b"\0\0\0\0\2", 5)  # xmin, origin, origin_lsn, transaction; the length of op
        out.add(&op, 1)
        _add_long(out, now_ns // 1000000)
        _add_long(out, now_ns // 1000)
        _add_long(out, now_ns)
        return out.taken()


cdef inline int _add_branch(Buffer out, bytes row) except -1:
    if row is None:
        return out.add(b"\0", 1)
    out.add(b"\2", 1)
    return _add(out, row)


cdef inline int _add_long(Buffer out, int64_t number) except -1:
    """Append a number in a union with NULL."""
    out.add(b"\2", 1)
    return _add_varint(out, number)


def take_records(list ready, Py_ssize_t place, list made, dict known, moved, clock):
    """Make envelopes up to the first record that is declined.

    Args:
        ready: the records, as ``EnvelopeMaker.records`` gets them.
        place: the index of the first record to take.
        made: the list that records to be written are added to.
        known: the ``Envelope`` of each definition, by fingerprint.
        moved: LSN and seq of the last tombstone of a changed key; None if there was none.
        clock: returns the time, in nanoseconds since 1970.

    Returns:
        The index of the first record that is declined.
    """
    cdef Stamp stamp
    cdef Envelope envelope = None
    cdef bytes fingerprint = None
    cdef bytes header, key, value, old, moved_lsn = None, moved_seq = None
    if moved is not None:
        moved_lsn, moved_seq = moved
    while place < len(ready):
        topic, key, value, header, beside = <tuple>ready[place]
        if beside is not None and type(beside) is not bytes:  # the parts of an event
            break
        old = beside
        if not _read_header(header, &stamp):
            break
        if fingerprint is None or memcmp(PyBytes_AS_STRING(fingerprint), stamp.fingerprint, _FINGERPRINT) != 0:
            fingerprint = PyBytes_FromStringAndSize(<const char*>stamp.fingerprint, _FINGERPRINT)
            envelope = known.get(fingerprint)
        if envelope is None:
            break
        if value is None:
            if stamp.op == b"u":
                break
            if old is None:
                old = envelope.before(key)
                if old is None:
                    break
            stamp.op = b"d"
        elif stamp.op == b"u" and moved_lsn is not None:
            if _is(stamp.lsn, moved_lsn) and _is(stamp.seq, moved_seq):
                break
        made.append(
            (topic, key, envelope.around(stamp.op, old, value, &stamp, clock()), envelope.marked(header), None)
        )
        if value is None:
            made.append((topic, key, None, header, None))
        place += 1
    return place


cdef bint _is(Cell cell, bytes text) noexcept:
    return cell.length == PyBytes_GET_SIZE(text) and memcmp(cell.start, PyBytes_AS_STRING(text), cell.length) == 0


cdef bint _read_header(bytes header, Stamp* stamp) noexcept:
    """Reads ``v=1;op=u;lsn=0/1925728;seq=17;xid=734;ts=1795190486566123;schema=3f2a91c05b7e6d14``.

    Nothing counts the bytes that are left: a NUL ends them, and no part of a header is one.
    """
    cdef Place at = <Place>PyBytes_AS_STRING(header)
    cdef Place after
    cdef uint64_t high, low
    cdef int64_t number
    cdef int i
    at = after_text(at, b"v=1;op=")
    if at == NULL or not (at[0] == b"c" or at[0] == b"u" or at[0] == b"d" or at[0] == b"r" or at[0] == b"t"):
        return False
    stamp.op = at[0]
    at = after_text(at + 1, b";lsn=")
    if at == NULL:
        return False
    stamp.lsn.start = at
    at = _read_hexadecimal(at, &high)
    if at == NULL or at[0] != b"/":
        return False
    at = _read_hexadecimal(at + 1, &low)
    if at == NULL or high >> 31:
        return False
    stamp.lsn.length = at - stamp.lsn.start
    stamp.position = <int64_t>(high << 32 | low)
    at = after_text(at, b";seq=")
    if at == NULL or not _read_digits(&at, &stamp.seq, &number, _MOST_DIGITS):
        return False
    after = after_text(at, b";xid=")
    stamp.xid = -1
    if after != NULL:
        at = after
        if not _read_digits(&at, &stamp.ts, &number, _MOST_DIGITS):
            return False
        stamp.xid = number & 0xFFFFFFFF
    else:
        at = after_text(at, b";snap=")
        if at == NULL:
            return False
        while at[0] != b";" and at[0]:
            at += 1
    at = after_text(at, b";ts=")
    if at == NULL or not _read_digits(&at, &stamp.ts, &stamp.micros, _MOST_MICROS):
        return False
    if stamp.ts.length <= 3 or stamp.ts.start[0] == b"0" or stamp.micros > 9000000000000000:
        return False
    at = after_text(at, b";schema=")
    if at == NULL:
        return False
    stamp.fingerprint = at
    for i in range(_FINGERPRINT):
        if not (b"0" <= at[i] <= b"9" or b"a" <= at[i] <= b"f"):
            return False
    return True


cdef Place _read_hexadecimal(Place at, uint64_t* number) noexcept nogil:
    """Returns the address after one to eight digits; NULL if there are none, or more."""
    cdef int count = 0
    number[0] = 0
    while True:
        if b"0" <= at[0] <= b"9":
            number[0] = number[0] << 4 | (at[0] - 0x30)
        elif b"A" <= at[0] <= b"F":
            number[0] = number[0] << 4 | (at[0] - 0x41 + 10)
        else:
            return at if 0 < count <= 8 else NULL
        count += 1
        at += 1


cdef bint _read_digits(Place* at, Cell* digits, int64_t* number, int most) noexcept nogil:
    """Reads a number, and advances ``at``. Returns False if it has no digits, or more than ``most``."""
    number[0] = 0
    digits.start = at[0]
    while b"0" <= at[0][0] <= b"9":
        if at[0] - digits.start == most:
            return False
        number[0] = 10 * number[0] + (at[0][0] - 0x30)
        at[0] += 1
    digits.length = at[0] - digits.start
    return digits.length > 0


cdef class JsonEnvelopeReader:
    """Opens envelopes in JSON.

    Args:
        rows: reads the table's rows.
        start, end: what begins and ends each envelope.
    """

    cdef EventRowReader _rows
    cdef bytes _start
    cdef bytes _end
    cdef Buffer _out

    def __init__(self, rows, start, end):
        self._rows = rows
        self._start = start
        self._end = end
        self._out = Buffer()

    def json(self, bytes value not None):
        """Returns the row as the object that the topic contract describes; None if the envelope is declined."""
        cdef Place start = <Place>PyBytes_AS_STRING(value)
        cdef Place end = start + PyBytes_GET_SIZE(value)
        cdef Place at = after_text(start, self._start)
        at = _after(_after_value(at), b',"after":')
        if at == NULL:
            return None
        self._out.clear()
        at = self._rows.read(self._out, at)
        at = _after_value(_after(at, b',"source":'))
        at = _after_value(_after(at, b',"transaction":'))
        at = _after(at, b',"op":"')
        if at == NULL or not (at[0] == b"c" or at[0] == b"u" or at[0] == b"r") or at[1] != b'"':
            return None
        at = _after_value(_after(at + 2, b',"ts_ms":'))
        at = _after_value(_after(at, b',"ts_us":'))
        at = _after_value(_after(at, b',"ts_ns":'))
        at = _after(at, self._end)
        if at != end or not (value.isascii() or is_utf8(start, end - start)):
            return None
        return self._out.taken()


cdef Place _after(Place at, bytes text) noexcept:
    if at == NULL:
        return NULL
    return after_text(at, text)


cdef Place _after_value(Place at) noexcept nogil:
    if at == NULL:
        return NULL
    return value_end(at, 0)


cdef const unsigned char* _SOURCE = b"ssslDsSLLssLLLSL"  # of each field: a string or a number, in capitals if optional
cdef const unsigned char* _TRANSACTION = b"sll"
cdef const unsigned char* _TIMES = b"LLL"


cdef class AvroEnvelopeReader:
    """Opens envelopes in Avro.

    Args:
        rows: reads the table's rows.
    """

    cdef ValueReader _rows
    cdef Buffer _out

    def __init__(self, rows):
        self._rows = rows
        self._out = Buffer()

    def json(self, bytes value not None):
        """Returns the row as the object that the topic contract describes; None if the envelope is declined."""
        cdef Place start = <Place>PyBytes_AS_STRING(value)
        cdef Place end = start + PyBytes_GET_SIZE(value)
        cdef Place at = start + _HEAD
        if end - start < _HEAD + 2 or start[0]:
            return None
        self._out.clear()
        if at[0] == 2:
            at = self._rows.read(self._out, value, at + 1)
        elif at[0] == 0:
            at += 1
        else:
            return None
        self._out.clear()
        if at == NULL or at == end or at[0] != 2:
            return None
        at = self._rows.read(self._out, value, at + 1)
        at = _after_fields(at, end, _SOURCE, 16)
        if at == NULL or at == end:
            return None
        if at[0] == 2:
            at = _after_fields(at + 1, end, _TRANSACTION, 3)
        elif at[0]:
            return None
        else:
            at += 1
        if at == NULL or end - at < 2 or at[0] != 2 or not (at[1] == b"c" or at[1] == b"u" or at[1] == b"r"):
            return None
        at = _after_fields(at + 2, end, _TIMES, 3)
        return self._out.taken() if at == end else None


cdef Place _after_fields(Place at, Place end, Place kinds, int count) noexcept nogil:
    """Returns the address after so many fields; NULL if one of them is damaged."""
    cdef int i
    cdef unsigned char kind
    cdef int64_t number
    cdef Cell cell
    for i in range(count):
        if at == NULL or at == end:
            return NULL
        kind = kinds[i]
        if kind == b"D" or kind == b"S" or kind == b"L":
            at += 1
            if (at - 1)[0] == (2 if kind == b"D" else 0):  # NULL, which is the second branch beside a default
                continue
            if (at - 1)[0] != (0 if kind == b"D" else 2):
                return NULL
        if kind == b"l" or kind == b"L":
            at = _read_varint(at, end, &number)
            continue
        at = _read_counted(at, end, &cell)
        if at != NULL and not is_utf8(cell.start, cell.length):
            return NULL
    return at
