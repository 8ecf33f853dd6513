# cython: boundscheck=False, wraparound=False
"""The twin of ``rows.py`` in C: rows in Debezium's form, byte for byte as Python writes and reads them.

``_objects.pyx`` explains how to read this if you know Python. The writer converts the values of the types that need no
decision, and leaves all others to their converters in Python. If these raise, it declines the row.

The reader takes rows as the bridge writes them: members in the order of the columns, no blanks, no ``\\u`` escapes. It
does not count how many bytes are left, because CPython puts a NUL after all ``bytes``, and no function here takes a NUL
for part of a value. The caller checks that the bytes are UTF-8.
"""

from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize, PyBytes_GET_SIZE
from libc.stdint cimport int64_t
from libc.string cimport strchr, strncmp
from posix.strings cimport strncasecmp

from cdc.base._source cimport CDC_SOURCE
from cdc.contract.formats._avro_rows cimport (
    _DAY,
    _add_binary,
    _add_clock,
    _add_date,
    _add_decimal,
    _add_number,
    _add_timestamp,
    _add_unzoned,
    _add_zoned,
    _hex_digit,
    _read_date,
    _read_decimal,
    _read_time,
    _unscaled,
)
from cdc.contract.formats._objects cimport (
    Buffer,
    Cell,
    ObjectWriter,
    _write_numbers,
    _write_texts,
    is_null_document,
    is_utf8,
    write_text,
)

SOURCE = CDC_SOURCE

cdef enum:
    # How values are converted; ``InC`` in types.py has the same numbers
    OTHER = 0  # by the column's converter in Python
    DECIMAL = 1
    ZONED = 2
    DATE = 3
    TIME = 4
    TIMESTAMP = 5
    BASE64 = 6
    DOCUMENT = 7
    NUMBERS = 8
    TEXTS = 9
    _AS_IT_IS = 32  # for the reader: the topic contract has the same JSON

cdef enum:
    _DEPTH = 50  # the deepest nesting of a value that is read here
    _ANY_PRECISION = 64
    _MOST_DIGITS = 18  # of a number that surely fits into 64 bits
    _SMALL = 1000000
    _LARGE = 1000000000

cdef int64_t _MOST = 9000000000000000  # times 1,000 it still fits into 64 bits

cdef const unsigned char* _LETTERS = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/"


cdef class EventRowWriter(ObjectWriter):
    """Writes rows as objects.

    Args:
        names, converters: as for ``ObjectWriter``.
        forms: for each column how its values are converted, and what else it takes: ``DebeziumType.in_c``.
    """

    cdef bytes _forms
    cdef tuple _parameters

    def __init__(self, names, converters, forms):
        super().__init__(names, converters)
        self._forms = bytes([form for form, _ in forms])
        self._parameters = tuple([int(parameter) for _, parameter in forms])
        if len(self._forms) != self.width:
            raise ValueError("as many forms as names")

    cdef bint _convert(self, Buffer out, Py_ssize_t place, Cell cell) except -1:
        cdef Py_ssize_t before = out.size
        cdef unsigned char form = (<const unsigned char*>PyBytes_AS_STRING(self._forms))[place]
        if form != OTHER:
            if _write(out, form, <int64_t>self._parameters[place], cell):
                return True
            out.size = before
        return ObjectWriter._convert(self, out, place, cell)


cdef bint _write(Buffer out, unsigned char form, int64_t parameter, Cell cell) except -1:
    """Write a value in its type's ordinary form. Returns False for all others; then the caller forgets the bytes."""
    cdef int64_t number
    cdef unsigned char[8] raw
    cdef int size
    if form == ZONED:
        out.add(b'"', 1)
        if not _add_zoned(out, cell, <int>parameter):
            return False
        out.add(b'"', 1)
        return True
    if form == DOCUMENT:
        return not is_null_document(cell) and write_text(out, cell)
    if form == TEXTS:
        return _is_bare(cell) and _write_texts(out, cell)
    if form == NUMBERS:
        return _is_flat(cell) and _write_numbers(out, cell)
    if form == BASE64:
        return _write_binary(out, cell)
    if form == DECIMAL:
        if not _read_decimal(cell, <int>parameter, &number):
            return False
        size = _unscaled(number, raw)
        out.add(b'"', 1)
        _add_base64(out, &raw[8 - size], size)
        out.add(b'"', 1)
        return True
    if form == DATE:
        if cell.length != 10 or not _read_date(cell.start, &number):
            return False
    elif form == TIME:
        if not _read_time(cell.start, cell.length, &number) or not _in_units(&number, parameter):
            return False
    elif form == TIMESTAMP:
        if not _read_timestamp(cell, &number) or not _in_units(&number, parameter):
            return False
    else:
        return False
    _add_number(out, number)
    return True


cdef bint _read_timestamp(Cell cell, int64_t* micros) noexcept nogil:
    cdef int64_t days
    if cell.length < 19 or cell.start[10] != b" " or not _read_date(cell.start, &days):
        return False
    if not _read_time(cell.start + 11, cell.length - 11, micros):
        return False
    micros[0] += days * _DAY
    return True


cdef bint _in_units(int64_t* micros, int64_t units) noexcept nogil:
    """Converts microseconds to units of which a second has so many: 1,000, a million or a billion."""
    if units == _LARGE:
        if not -_MOST < micros[0] < _MOST:
            return False
        micros[0] *= 1000
    elif units != _SMALL:
        if micros[0] % 1000:
            return False
        micros[0] //= 1000
    return True


cdef bint _is_flat(Cell cell) noexcept nogil:
    """Whether the literal of an array begins with a brace and has no other one inside."""
    cdef Py_ssize_t i
    if not cell.length or cell.start[0] != b"{":
        return False
    for i in range(1, cell.length):
        if cell.start[i] == b"{":
            return False
    return True


cdef bint _is_bare(Cell cell) noexcept nogil:
    """Whether no element of an array is empty, has a blank, or looks like NULL."""
    cdef Py_ssize_t i, last = cell.length - 1
    cdef const unsigned char* at = cell.start
    if cell.length == 2:
        return True
    for i in range(1, last):
        if at[i] == b" " or (at[i] == b"," and (at[i - 1] == b"," or i == 1 or i == last - 1)):
            return False
        if (at[i] == b"n" or at[i] == b"N") and last - i >= 4 and strncasecmp(<const char*>at + i, b"null", 4) == 0:
            return False
    return True


cdef bint _write_binary(Buffer out, Cell cell) except -1:
    """Write in base64 what ``\\x`` and hexadecimal digits stand for."""
    cdef unsigned char[3] raw
    cdef int count = 0
    cdef int high, low
    cdef Py_ssize_t i
    if cell.length < 2 or cell.length % 2 or cell.start[0] != b"\\" or cell.start[1] != b"x":
        return False
    out.reserve(2 * cell.length // 3 + 6)
    out.add(b'"', 1)
    for i in range(2, cell.length, 2):
        high, low = _hex_digit(cell.start[i]), _hex_digit(cell.start[i + 1])
        if high < 0 or low < 0:
            return False
        raw[count] = <unsigned char>(high << 4 | low)
        count += 1
        if count == 3:
            _add_base64(out, raw, 3)
            count = 0
    _add_base64(out, raw, count)
    out.add(b'"', 1)
    return True


cdef int _add_base64(Buffer out, const unsigned char* raw, Py_ssize_t count) except -1:
    cdef unsigned char* to
    cdef unsigned int group
    out.reserve(4 * (count // 3 + 1))
    while count > 0:
        group = raw[0] << 16 | (raw[1] << 8 if count > 1 else 0) | (raw[2] if count > 2 else 0)
        to = out.data + out.size
        to[0] = _LETTERS[group >> 18]
        to[1] = _LETTERS[group >> 12 & 63]
        to[2] = _LETTERS[group >> 6 & 63] if count > 1 else b"="
        to[3] = _LETTERS[group & 63] if count > 2 else b"="
        out.size += 4
        raw += 3
        count -= 3
    return 0


cdef class EventRowReader:
    """Reads rows as the objects that the topic contract describes.

    Args:
        columns: for each its name as a JSON string, ``DebeziumType.in_c``, and its reader in Python; None if the topic
            contract has the same JSON.
    """

    def __init__(self, columns):
        names, forms, parameters, readers = zip(*columns, strict=True)
        self._labels = tuple([(b"," if i else b"{") + name + b":" for i, name in enumerate(names)])
        self._forms = bytes(
            [_AS_IT_IS if read is None else form for form, read in zip(forms, readers, strict=True)]
        )
        self._parameters = tuple([int(each) for each in parameters])
        self._readers = tuple(readers)
        self._raw = Buffer()

    def json(self, bytes row not None):
        """Does what ``json`` of the reader in Python does, or returns None for a row that it declines."""
        cdef Buffer out = Buffer()
        cdef const unsigned char* start = <const unsigned char*>PyBytes_AS_STRING(row)
        cdef const unsigned char* end = self.read(out, start)
        if end != start + PyBytes_GET_SIZE(row) or not is_utf8(start, PyBytes_GET_SIZE(row)):
            return None
        return out.taken()

    cdef const unsigned char* read(self, Buffer out, const unsigned char* at) except? NULL:
        """Append the object of the row that begins here. Returns the address after it; NULL if it is declined."""
        cdef Py_ssize_t i
        cdef bytes label
        cdef const unsigned char* end
        cdef unsigned char form
        for i in range(len(self._labels)):
            label = <bytes>self._labels[i]
            at = after_text(at, label)
            if at == NULL:
                return NULL
            end = value_end(at, 0)
            if end == NULL:
                return NULL
            out.add(<const unsigned char*>PyBytes_AS_STRING(label), PyBytes_GET_SIZE(label))
            form = (<const unsigned char*>PyBytes_AS_STRING(self._forms))[i]
            if form == _AS_IT_IS or at[0] == b"n":
                out.add(at, end - at)
            elif form == OTHER:
                if not self._read_in_python(out, i, at, end - at):
                    return NULL
            elif not self._read_form(out, i, at, end - at):
                return NULL
            at = end
        if at[0] != b"}":
            return NULL
        out.add(b"}", 1)
        return at + 1

    cdef bint _read_form(self, Buffer out, Py_ssize_t place, const unsigned char* at, Py_ssize_t length) except -1:
        """Append a value in the form that its column has. Returns False for any other value."""
        cdef unsigned char form = (<const unsigned char*>PyBytes_AS_STRING(self._forms))[place]
        cdef int64_t parameter = <int64_t>self._parameters[place]
        cdef int64_t number
        cdef Cell cell
        if form == DATE or form == TIME or form == TIMESTAMP:
            if not _read_integer(at, length, &number):
                return False
            if form == DATE:
                return _add_date(out, number, True)
            if not _in_micros(&number, parameter):
                return False
            if form == TIMESTAMP:
                return _add_timestamp(out, number, False)
            if not 0 <= number < _DAY:
                return False
            out.add(b'"', 1)
            _add_clock(out, number)
            out.add(b'"', 1)
            return True
        if at[0] != b'"':
            return False
        cell.start = at + 1
        cell.length = length - 2
        if form == DOCUMENT:
            return _add_unescaped(out, cell)
        if form == ZONED:
            return _add_unzoned(out, cell)
        if form != DECIMAL and form != BASE64:
            return self._read_in_python(out, place, at, length)
        self._raw.clear()
        if not _read_base64(self._raw, cell):
            return False
        cell.start = self._raw.data
        cell.length = self._raw.size
        if form == DECIMAL:
            return _add_decimal(out, cell, _ANY_PRECISION, <int>parameter)
        _add_binary(out, cell)
        return True

    cdef bint _read_in_python(self, Buffer out, Py_ssize_t place, const unsigned char* at, Py_ssize_t length) except -1:
        cdef bytes text = PyBytes_FromStringAndSize(<const char*>at, length)
        try:
            text = self._readers[place](text)
        except Exception:  # declined: Python reads the row again, and raises it
            return False
        out.add(<const unsigned char*>PyBytes_AS_STRING(text), PyBytes_GET_SIZE(text))
        return True


cdef bint _in_micros(int64_t* number, int64_t units) noexcept nogil:
    """Does the inverse of ``_in_units``."""
    if units == _LARGE:
        if number[0] % 1000:
            return False
        number[0] //= 1000
    elif units != _SMALL:
        if not -_MOST < number[0] < _MOST:
            return False
        number[0] *= 1000
    return True


cdef bint _read_integer(const unsigned char* at, Py_ssize_t length, int64_t* number) noexcept nogil:
    """Reads a whole number with up to 18 digits, whose JSON ``value_end`` has looked at."""
    cdef bint is_negative = at[0] == b"-"
    cdef Py_ssize_t i
    number[0] = 0
    if is_negative:
        at += 1
        length -= 1
    if not 0 < length <= _MOST_DIGITS or (is_negative and at[0] == b"0"):
        return False
    for i in range(length):
        if not b"0" <= at[i] <= b"9":
            return False
        number[0] = 10 * number[0] + (at[i] - 0x30)
    if is_negative:
        number[0] = -number[0]
    return True


cdef bint _read_base64(Buffer raw, Cell cell) except -1:
    """Append the bytes of a base64 text; False if it has other characters, or bits beyond its last byte."""
    cdef Py_ssize_t i, length = cell.length
    cdef unsigned int group = 0
    cdef int digit, padding = 0
    if length % 4:
        return False
    while padding < 2 and length and cell.start[length - 1] == b"=":
        length -= 1
        padding += 1
    raw.reserve(3 * (cell.length // 4) + 3)
    for i in range(length):
        digit = _base64_digit(cell.start[i])
        if digit < 0:
            return False
        group = group << 6 | <unsigned int>digit
        if i % 4 == 3:
            raw.data[raw.size] = <unsigned char>(group >> 16)
            raw.data[raw.size + 1] = <unsigned char>(group >> 8 & 0xFF)
            raw.data[raw.size + 2] = <unsigned char>(group & 0xFF)
            raw.size += 3
            group = 0
    if padding == 1:
        if group & 3:
            return False
        raw.data[raw.size] = <unsigned char>(group >> 10)
        raw.data[raw.size + 1] = <unsigned char>(group >> 2 & 0xFF)
        raw.size += 2
    elif padding == 2:
        if group & 15:
            return False
        raw.data[raw.size] = <unsigned char>(group >> 4)
        raw.size += 1
    return True


cdef int _base64_digit(unsigned char letter) noexcept nogil:
    if b"A" <= letter <= b"Z":
        return letter - 0x41
    if b"a" <= letter <= b"z":
        return letter - 0x61 + 26
    if b"0" <= letter <= b"9":
        return letter - 0x30 + 52
    if letter == b"+":
        return 62
    return 63 if letter == b"/" else -1


cdef bint _add_unescaped(Buffer out, Cell cell) except -1:
    """Append the characters of a JSON string, whose escapes ``value_end`` has looked at."""
    cdef const unsigned char* at = cell.start
    cdef const unsigned char* end = at + cell.length
    cdef const unsigned char* clean = at
    cdef unsigned char byte
    while at < end:
        if at[0] != b"\\":
            at += 1
            continue
        out.add(clean, at - clean)
        byte = _unescaped(at[1])
        out.add(&byte, 1)
        at += 2
        clean = at
    out.add(clean, end - clean)
    return True


cdef inline unsigned char _unescaped(unsigned char letter) noexcept nogil:
    if letter == b"n":
        return b"\n"
    if letter == b"r":
        return b"\r"
    if letter == b"t":
        return b"\t"
    if letter == b"b":
        return 8
    if letter == b"f":
        return 12
    return letter


cdef const unsigned char* after_text(const unsigned char* at, bytes text) noexcept:
    """Returns the address after this text; NULL if another one stands here."""
    cdef Py_ssize_t length = PyBytes_GET_SIZE(text)
    return at + length if strncmp(<const char*>at, PyBytes_AS_STRING(text), length) == 0 else NULL


cdef const unsigned char* value_end(const unsigned char* at, int depth) noexcept nogil:
    """Returns the address after a JSON value without blanks around its marks; NULL if it is declined."""
    cdef unsigned char closing
    if at[0] == b'"':
        return _string_end(at)
    if at[0] == b"n":
        return _word_end(at, b"null", 4)
    if at[0] == b"t":
        return _word_end(at, b"true", 4)
    if at[0] == b"f":
        return _word_end(at, b"false", 5)
    if at[0] != b"{" and at[0] != b"[":
        return _number_end(at)
    if depth == _DEPTH:
        return NULL
    closing = b"}" if at[0] == b"{" else b"]"
    at += 1
    if at[0] == closing:
        return at + 1
    while True:
        if closing == b"}":
            at = _string_end(at) if at[0] == b'"' else NULL
            if at == NULL or at[0] != b":":
                return NULL
            at += 1
        at = value_end(at, depth + 1)
        if at == NULL:
            return NULL
        if at[0] == closing:
            return at + 1
        if at[0] != b",":
            return NULL
        at += 1


cdef const unsigned char* _word_end(const unsigned char* at, const char* word, Py_ssize_t length) noexcept nogil:
    return at + length if strncmp(<const char*>at, word, length) == 0 else NULL


cdef const unsigned char* _string_end(const unsigned char* at) noexcept nogil:
    at += 1
    while at[0] != b'"':
        if at[0] < 0x20:
            return NULL
        if at[0] == b"\\":
            at += 1
            if at[0] == 0 or strchr(b'"\\/bfnrt', at[0]) == NULL:
                return NULL
        at += 1
    return at + 1


cdef const unsigned char* _digits_end(const unsigned char* at) noexcept nogil:
    if not b"0" <= at[0] <= b"9":
        return NULL
    while b"0" <= at[0] <= b"9":
        at += 1
    return at


cdef const unsigned char* _number_end(const unsigned char* at) noexcept nogil:
    if at[0] == b"-":
        at += 1
    at = at + 1 if at[0] == b"0" else _digits_end(at)
    if at != NULL and at[0] == b".":
        at = _digits_end(at + 1)
    if at != NULL and (at[0] == b"e" or at[0] == b"E"):
        at += 1
        at = _digits_end(at + 1 if at[0] == b"+" or at[0] == b"-" else at)
    return at
