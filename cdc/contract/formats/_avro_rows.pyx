# cython: boundscheck=False, wraparound=False
"""The twin of ``avro/writer.py`` and ``avro/reader.py`` in C: the same bytes as Python makes.

``_objects.pyx`` explains how to read this if you know Python. A cell that is not in its type's ordinary form goes to the
column's writer in Python, which also knows what to do with values beyond the type. If that raises, the row is declined,
and so is a row with the JSON document ``null``, which the record's header has to mention. The reader leaves columns of
some types to Python, and declines values that are damaged: Python says what is wrong with them.
"""

from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize, PyBytes_GET_SIZE
from libc.stdint cimport int64_t, uint64_t
from libc.string cimport memcmp, memcpy
from posix.strings cimport strncasecmp

from cdc.base._source cimport CDC_SOURCE
from cdc.contract.formats._objects cimport Buffer, Cell, RowWriter, is_null_document, is_utf8, write_text

SOURCE = CDC_SOURCE

cdef extern from "Python.h":
    double PyOS_string_to_double(const char* text, char** end, void* overflow) except? -1.0

cdef enum:
    # How a cell's text is converted; avro/writer.py chooses by these numbers
    OTHER = 0  # the column's writer in Python
    INTEGER = 1
    TEXT = 2
    DOCUMENT = 3
    BOOLEAN = 4
    DOUBLE = 5
    DECIMAL = 6
    DATE = 7
    TIME = 8
    TIMESTAMP = 9
    TIMESTAMPTZ = 10
    BINARY = 11
    ZONED = 12  # in envelopes: a timestamp in UTC as Debezium writes it, with so many digits after the second
    ARRAY = 32  # is added to the element's number

cdef enum:
    _MOST_DIGITS = 18  # of a number that surely fits into 64 bits with a sign
    _LONGEST_DOUBLE = 31  # PostgreSQL prints at most 24 characters

cdef int64_t _DAY = 86400000000
cdef int64_t _FIRST_DAY = -719162  # 0001-01-01
cdef int64_t _LAST_DAY = 2932896  # 9999-12-31


cdef class ValueWriter(RowWriter):
    """Writes rows as values: the head, then a field for each cell.

    Args:
        head: the bytes that each value begins with.
        columns: for each column how its text is converted, the branch of a value that is not NULL (empty if the field
            is no union), whether it may be NULL, the number of its bits or digits, its scale, and its writer in Python.
    """

    cdef bytes _head
    cdef bytes _kinds
    cdef bytes _optional
    cdef tuple _branches
    cdef tuple _writers
    cdef tuple _sizes
    cdef tuple _scales

    def __init__(self, head, columns):
        kinds, branches, optional, sizes, scales, writers = zip(*columns, strict=True)
        self._head = head
        self._kinds = bytes(kinds)
        self._optional = bytes(optional)
        self._branches = tuple(branches)
        self._sizes = tuple(sizes)
        self._scales = tuple(scales)
        self._writers = tuple(writers)
        self.width = len(self._kinds)

    cdef bint write(self, Buffer out, const Cell* cells) except -1:
        cdef Py_ssize_t i, before
        cdef const unsigned char* kinds = <const unsigned char*>PyBytes_AS_STRING(self._kinds)
        cdef const unsigned char* optional = <const unsigned char*>PyBytes_AS_STRING(self._optional)
        cdef bytes branch
        out.add(<const unsigned char*>PyBytes_AS_STRING(self._head), PyBytes_GET_SIZE(self._head))
        for i in range(self.width):
            if cells[i].start == NULL:
                if not optional[i]:
                    return False
                out.add(b"\0", 1)
                continue
            before = out.size
            branch = <bytes>self._branches[i]
            out.add(<const unsigned char*>PyBytes_AS_STRING(branch), PyBytes_GET_SIZE(branch))
            if kinds[i] == DOCUMENT and is_null_document(cells[i]):
                return False
            if not self._write_plain(out, i, kinds[i], cells[i]):
                out.size = before
                if not self._write_in_python(out, i, cells[i]):
                    return False
        return True

    cdef bint _write_plain(self, Buffer out, Py_ssize_t place, unsigned char kind, Cell cell) except -1:
        """Write a cell in its type's ordinary form. Returns False for all others; then the caller forgets the bytes."""
        if kind == INTEGER:
            return _write_integer(out, cell, <int>self._sizes[place])
        if kind == TEXT or kind == DOCUMENT:
            if not is_utf8(cell.start, cell.length):
                return False
            return _write_counted(out, cell.start, cell.length)
        if kind == TIMESTAMP:
            return _write_timestamp(out, cell.start, cell.length)
        if kind == TIMESTAMPTZ:
            if cell.length < 3 or cell.start[cell.length - 3] != b"+":
                return False
            if cell.start[cell.length - 2] != b"0" or cell.start[cell.length - 1] != b"0":
                return False
            return _write_timestamp(out, cell.start, cell.length - 3)
        if kind == ZONED:
            return _write_zoned(out, cell, <int>self._sizes[place])
        if kind == DECIMAL:
            return _write_decimal(out, cell, <int>self._sizes[place], <int>self._scales[place])
        if kind == BOOLEAN:
            if cell.length != 1 or (cell.start[0] != b"t" and cell.start[0] != b"f"):
                return False
            out.add(b"\1" if cell.start[0] == b"t" else b"\0", 1)
            return True
        if kind == DOUBLE:
            return _write_double(out, cell)
        if kind == DATE:
            return _write_date(out, cell)
        if kind == TIME:
            return _write_time(out, cell)
        if kind == BINARY:
            return _write_binary(out, cell)
        if kind & ARRAY:
            return self._write_array(out, place, kind & ~ARRAY, cell)
        return False

    cdef bint _write_array(self, Buffer out, Py_ssize_t place, unsigned char kind, Cell cell) except -1:
        """Write an array of one dimension whose text has no quotes, and needs none; returns False for all others."""
        cdef const unsigned char* at = cell.start + 1
        cdef const unsigned char* end = cell.start + cell.length - 1
        cdef const unsigned char* last
        cdef Py_ssize_t count = 1
        cdef Cell element
        if cell.length < 2 or cell.start[0] != b"{" or end[0] != b"}":
            return False
        if at == end:
            out.add(b"\0", 1)
            return True
        last = at
        while last < end:
            if last[0] == b'"' or last[0] == b"\\" or last[0] == b"{" or last[0] == b"}" or _is_blank(last[0]):
                return False
            count += last[0] == b","
            last += 1
        _add_varint(out, count)
        while at <= end:
            last = at
            while last < end and last[0] != b",":
                last += 1
            element.start = at
            element.length = last - at
            if element.length == 4 and memcmp(at, b"NULL", 4) == 0:
                out.add(b"\0", 1)
            elif not element.length or (element.length == 4 and strncasecmp(<const char*>at, b"null", 4) == 0):
                return False
            else:
                out.add(b"\2", 1)
                if not self._write_plain(out, place, kind, element):
                    return False
            at = last + 1
        out.add(b"\0", 1)
        return True

    cdef bint _write_in_python(self, Buffer out, Py_ssize_t place, Cell cell) except -1:
        cdef bytes field = PyBytes_FromStringAndSize(<const char*>cell.start, cell.length)
        try:
            field = self._writers[place](field)
        except Exception:  # declined: Python writes the row again, and raises it if it is an error
            return False
        out.add(<const unsigned char*>PyBytes_AS_STRING(field), PyBytes_GET_SIZE(field))
        return True


cdef inline bint _is_blank(unsigned char byte) noexcept nogil:
    return byte == b" " or 9 <= byte <= 13


cdef int _add_varint(Buffer out, int64_t number) except -1:
    cdef uint64_t rest = (<uint64_t>number << 1) ^ <uint64_t>(number >> 63)
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


cdef bint _digits(const unsigned char* at, Py_ssize_t count, int64_t* number) noexcept nogil:
    """Reads exactly so many digits, at most 18. Returns False if one is not a digit."""
    cdef Py_ssize_t i
    number[0] = 0
    for i in range(count):
        if not 0x30 <= at[i] <= 0x39:
            return False
        number[0] = 10 * number[0] + (at[i] - 0x30)
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
    _add_varint(out, number)
    return True


cdef bint _write_decimal(Buffer out, Cell cell, int precision, int scale) except -1:
    """Write a decimal with at most 18 digits, in the fewest bytes that hold it with its sign."""
    cdef int64_t number
    cdef unsigned char[8] raw
    cdef int size
    if not _read_decimal(cell, scale, &number) or not _fits(-number if number < 0 else number, precision):
        return False
    size = _unscaled(number, raw)
    return _write_counted(out, &raw[8 - size], size)


cdef bint _read_decimal(Cell cell, int scale, int64_t* number) noexcept nogil:
    """Reads a decimal with exactly ``scale`` digits after the point as a whole number of the last of them.

    Returns False for any other text, for more than 18 digits, and for a zero with a sign.
    """
    cdef const unsigned char* at = cell.start
    cdef Py_ssize_t length = cell.length
    cdef bint is_negative = length > 0 and at[0] == b"-"
    cdef Py_ssize_t whole
    cdef int64_t fraction = 0
    cdef int i
    if is_negative:
        at += 1
        length -= 1
    whole = length - scale - 1 if scale else length
    if whole < 1 or whole + scale > _MOST_DIGITS or not _digits(at, whole, number):
        return False
    if (whole > 1 and at[0] == b"0") or (scale and at[whole] != b"."):
        return False
    for i in range(scale):
        number[0] *= 10
    if scale and not _digits(at + whole + 1, scale, &fraction):
        return False
    number[0] += fraction
    if is_negative:
        if not number[0]:
            return False
        number[0] = -number[0]
    return True


cdef int _unscaled(int64_t number, unsigned char* raw) noexcept nogil:
    """Writes eight bytes, the highest first. Returns how many of the last ones hold the number with its sign."""
    cdef int i
    for i in range(8):
        raw[i] = <unsigned char>(<uint64_t>number >> (8 * (7 - i)))
    return _bytes_of(number)


cdef bint _fits(uint64_t number, int precision) noexcept nogil:
    while number and precision:
        number //= 10
        precision -= 1
    return number == 0


cdef int _bytes_of(int64_t number) noexcept nogil:
    """Returns the fewest bytes that hold the number with its sign."""
    cdef uint64_t size = <uint64_t>(~number if number < 0 else number)
    cdef int bits = 0
    while size:
        bits += 1
        size >>= 1
    return bits // 8 + 1


cdef bint _write_double(Buffer out, Cell cell) except -1:
    cdef char[_LONGEST_DOUBLE + 1] text
    cdef char* end
    cdef double number
    cdef unsigned char last
    if not 0 < cell.length <= _LONGEST_DOUBLE:
        return False
    last = cell.start[cell.length - 1]
    if not b"0" <= last <= b"9":  # NaN and the infinities, and what is no number
        return False
    memcpy(text, cell.start, cell.length)
    text[cell.length] = 0
    try:
        number = PyOS_string_to_double(text, &end, NULL)
    except ValueError:
        return False
    if end - text != cell.length:
        return False
    out.add(<const unsigned char*>&number, 8)  # Avro's order, and that of every machine that we build for
    return True


cdef bint _read_date(const unsigned char* at, int64_t* days) noexcept nogil:
    """Reads ``2026-01-31``: the days since 1970 in the proleptic Gregorian calendar. False for any other text."""
    cdef int64_t year, month, day, era, of_era, of_year
    if not _digits(at, 4, &year) or at[4] != b"-" or not _digits(at + 5, 2, &month):
        return False
    if at[7] != b"-" or not _digits(at + 8, 2, &day):
        return False
    if year < 1 or not 1 <= month <= 12 or not 1 <= day <= _days_of(year, month):
        return False
    # Count years from March on, so that the leap day is the last one
    if month <= 2:
        year -= 1
    era = year // 400
    of_era = year - era * 400
    of_year = (153 * (month - 3 if month > 2 else month + 9) + 2) // 5 + day - 1
    days[0] = era * 146097 + of_era * 365 + of_era // 4 - of_era // 100 + of_year - 719468
    return True


cdef int64_t _days_of(int64_t year, int64_t month) noexcept nogil:
    if month == 2:
        return 29 if year % 4 == 0 and (year % 100 != 0 or year % 400 == 0) else 28
    return 30 if month == 4 or month == 6 or month == 9 or month == 11 else 31


cdef bint _read_time(const unsigned char* at, Py_ssize_t length, int64_t* micros) noexcept nogil:
    """Reads ``12:34:56`` and ``12:34:56.789``, without zeros at the end. Returns False for any other text."""
    cdef int64_t hour, minute, second, fraction = 0
    cdef Py_ssize_t i
    if length != 8 and not 10 <= length <= 15:
        return False
    if not _digits(at, 2, &hour) or not _digits(at + 3, 2, &minute) or not _digits(at + 6, 2, &second):
        return False
    if at[2] != b":" or at[5] != b":" or hour > 23 or minute > 59 or second > 59:
        return False
    if length > 8:
        if at[8] != b"." or at[length - 1] == b"0" or not _digits(at + 9, length - 9, &fraction):
            return False
        for i in range(15 - length):
            fraction *= 10
    micros[0] = ((hour * 60 + minute) * 60 + second) * 1000000 + fraction
    return True


cdef bint _write_date(Buffer out, Cell cell) except -1:
    cdef int64_t days
    if cell.length != 10 or not _read_date(cell.start, &days):
        return False
    _add_varint(out, days)
    return True


cdef bint _write_time(Buffer out, Cell cell) except -1:
    cdef int64_t micros
    if not _read_time(cell.start, cell.length, &micros):
        return False
    _add_varint(out, micros)
    return True


cdef bint _write_timestamp(Buffer out, const unsigned char* start, Py_ssize_t length) except -1:
    cdef int64_t days, micros
    if length < 19 or start[10] != b" " or not _read_date(start, &days):
        return False
    if not _read_time(start + 11, length - 11, &micros):
        return False
    _add_varint(out, days * _DAY + micros)
    return True


cdef bint _write_zoned(Buffer out, Cell cell, int places) except -1:
    """Write the counted text of a timestamp with time zone."""
    cdef Py_ssize_t length = 20 + (places + 1 if places else 0)
    _add_varint(out, length)
    return _add_zoned(out, cell, places)


cdef bint _add_zoned(Buffer out, Cell cell, int places) except -1:
    """Append ``2026-01-31T12:34:56.789000Z`` for ``2026-01-31 12:34:56.789+00``. Returns False for any other text."""
    cdef int64_t days, micros
    cdef const unsigned char* zone = cell.start + cell.length - 3
    cdef Py_ssize_t length = cell.length - 3
    cdef Py_ssize_t written = length - 20 if length > 20 else 0
    if length < 19 or zone[0] != b"+" or zone[1] != b"0" or zone[2] != b"0" or cell.start[10] != b" ":
        return False
    if written > places or not _read_date(cell.start, &days) or not _read_time(cell.start + 11, length - 11, &micros):
        return False
    out.reserve(length + places + 2)
    out.add(cell.start, 10)
    out.add(b"T", 1)
    out.add(cell.start + 11, 8)
    if places:
        out.add(b".", 1)
        out.add(cell.start + 20, written)
        out.add(b"000000", places - written)
    out.add(b"Z", 1)
    return True


cdef bint _add_unzoned(Buffer out, Cell cell) except -1:
    """Append, between quotes, what ``_add_zoned`` was given. Returns False for any other text."""
    cdef int64_t days, micros
    cdef Py_ssize_t length = cell.length - 1
    if length < 19 or cell.start[length] != b"Z" or cell.start[10] != b"T":
        return False
    if length > 20:
        while cell.start[length - 1] == b"0":
            length -= 1
        if length == 20 and cell.start[19] == b".":
            length = 19
    if not _read_date(cell.start, &days) or not _read_time(cell.start + 11, length - 11, &micros):
        return False
    out.add(b'"', 1)
    out.add(cell.start, 10)
    out.add(b" ", 1)
    out.add(cell.start + 11, length - 11)
    out.add(b'+00"', 4)
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


cdef int _hex_digit(unsigned char digit) noexcept nogil:
    if b"0" <= digit <= b"9":
        return digit - 0x30
    if b"a" <= digit <= b"f":
        return digit - 0x61 + 10
    if b"A" <= digit <= b"F":
        return digit - 0x41 + 10
    return -1


cdef class ValueReader:
    """Reads records as JSON objects.

    Args:
        columns: for each column its name as a JSON string, how it is read, the first bytes of its field if it is NULL
            and if it has a value (None if the field is no union), the number of its bits or digits, its scale, and its
            reader in Python, which also takes the branch.
    """

    def __init__(self, columns):
        names, kinds, nulls, branches, sizes, scales, readers = zip(*columns, strict=True)
        self._labels = tuple([(b"," if i else b"{") + name + b":" for i, name in enumerate(names)])
        self._kinds = bytes(kinds)
        self._nulls = tuple([-1 if each is None else each for each in nulls])
        self._branches = tuple([-1 if each is None else each for each in branches])
        self._sizes = tuple(sizes)
        self._scales = tuple(scales)
        self._readers = tuple(readers)

    def record(self, bytes value not None, Py_ssize_t place):
        """Returns the object of the record that begins at a place, and the place after it; None if it is declined."""
        cdef Buffer out = Buffer()
        cdef const unsigned char* start = <const unsigned char*>PyBytes_AS_STRING(value)
        cdef const unsigned char* after
        if not 0 <= place <= PyBytes_GET_SIZE(value):
            return None
        after = self.read(out, value, start + place)
        return None if after == NULL else (out.taken(), after - start)

    cdef const unsigned char* read(self, Buffer out, bytes value, const unsigned char* at) except? NULL:
        """Append the object of the record that begins here. Returns the address after it; NULL if it is declined."""
        cdef const unsigned char* start = <const unsigned char*>PyBytes_AS_STRING(value)
        cdef const unsigned char* end = start + PyBytes_GET_SIZE(value)
        cdef const unsigned char* kinds = <const unsigned char*>PyBytes_AS_STRING(self._kinds)
        cdef const unsigned char* after
        cdef Py_ssize_t i
        cdef int null, branch
        cdef bytes label
        for i in range(len(self._labels)):
            label = <bytes>self._labels[i]
            out.add(<const unsigned char*>PyBytes_AS_STRING(label), PyBytes_GET_SIZE(label))
            null = <int>self._nulls[i]
            branch = <int>self._branches[i]
            after = at
            if null >= 0 or branch >= 0:
                if at == end:
                    return NULL
                if at[0] == null:
                    out.add(b"null", 4)
                    at += 1
                    continue
                after = at + 1 if at[0] == branch else NULL
            if after != NULL and kinds[i] != OTHER:
                after = _read(out, after, end, kinds[i], <int>self._sizes[i], <int>self._scales[i])
            else:
                after = self._read_in_python(out, value, at - start, i)
            if after == NULL:
                return NULL
            at = after
        out.add(b"}", 1)
        return at

    cdef const unsigned char* _read_in_python(self, Buffer out, bytes value, Py_ssize_t place, Py_ssize_t column):
        """Returns where the field ends; NULL if Python refuses it."""
        cdef list cells = []
        cdef bytes text
        try:
            place = self._readers[column](value, place, cells)
            text = cells[0]
        except Exception:  # declined: Python reads the value again, and raises it
            return NULL
        if not 0 <= place <= PyBytes_GET_SIZE(value):
            return NULL
        out.add(<const unsigned char*>PyBytes_AS_STRING(text), PyBytes_GET_SIZE(text))
        return <const unsigned char*>PyBytes_AS_STRING(value) + place


cdef const unsigned char* _read_varint(
    const unsigned char* at, const unsigned char* end, int64_t* number
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
            number[0] = <int64_t>(rest >> 1) ^ -<int64_t>(rest & 1)
            return at
        shift += 7
    if at < end and at[0] == 1:  # the tenth byte has one bit of 64
        rest |= <uint64_t>1 << 63
        number[0] = <int64_t>(rest >> 1) ^ -<int64_t>(rest & 1)
        return at + 1
    return NULL


cdef const unsigned char* _read_counted(
    const unsigned char* at, const unsigned char* end, Cell* cell
) noexcept nogil:
    cdef int64_t length
    at = _read_varint(at, end, &length)
    if at == NULL or length < 0 or length > end - at:
        return NULL
    cell.start = at
    cell.length = <Py_ssize_t>length
    return at + length


cdef const unsigned char* _read(
    Buffer out, const unsigned char* at, const unsigned char* end, unsigned char kind, int size, int scale
) except? NULL:
    """Append the JSON of a field that begins at ``at``. Returns where the field ends; NULL if it is damaged."""
    cdef int64_t number
    cdef Cell cell
    if kind & ARRAY:
        return _read_array(out, at, end, kind & ~ARRAY, size, scale)
    if kind == TEXT or kind == DOCUMENT or kind == DECIMAL or kind == BINARY or kind == ZONED:
        at = _read_counted(at, end, &cell)
        if at == NULL:
            return NULL
        if kind == TEXT:
            return at if write_text(out, cell) else NULL
        if kind == DECIMAL:
            return at if _add_decimal(out, cell, size, scale) else NULL
        if kind == ZONED:
            return at if _add_unzoned(out, cell) else NULL
        if kind == BINARY:
            _add_binary(out, cell)
            return at
        if not is_utf8(cell.start, cell.length):
            return NULL
        out.add(cell.start, cell.length)
        return at
    if kind == BOOLEAN:
        if at == end or at[0] > 1:
            return NULL
        if at[0]:
            out.add(b"true", 4)
        else:
            out.add(b"false", 5)
        return at + 1
    at = _read_varint(at, end, &number)
    if at == NULL:
        return NULL
    if kind == INTEGER:
        if size < 64 and not -(<int64_t>1 << (size - 1)) <= number < <int64_t>1 << (size - 1):
            return NULL
        _add_number(out, number)
        return at
    if kind == DATE:
        return at if _add_date(out, number, True) else NULL
    if kind == TIME:
        if not 0 <= number < _DAY:
            return NULL
        out.add(b'"', 1)
        _add_clock(out, number)
        out.add(b'"', 1)
        return at
    return at if _add_timestamp(out, number, kind == TIMESTAMPTZ) else NULL


cdef const unsigned char* _read_array(
    Buffer out, const unsigned char* at, const unsigned char* end, unsigned char kind, int size, int scale
) except? NULL:
    """Append the JSON of an array, which comes in blocks: each says how many elements follow, the last one 0."""
    cdef int64_t count
    cdef bint is_first = True
    out.add(b"[", 1)
    at = _read_varint(at, end, &count)
    while at != NULL and count:
        if not 0 < count <= end - at:
            return NULL
        while count:
            if at == end:
                return NULL
            if not is_first:
                out.add(b",", 1)
            is_first = False
            count -= 1
            at += 1
            if (at - 1)[0] == 0:
                out.add(b"null", 4)
            elif (at - 1)[0] == 2:
                at = _read(out, at, end, kind, size, scale)
                if at == NULL:
                    return NULL
            else:
                return NULL
        at = _read_varint(at, end, &count)
    out.add(b"]", 1)
    return at


cdef int _add_number(Buffer out, int64_t number) except -1:
    cdef unsigned char[20] digits
    cdef int place = 20
    # The smallest number has no positive counterpart
    cdef uint64_t rest = -<uint64_t>number if number < 0 else <uint64_t>number
    while True:
        place -= 1
        digits[place] = 0x30 + <unsigned char>(rest % 10)
        rest //= 10
        if not rest:
            break
    if number < 0:
        out.add(b"-", 1)
    out.add(&digits[place], 20 - place)
    return 0


cdef int _add_padded(Buffer out, int64_t number, int width) except -1:
    cdef int place = width
    out.reserve(width)
    while place:
        place -= 1
        out.data[out.size + place] = 0x30 + <unsigned char>(number % 10)
        number //= 10
    out.size += width
    return 0


cdef bint _add_date(Buffer out, int64_t days, bint is_alone) except -1:
    """Append ``2026-01-31``, between quotes if it is alone. Returns False outside of the years 1 to 9999."""
    cdef int64_t era, of_era, year_of_era, of_year, month, day, year
    if not _FIRST_DAY <= days <= _LAST_DAY:
        return False
    # Count years from March on, so that the leap day is the last one
    days += 719468
    era = days // 146097
    of_era = days - era * 146097
    year_of_era = (of_era - of_era // 1460 + of_era // 36524 - of_era // 146096) // 365
    of_year = of_era - (365 * year_of_era + year_of_era // 4 - year_of_era // 100)
    month = (5 * of_year + 2) // 153
    day = of_year - (153 * month + 2) // 5 + 1
    month = month + 3 if month < 10 else month - 9
    year = year_of_era + era * 400 + (1 if month <= 2 else 0)
    out.add(b'"', 1)
    _add_padded(out, year, 4)
    out.add(b"-", 1)
    _add_padded(out, month, 2)
    out.add(b"-", 1)
    _add_padded(out, day, 2)
    if is_alone:
        out.add(b'"', 1)
    return True


cdef int _add_clock(Buffer out, int64_t micros) except -1:
    """Append ``12:34:56.789``, without zeros at the end."""
    cdef int64_t seconds = micros // 1000000
    cdef int64_t fraction = micros - seconds * 1000000
    cdef int width = 6
    _add_padded(out, seconds // 3600, 2)
    out.add(b":", 1)
    _add_padded(out, seconds // 60 % 60, 2)
    out.add(b":", 1)
    _add_padded(out, seconds % 60, 2)
    if fraction:
        while fraction % 10 == 0:
            fraction //= 10
            width -= 1
        out.add(b".", 1)
        _add_padded(out, fraction, width)
    return 0


cdef bint _add_timestamp(Buffer out, int64_t micros, bint has_zone) except -1:
    cdef int64_t days = micros // _DAY  # rounded down, as in Python
    if not _add_date(out, days, False):
        return False
    out.add(b" ", 1)
    _add_clock(out, micros - days * _DAY)
    if has_zone:
        out.add(b"+00", 3)
    out.add(b'"', 1)
    return True


cdef bint _add_decimal(Buffer out, Cell cell, int precision, int scale) except -1:
    """Append a decimal of at most 8 bytes; a longer one, which is damaged or left to Python, returns False."""
    cdef int64_t number = 0
    cdef uint64_t rest
    cdef unsigned char[21] digits
    cdef int place = 21
    cdef Py_ssize_t i
    if not 0 < cell.length <= 8:
        return False
    number = -1 if cell.start[0] & 0x80 else 0
    for i in range(cell.length):
        number = <int64_t>(<uint64_t>number << 8 | cell.start[i])
    rest = -<uint64_t>number if number < 0 else <uint64_t>number
    while rest or 21 - place < scale + 1:
        place -= 1
        digits[place] = 0x30 + <unsigned char>(rest % 10)
        rest //= 10
    if precision < 19 and 21 - place > precision and not (21 - place == scale + 1 and digits[place] == 0x30):
        return False
    out.add(b'"', 1)
    if number < 0:
        out.add(b"-", 1)
    out.add(&digits[place], 21 - place - scale)
    if scale:
        out.add(b".", 1)
        out.add(&digits[21 - scale], scale)
    out.add(b'"', 1)
    return True


cdef int _add_binary(Buffer out, Cell cell) except -1:
    cdef Py_ssize_t i
    cdef const unsigned char* hexadecimal = b"0123456789abcdef"
    out.add(b'"\\\\x', 4)
    out.reserve(2 * cell.length)
    for i in range(cell.length):
        out.data[out.size + 2 * i] = hexadecimal[cell.start[i] >> 4]
        out.data[out.size + 2 * i + 1] = hexadecimal[cell.start[i] & 15]
    out.size += 2 * cell.length
    out.add(b'"', 1)
    return 0
