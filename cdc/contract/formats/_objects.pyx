# cython: boundscheck=False, wraparound=False
"""The twin of ``objects.py`` in C: converts cells to a JSON object, byte for byte as Python does.

For readers who know Python: ``cdef`` declares what is C and cannot be called from Python. A ``const unsigned char*`` is
the address of bytes that somebody else owns, here a frame or a line that the caller keeps alive. C does not check any
bounds, so every function here takes a length and stays within it.

``write`` returns False for a row that it declines: a text that is not UTF-8 or not in its type's form, or the JSON
document ``null``, which the record's header has to mention. The caller leaves that row to Python, errors included.
"""

from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize, PyBytes_GET_SIZE
from libc.stdlib cimport free, realloc
from libc.string cimport memcmp, memcpy

from cdc.base._source cimport CDC_SOURCE
from cdc.contract.formats import values

SOURCE = CDC_SOURCE

cdef enum:
    # How a cell's text is converted
    AS_IT_IS = 0
    QUOTED = 1
    TEXT = 2
    BOOLEAN = 3
    FLOATING = 4
    DOCUMENT = 5
    NUMBERS = 6
    TEXTS = 7
    OTHER = 8  # a converter in Python: other arrays

_KINDS = {
    values.number: AS_IT_IS,
    values.plain: QUOTED,
    values.text: TEXT,
    values.boolean: BOOLEAN,
    values.floating: FLOATING,
    values.document: DOCUMENT,
    values.number_array: NUMBERS,
    values.text_array: TEXTS,
}

cdef enum:
    _KEPT_BYTES = 1 << 20  # a buffer that a huge row made larger than this is freed after the row

cdef const unsigned char* _HEX = b"0123456789abcdef"


cdef class Buffer:
    """A buffer of bytes that grows; ``taken`` returns a copy of its contents."""

    def __dealloc__(self):
        free(self.data)

    cdef int reserve(self, Py_ssize_t more) except -1:
        """Make room for ``more`` bytes after the first ``size``."""
        cdef Py_ssize_t capacity = self.size + more
        cdef void* data
        if capacity > self.capacity:
            capacity += capacity >> 1
            data = realloc(self.data, capacity)
            if data == NULL:
                raise MemoryError
            self.data = <unsigned char*>data
            self.capacity = capacity
        return 0

    cdef int add(self, const unsigned char* start, Py_ssize_t length) except -1:
        self.reserve(length)
        memcpy(self.data + self.size, start, length)
        self.size += length
        return 0

    cdef void clear(self) noexcept:
        self.size = 0
        if self.capacity > _KEPT_BYTES:
            free(self.data)
            self.data = NULL
            self.capacity = 0

    cdef bytes taken(self):
        """Returns a copy of the contents, and empties the buffer."""
        cdef bytes whole = PyBytes_FromStringAndSize(<const char*>self.data, self.size)
        self.clear()
        return whole


cdef class RowWriter:
    """Writes rows of a fixed width. Each format has one of its own."""

    cdef bint write(self, Buffer out, const Cell* cells) except -1:
        """Append a row of ``width`` cells. Returns False if it declines; then the caller clears the buffer."""
        raise NotImplementedError

    def encode(self, row):
        """Does what ``encode`` of the writer in Python does, or returns None for a row that it declines. For tests."""
        cdef Buffer out = Buffer()
        cdef list kept = list(row)
        cdef Cell[64] cells
        if len(kept) != self.width or self.width > 64:
            return None
        for i, cell in enumerate(kept):
            if cell is None:
                cells[i].start = NULL
                cells[i].length = 0
            elif isinstance(cell, bytes):
                cells[i].start = <const unsigned char*>PyBytes_AS_STRING(cell)
                cells[i].length = PyBytes_GET_SIZE(cell)
            else:
                return None
        return out.taken() if self.write(out, cells) else None


cdef class ObjectWriter(RowWriter):
    """Writes rows as objects, one member per cell.

    Args:
        names: the members' names, as JSON strings.
        converters: the members' converters, from ``values.py``.
        head: precedes each object.
        tail: follows it.
    """

    def __init__(self, names, converters, head=b"", tail=b""):
        self._labels = tuple([(b"," if i else head + b"{") + name + b":" for i, name in enumerate(names)])
        self._end = b"}" + tail
        self._converters = tuple(converters)
        self._kinds = bytes([_KINDS.get(convert, OTHER) for convert in self._converters])
        self.width = len(self._labels)
        if self.width != len(self._converters) or not self.width:
            raise ValueError("as many names as converters, and at least one")

    cdef bint write(self, Buffer out, const Cell* cells) except -1:
        cdef Py_ssize_t i
        cdef const unsigned char* kinds = <const unsigned char*>PyBytes_AS_STRING(self._kinds)
        cdef unsigned char kind
        cdef bytes label
        cdef Cell cell
        for i in range(self.width):
            label = <bytes>self._labels[i]
            out.add(<const unsigned char*>PyBytes_AS_STRING(label), PyBytes_GET_SIZE(label))
            cell = cells[i]
            kind = kinds[i]
            if cell.start == NULL:
                out.add(b"null", 4)
            elif kind == TEXT:
                if not write_text(out, cell):
                    return False
            elif kind >= NUMBERS:
                if kind == NUMBERS and _write_numbers(out, cell):
                    continue
                if kind == TEXTS and _write_texts(out, cell):
                    continue
                if not self._convert(out, i, cell):
                    return False
            elif kind == BOOLEAN:
                if cell.length != 1:
                    return False
                if cell.start[0] == b"t":
                    out.add(b"true", 4)
                elif cell.start[0] == b"f":
                    out.add(b"false", 5)
                else:
                    return False
            elif not is_utf8(cell.start, cell.length):
                return False
            elif kind == QUOTED or (kind == FLOATING and _is_special(cell)):
                out.reserve(cell.length + 2)
                out.add(b'"', 1)
                out.add(cell.start, cell.length)
                out.add(b'"', 1)
            elif kind == DOCUMENT and is_null_document(cell):
                return False
            else:
                out.add(cell.start, cell.length)
        out.add(<const unsigned char*>PyBytes_AS_STRING(self._end), PyBytes_GET_SIZE(self._end))
        return True

    cdef bint _convert(self, Buffer out, Py_ssize_t place, Cell cell) except -1:
        cdef bytes text = PyBytes_FromStringAndSize(<const char*>cell.start, cell.length)
        try:
            text = self._converters[place](text)
        except Exception:  # declined: Python converts the row again, and raises it if it is an error
            return False
        if not is_utf8(<const unsigned char*>PyBytes_AS_STRING(text), PyBytes_GET_SIZE(text)):
            return False
        out.add(<const unsigned char*>PyBytes_AS_STRING(text), PyBytes_GET_SIZE(text))
        return True


cdef bint write_text(Buffer out, Cell cell) except -1:
    """Write a JSON string, escaped as orjson does; False if it is not UTF-8.

    Text that needs no escape is copied in one step; ``clean`` is where it begins.
    """
    cdef const unsigned char* at = cell.start
    cdef const unsigned char* clean = at
    cdef const unsigned char* end = at + cell.length
    cdef unsigned char byte, short
    cdef Py_ssize_t length
    out.reserve(cell.length + 2)
    out.add(b'"', 1)
    while at < end:
        byte = at[0]
        if byte >= 0x80:
            length = utf8_length(at, end)
            if not length:
                return False
            at += length
        elif byte >= 0x20 and byte != b'"' and byte != b"\\":
            at += 1
        else:
            out.add(clean, at - clean)
            short = _short_escape(byte)
            if short:
                out.add(b"\\", 1)
                out.add(&short, 1)
            else:
                out.add(b"\\u00", 4)
                out.add(_HEX + (byte >> 4), 1)
                out.add(_HEX + (byte & 15), 1)
            at += 1
            clean = at
    out.add(clean, end - clean)
    out.add(b'"', 1)
    return True


cdef bint _write_numbers(Buffer out, Cell cell) except -1:
    """Does what ``values.number_array`` does; returns False, with nothing written, if it takes that function."""
    cdef Py_ssize_t i, size = out.size
    cdef unsigned char* at
    if not cell.length or cell.start[0] != b"{":
        return False
    out.add(cell.start, cell.length)
    at = out.data + size
    for i in range(cell.length):
        if at[i] == b"{":
            at[i] = b"["
        elif at[i] == b"}":
            at[i] = b"]"
        elif at[i] == b"N" or at[i] >= 0x80:
            out.size = size
            return False
    return True


cdef bint _write_texts(Buffer out, Cell cell) except -1:
    """Does what ``values.text_array`` does, for one dimension without NULLs, quotes and escapes; else returns False,
    with nothing written."""
    cdef Py_ssize_t i, last = cell.length - 1
    cdef const unsigned char* start = cell.start
    cdef unsigned char byte
    if cell.length < 2 or start[0] != b"{" or start[last] != b"}":
        return False
    if cell.length == 2:
        out.add(b"[]", 2)
        return True
    for i in range(1, last):
        byte = start[i]
        if byte < 0x20 or byte == b'"' or byte == b"\\" or byte == b"{" or byte == b"}":
            return False
        if byte == b"N" and last - i >= 4 and memcmp(start + i, b"NULL", 4) == 0:
            return False
    if not is_utf8(start, cell.length):
        return False
    out.reserve(3 * cell.length + 2)  # the most it can need: every other byte is a comma, which becomes three
    out.add(b'["', 2)
    for i in range(1, last):
        if start[i] == b",":
            out.add(b'","', 3)
        else:
            out.data[out.size] = start[i]
            out.size += 1
    out.add(b'"]', 2)
    return True


cdef inline unsigned char _short_escape(unsigned char byte) noexcept nogil:
    """Returns what follows the backslash in a short escape; 0 if there is none."""
    if byte == b'"' or byte == b"\\":
        return byte
    if byte == b"\n":
        return b"n"
    if byte == b"\r":
        return b"r"
    if byte == b"\t":
        return b"t"
    if byte == 8:
        return b"b"
    if byte == 12:
        return b"f"
    return 0


cdef bint _is_special(Cell cell) noexcept nogil:
    """Whether the cell is a float for which JSON has no number."""
    if cell.length == 3:
        return memcmp(cell.start, b"NaN", 3) == 0
    if cell.length == 8:
        return memcmp(cell.start, b"Infinity", 8) == 0
    return cell.length == 9 and memcmp(cell.start, b"-Infinity", 9) == 0


cdef bint is_null_document(Cell cell) noexcept nogil:
    """Whether ``bytes.strip() == b"null"``."""
    cdef const unsigned char* start = cell.start
    cdef const unsigned char* end = start + cell.length
    while start < end and _is_blank(start[0]):
        start += 1
    while start < end and _is_blank(end[-1]):
        end -= 1
    return end - start == 4 and memcmp(start, b"null", 4) == 0


cdef inline bint _is_blank(unsigned char byte) noexcept nogil:
    return byte == b" " or 9 <= byte <= 13


cdef bint is_utf8(const unsigned char* start, Py_ssize_t length) noexcept nogil:
    cdef const unsigned char* end = start + length
    cdef Py_ssize_t step
    while start < end:
        if start[0] < 0x80:
            start += 1
        else:
            step = utf8_length(start, end)
            if not step:
                return False
            start += step
    return True


cdef Py_ssize_t utf8_length(const unsigned char* start, const unsigned char* end) noexcept nogil:
    """Returns the length of the multi-byte character that begins here; 0 if it is invalid or does not end by ``end``.

    Overlong forms, surrogates and anything above U+10FFFF are invalid, as in Python (Unicode, table 3-7).
    """
    cdef unsigned char first = start[0]
    cdef unsigned char low = 0x80
    cdef unsigned char high = 0xBF
    cdef Py_ssize_t length, i
    if 0xC2 <= first <= 0xDF:
        length = 2
    elif 0xE0 <= first <= 0xEF:
        length = 3
        if first == 0xE0:
            low = 0xA0
        elif first == 0xED:
            high = 0x9F
    elif 0xF0 <= first <= 0xF4:
        length = 4
        if first == 0xF0:
            low = 0x90
        elif first == 0xF4:
            high = 0x8F
    else:
        return 0
    if end - start < length or not low <= start[1] <= high:
        return 0
    for i in range(2, length):
        if not 0x80 <= start[i] <= 0xBF:
            return 0
    return length
