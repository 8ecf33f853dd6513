# cython: boundscheck=False, wraparound=False
"""The twin of ``protobuf/writer.py`` and ``protobuf/reader.py`` in C: the same bytes as Python makes.

``_objects.pyx`` explains how to read this if you know Python. A cell that is not in its type's ordinary form goes to the
column's writer in Python, which also knows what to do with values beyond the type. If that raises, the row is declined,
and so is a row with the JSON document ``null``, which the record's header has to mention. The reader leaves fields of
some types to Python, and declines values that are damaged: Python says what is wrong with them.
"""

from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize, PyBytes_GET_SIZE
from libc.stdint cimport int64_t, uint64_t
from libc.string cimport memcmp

from cdc.base._source cimport CDC_SOURCE
from cdc.contract.formats._avro_rows cimport (
    _DAY, _add_binary, _add_number, _add_timestamp, _digits, _hex_digit, _read_date, _read_time, _write_double,
)
from cdc.contract.formats._objects cimport Buffer, Cell, RowWriter, is_null_document, is_utf8, write_text

SOURCE = CDC_SOURCE

cdef enum:
    # How a cell's text is converted; protobuf/types.py chooses by these numbers
    OTHER = 0  # the column's writer in Python
    INTEGER = 1
    TEXT = 2
    DOCUMENT = 3
    BOOLEAN = 4
    DOUBLE = 5
    TIMESTAMPTZ = 6
    BINARY = 7
    ARRAY = 32  # is added to the element's number

cdef enum:
    _MOST_DIGITS = 18  # of a number that surely fits into 64 bits with a sign
    _ELEMENT = 0x0A  # the tag of field 1, counted: an element of an array
    _SECONDS = 0x08
    _NANOS = 0x10

cdef int64_t _SECOND = 1000000
cdef int64_t _FIRST_SECOND = -62135596800  # 0001-01-01
cdef int64_t _LAST_SECOND = 253402300799  # 9999-12-31 23:59:59


cdef class ValueWriter(RowWriter):
    """Writes rows whose columns have rising numbers as values: the head, then a field for each cell that is not NULL.

    Args:
        head: the bytes that each value begins with.
        columns: for each column how its text is converted, its tag, the tag of a value in an element if it is an array,
            whether it may be NULL, the number of its bits, and its writer in Python, which writes the tag as well.
    """

    cdef bytes _head
    cdef bytes _kinds
    cdef bytes _optional
    cdef tuple _tags
    cdef tuple _inner
    cdef tuple _writers
    cdef tuple _sizes

    def __init__(self, head, columns):
        kinds, tags, inner, optional, sizes, writers = zip(*columns, strict=True)
        self._head = head
        self._kinds = bytes(kinds)
        self._optional = bytes(optional)
        self._tags = tuple(tags)
        self._inner = tuple(inner)
        self._sizes = tuple(sizes)
        self._writers = tuple(writers)
        self.width = len(self._kinds)

    cdef bint write(self, Buffer out, const Cell* cells) except -1:
        cdef Py_ssize_t i, before
        cdef const unsigned char* kinds = <const unsigned char*>PyBytes_AS_STRING(self._kinds)
        cdef const unsigned char* optional = <const unsigned char*>PyBytes_AS_STRING(self._optional)
        cdef bytes tag
        out.add(<const unsigned char*>PyBytes_AS_STRING(self._head), PyBytes_GET_SIZE(self._head))
        for i in range(self.width):
            if cells[i].start == NULL:
                if not optional[i]:
                    return False
                continue
            if kinds[i] == DOCUMENT and is_null_document(cells[i]):
                return False
            before = out.size
            if kinds[i] != OTHER:
                tag = <bytes>self._tags[i]
                out.add(<const unsigned char*>PyBytes_AS_STRING(tag), PyBytes_GET_SIZE(tag))
                if kinds[i] & ARRAY:
                    if self._write_array(out, i, kinds[i] & ~ARRAY, cells[i]):
                        continue
                elif _write_plain(out, kinds[i], <int>self._sizes[i], cells[i]):
                    continue
                out.size = before
            if not self._write_in_python(out, i, cells[i]):
                return False
        return True

    cdef bint _write_array(self, Buffer out, Py_ssize_t place, unsigned char kind, Cell cell) except -1:
        """Write an array of one dimension whose text has no quotes; returns False for all others."""
        cdef const unsigned char* at = cell.start + 1
        cdef const unsigned char* end = cell.start + cell.length - 1
        cdef const unsigned char* last
        cdef unsigned char tag = <unsigned char><int>self._inner[place]
        cdef int size = <int>self._sizes[place]
        cdef Cell element
        cdef Buffer elements = Buffer()
        cdef Buffer one = Buffer()
        if cell.length < 2 or cell.start[0] != b"{" or end[0] != b"}":
            return False
        last = at
        while last < end:
            if last[0] == b'"' or last[0] == b"\\" or last[0] == b"{" or last[0] == b"}":
                return False
            last += 1
        while at != end or at != cell.start + 1:
            last = at
            while last < end and last[0] != b",":
                last += 1
            element.start = at
            element.length = last - at
            one.clear()
            if element.length != 4 or memcmp(at, b"NULL", 4) != 0:
                one.add(&tag, 1)
                if not _write_plain(one, kind, size, element):
                    return False
            elements.add(b"\x0a", 1)
            _write_counted(elements, one.data, one.size)
            at = last + 1
            if at > end:
                break
        _write_counted(out, elements.data, elements.size)
        return True

    cdef bint _write_in_python(self, Buffer out, Py_ssize_t place, Cell cell) except -1:
        cdef bytes field = PyBytes_FromStringAndSize(<const char*>cell.start, cell.length)
        try:
            field = self._writers[place](field)
        except Exception:  # declined: Python writes the row again, and raises it if it is an error
            return False
        out.add(<const unsigned char*>PyBytes_AS_STRING(field), PyBytes_GET_SIZE(field))
        return True


cdef bint _write_plain(Buffer out, unsigned char kind, int size, Cell cell) except -1:
    """Write a cell in its type's ordinary form. Returns False for all others; then the caller forgets the bytes."""
    if kind == INTEGER:
        return _write_integer(out, cell, size)
    if kind == TEXT or kind == DOCUMENT:
        if not is_utf8(cell.start, cell.length):
            return False
        return _write_counted(out, cell.start, cell.length)
    if kind == TIMESTAMPTZ:
        return _write_timestamp(out, cell)
    if kind == BOOLEAN:
        if cell.length != 1 or (cell.start[0] != b"t" and cell.start[0] != b"f"):
            return False
        out.add(b"\1" if cell.start[0] == b"t" else b"\0", 1)
        return True
    if kind == DOUBLE:
        return _write_double(out, cell)
    if kind == BINARY:
        return _write_binary(out, cell)
    return False


cdef int _add_varint(Buffer out, uint64_t rest) except -1:
    out.reserve(10)
    while rest >= 0x80:
        out.data[out.size] = <unsigned char>(rest & 0x7F | 0x80)
        out.size += 1
        rest >>= 7
    out.data[out.size] = <unsigned char>rest
    out.size += 1
    return 0


cdef bint _write_counted(Buffer out, const unsigned char* start, Py_ssize_t length) except -1:
    _add_varint(out, length)
    out.add(start, length)
    return True


cdef bint _write_integer(Buffer out, Cell cell, int bits) except -1:
    cdef const unsigned char* at = cell.start
    cdef Py_ssize_t length = cell.length
    cdef bint is_negative = length > 0 and at[0] == b"-"
    cdef int64_t number
    if is_negative:
        at += 1
        length -= 1
    if not 0 < length <= _MOST_DIGITS or not _digits(at, length, &number):
        return False
    if is_negative:
        number = -number
    if bits < 64 and not -(<int64_t>1 << (bits - 1)) <= number < <int64_t>1 << (bits - 1):
        return False
    _add_varint(out, <uint64_t>number)
    return True


cdef bint _write_timestamp(Buffer out, Cell cell) except -1:
    cdef const unsigned char* start = cell.start
    cdef Py_ssize_t length = cell.length - 3
    cdef int64_t days, micros, seconds
    cdef Py_ssize_t before
    if length < 19 or start[10] != b" " or memcmp(start + length, b"+00", 3) != 0:
        return False
    if not _read_date(start, &days) or not _read_time(start + 11, length - 11, &micros):
        return False
    seconds = days * (_DAY // _SECOND) + micros // _SECOND
    before = out.size
    out.add(b"\0", 1)  # the length is less than 128
    if seconds:
        out.add(b"\x08", 1)
        _add_varint(out, <uint64_t>seconds)
    if micros % _SECOND:
        out.add(b"\x10", 1)
        _add_varint(out, <uint64_t>(micros % _SECOND * 1000))
    out.data[before] = <unsigned char>(out.size - before - 1)
    return True


cdef bint _write_binary(Buffer out, Cell cell) except -1:
    """Write what ``\\x`` and hexadecimal digits stand for."""
    cdef Py_ssize_t i, size = (cell.length - 2) // 2
    cdef int high, low
    if cell.length < 2 or cell.length % 2 or cell.start[0] != b"\\" or cell.start[1] != b"x":
        return False
    _add_varint(out, size)
    out.reserve(size)
    for i in range(size):
        high = _hex_digit(cell.start[2 + 2 * i])
        low = _hex_digit(cell.start[3 + 2 * i])
        if high < 0 or low < 0:
            return False
        out.data[out.size + i] = <unsigned char>(high << 4 | low)
    out.size += size
    return True


cdef class ValueReader:
    """Reads values whose columns have rising numbers as JSON objects.

    Args:
        head_bytes: the length of the head, which says nothing about the row.
        columns: for each column its name as a JSON string, its tag, how it is read, the tag of a value in an element if
            it is an array, whether it may be NULL, the number of its bits, and its reader in Python.
    """

    cdef Py_ssize_t _head_bytes
    cdef tuple _labels
    cdef tuple _tags
    cdef bytes _kinds
    cdef bytes _inner
    cdef bytes _optional
    cdef tuple _sizes
    cdef tuple _readers

    def __init__(self, head_bytes, columns):
        names, tags, kinds, inner, optional, sizes, readers = zip(*columns, strict=True)
        self._head_bytes = head_bytes
        self._labels = tuple([(b"," if i else b"{") + name + b":" for i, name in enumerate(names)])
        self._tags = tuple(tags)
        self._kinds = bytes(kinds)
        self._inner = bytes(inner)
        self._optional = bytes(optional)
        self._sizes = tuple(sizes)
        self._readers = tuple(readers)

    def json(self, bytes value not None):
        """Returns the object of a row; None if the value is declined."""
        cdef Buffer out = Buffer()
        cdef const unsigned char* start = <const unsigned char*>PyBytes_AS_STRING(value)
        cdef const unsigned char* end = start + PyBytes_GET_SIZE(value)
        cdef const unsigned char* at = start + self._head_bytes
        cdef const unsigned char* kinds = <const unsigned char*>PyBytes_AS_STRING(self._kinds)
        cdef const unsigned char* inner = <const unsigned char*>PyBytes_AS_STRING(self._inner)
        cdef const unsigned char* optional = <const unsigned char*>PyBytes_AS_STRING(self._optional)
        cdef Py_ssize_t i
        cdef bytes label, tag
        if at > end or start[0] or start[self._head_bytes - 1]:
            return None
        for i in range(len(self._labels)):
            label = <bytes>self._labels[i]
            out.add(<const unsigned char*>PyBytes_AS_STRING(label), PyBytes_GET_SIZE(label))
            tag = <bytes>self._tags[i]
            if end - at < PyBytes_GET_SIZE(tag) or memcmp(at, PyBytes_AS_STRING(tag), PyBytes_GET_SIZE(tag)) != 0:
                if not optional[i]:
                    return None
                out.add(b"null", 4)
                continue
            at += PyBytes_GET_SIZE(tag)
            if kinds[i] == OTHER:
                at = self._read_in_python(out, value, at - start, i)
            elif kinds[i] & ARRAY:
                at = _read_array(out, at, end, kinds[i] & ~ARRAY, inner[i], <int>self._sizes[i])
            else:
                at = _read(out, at, end, kinds[i], <int>self._sizes[i])
            if at == NULL:
                return None
        if at != end:  # a text, an unknown field, or one at the wrong place
            return None
        out.add(b"}", 1)
        return out.taken()

    cdef const unsigned char* _read_in_python(self, Buffer out, bytes value, Py_ssize_t place, Py_ssize_t column):
        """Returns where the field ends; NULL if Python refuses it."""
        cdef bytes text
        try:
            text, place = self._readers[column](value, place, PyBytes_GET_SIZE(value))
        except Exception:  # declined: Python reads the value again, and raises it
            return NULL
        if not 0 <= place <= PyBytes_GET_SIZE(value):
            return NULL
        out.add(<const unsigned char*>PyBytes_AS_STRING(text), PyBytes_GET_SIZE(text))
        return <const unsigned char*>PyBytes_AS_STRING(value) + place


cdef const unsigned char* _read_varint(
    const unsigned char* at, const unsigned char* end, uint64_t* number
) noexcept nogil:
    """Returns where the number ends; NULL if it is damaged or longer than it needs to be."""
    cdef uint64_t rest = 0
    cdef int shift = 0
    while at < end and shift < 63:
        rest |= <uint64_t>(at[0] & 0x7F) << shift
        at += 1
        if (at - 1)[0] < 0x80:
            if shift and not (at - 1)[0]:
                return NULL
            number[0] = rest
            return at
        shift += 7
    if at < end and at[0] == 1:  # the tenth byte has one bit of 64
        number[0] = rest | <uint64_t>1 << 63
        return at + 1
    return NULL


cdef const unsigned char* _read_counted(
    const unsigned char* at, const unsigned char* end, Cell* cell
) noexcept nogil:
    cdef uint64_t length
    at = _read_varint(at, end, &length)
    if at == NULL or length > <uint64_t>(end - at):
        return NULL
    cell.start = at
    cell.length = <Py_ssize_t>length
    return at + length


cdef const unsigned char* _read(
    Buffer out, const unsigned char* at, const unsigned char* end, unsigned char kind, int size
) except? NULL:
    """Append the JSON of a value that begins at ``at``. Returns where it ends; NULL if it is damaged."""
    cdef uint64_t bits
    cdef int64_t number
    cdef Cell cell
    if kind == BOOLEAN:
        if at == end or at[0] > 1:
            return NULL
        if at[0]:
            out.add(b"true", 4)
        else:
            out.add(b"false", 5)
        return at + 1
    if kind == INTEGER:
        at = _read_varint(at, end, &bits)
        number = <int64_t>bits
        if at == NULL:
            return NULL
        if size < 64 and not -(<int64_t>1 << (size - 1)) <= number < <int64_t>1 << (size - 1):
            return NULL
        _add_number(out, number)
        return at
    at = _read_counted(at, end, &cell)
    if at == NULL:
        return NULL
    if kind == TEXT:
        return at if write_text(out, cell) else NULL
    if kind == BINARY:
        _add_binary(out, cell)
        return at
    if kind == TIMESTAMPTZ:
        return at if _read_timestamp(out, cell) else NULL
    if kind != DOCUMENT or not cell.length or not is_utf8(cell.start, cell.length):
        return NULL
    out.add(cell.start, cell.length)
    return at


cdef bint _read_timestamp(Buffer out, Cell cell) except -1:
    cdef const unsigned char* at = cell.start
    cdef const unsigned char* end = cell.start + cell.length
    cdef uint64_t seconds = 0, nanos = 0
    if at < end and at[0] == _SECONDS:
        at = _read_varint(at + 1, end, &seconds)
        if at == NULL:
            return False
    if at < end and at[0] == _NANOS:
        at = _read_varint(at + 1, end, &nanos)
        if at == NULL:
            return False
    if at != end or nanos % 1000 or nanos >= 1000000000:
        return False
    if not _FIRST_SECOND <= <int64_t>seconds <= _LAST_SECOND:
        return False
    return _add_timestamp(out, <int64_t>seconds * _SECOND + <int64_t>(nanos // 1000), True)


cdef const unsigned char* _read_array(
    Buffer out, const unsigned char* at, const unsigned char* end, unsigned char kind, unsigned char tag, int size
) except? NULL:
    cdef Cell array, element
    cdef const unsigned char* after
    cdef bint is_first = True
    after = _read_counted(at, end, &array)
    if after == NULL:
        return NULL
    at = array.start
    out.add(b"[", 1)
    while at < after:
        if at[0] != _ELEMENT:
            return NULL
        at = _read_counted(at + 1, after, &element)
        if at == NULL:
            return NULL
        if not is_first:
            out.add(b",", 1)
        is_first = False
        if not element.length:
            out.add(b"null", 4)
        elif element.start[0] != tag or _read(out, element.start + 1, at, kind, size) != at:
            return NULL
    out.add(b"]", 1)
    return after
