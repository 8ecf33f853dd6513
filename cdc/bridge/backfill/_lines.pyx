# cython: boundscheck=False, wraparound=False
"""Does in C what ``lines.py`` does: turns COPY's lines into records, byte for byte the same.

``cdc/contract/formats/_objects.pyx`` explains how to read this if you know Python. A ``Cell`` is the address and the
length of a value's text. Most cells point into the line itself. Where the server escaped something, the text without
the escapes is written to ``_unescaped``, and the cell points there. So both must not change until the row is written.

A line that is not plain is declined: its place is returned, and Python takes that one line, errors included. Not plain
is a line with the wrong number of cells, a backslash at the end of a cell, NULL in the key, or anything that
a ``RowWriter`` declines, or a row that is too large.
"""

from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_GET_SIZE
from libc.stdlib cimport calloc, free
from libc.string cimport memchr, memcpy

from cdc.base._source cimport CDC_SOURCE
from cdc.contract._header cimport header
from cdc.contract.formats._objects cimport Buffer, Cell, RowWriter

SOURCE = CDC_SOURCE


cdef class LineWriter:
    """Makes records of a relation's rows.

    Args:
        key: writes keys.
        value: writes whole rows.
        key_places: the indexes of the key's columns in the row, in the key's order.
        most_bytes: a row whose key and value are larger is declined.
    """

    cdef RowWriter _key
    cdef RowWriter _value
    cdef tuple _key_places
    cdef Py_ssize_t _most_bytes
    cdef Cell* _cells
    cdef Cell* _key_cells
    cdef Buffer _unescaped
    cdef Buffer _out

    def __cinit__(self, RowWriter key not None, RowWriter value not None, key_places, Py_ssize_t most_bytes):
        self._key = key
        self._value = value
        self._key_places = tuple(key_places)
        if len(self._key_places) != key.width or not all([0 <= place < value.width for place in self._key_places]):
            raise ValueError("as many places as the key has columns, each of a column")
        self._most_bytes = most_bytes
        self._unescaped = Buffer()
        self._out = Buffer()
        self._cells = <Cell*>calloc(value.width, sizeof(Cell))
        self._key_cells = <Cell*>calloc(key.width, sizeof(Cell))
        if self._cells == NULL or self._key_cells == NULL:
            raise MemoryError

    def __dealloc__(self):
        free(self._cells)
        free(self._key_cells)

    def write(
        self, list lines not None, Py_ssize_t place, dict touched not None, tuple same not None, long long seq,
        list records not None,
    ):
        """Append the records of these lines up to the first one that is declined.

        Args:
            lines: the rows, in COPY's text format.
            place: the index of the first line to take.
            touched: keys whose rows are left out.
            same: what all records share: the topic, and the parts of the header before and after the ordinal.
            seq: the last ordinal that is taken.
            records: the list that records are added to, each a ``record.Ready``.

        Returns:
            The index of the first line that was not taken, and the total size of the values in bytes.
        """
        cdef bytes before, after, line, key, value
        cdef Py_ssize_t size = 0
        topic, before, after = same
        if place < 0:
            raise ValueError("no such line")
        while place < len(lines):
            item = lines[place]
            if type(item) is not bytes:
                break
            line = <bytes>item
            if not self._split(line):
                break
            key = self._key_of_row()
            if key is None:
                break
            if key not in touched:
                value = self._value_of_row()
                if value is None or PyBytes_GET_SIZE(value) + PyBytes_GET_SIZE(key) > self._most_bytes:
                    break
                seq += 1
                size += PyBytes_GET_SIZE(value)
                records.append((topic, key, value, header(before, seq, after), None))
            place += 1
        return place, size

    cdef bytes _key_of_row(self):
        """Returns the row's key; None when it is declined."""
        cdef Py_ssize_t i, place
        for i in range(self._key.width):
            place = self._key_places[i]
            self._key_cells[i] = self._cells[place]
            if self._key_cells[i].start == NULL:
                return None
        self._out.clear()
        return self._out.taken() if self._key.write(self._out, self._key_cells) else None

    cdef bytes _value_of_row(self):
        """Returns the row's value; None when it is declined."""
        self._out.clear()
        return self._out.taken() if self._value.write(self._out, self._cells) else None

    cdef bint _split(self, bytes line) except -1:
        """Points the cells to the texts of a line; False when the line is declined."""
        cdef const unsigned char* at = <const unsigned char*>PyBytes_AS_STRING(line)
        cdef Py_ssize_t length = PyBytes_GET_SIZE(line) - 1
        cdef const unsigned char* end = at + length
        cdef const unsigned char* tab
        cdef Py_ssize_t column
        cdef bint has_escapes
        if length < 0 or end[0] != b"\n":
            return False
        has_escapes = memchr(at, b"\\", length) != NULL
        if has_escapes:
            # Reserve room for all cells at once: the buffer may move when it grows, and cells point into it.
            self._unescaped.clear()
            self._unescaped.reserve(length)
        for column in range(self._value.width):
            tab = <const unsigned char*>memchr(at, b"\t", end - at)
            if tab == NULL:
                tab = end
            self._cells[column].start = at
            self._cells[column].length = tab - at
            if has_escapes and not self._unescape(&self._cells[column]):
                return False
            if tab == end:
                return column == self._value.width - 1
            at = tab + 1
        return False

    cdef bint _unescape(self, Cell* cell) noexcept:
        """Points the cell to its text without the server's escapes; False if a backslash ends it."""
        cdef const unsigned char* at = cell.start
        cdef const unsigned char* end = at + cell.length
        cdef const unsigned char* backslash = <const unsigned char*>memchr(at, b"\\", cell.length)
        cdef unsigned char* start = self._unescaped.data + self._unescaped.size
        cdef unsigned char* to = start
        if backslash == NULL:
            return True
        if cell.length == 2 and at[0] == b"\\" and at[1] == b"N":
            cell.start = NULL
            cell.length = 0
            return True
        while backslash != NULL:
            if backslash + 1 == end:
                return False
            memcpy(to, at, backslash - at)
            to += backslash - at
            to[0] = _meant(backslash[1])
            to += 1
            at = backslash + 2
            backslash = <const unsigned char*>memchr(at, b"\\", end - at)
        memcpy(to, at, end - at)
        to += end - at
        cell.start = start
        cell.length = to - start
        self._unescaped.size += cell.length
        return True


cdef inline unsigned char _meant(unsigned char escaped) noexcept nogil:
    """Returns the byte that a backslash with this one stands for; one without a meaning of its own is itself."""
    if escaped == b"b":
        return 8
    if escaped == b"f":
        return 12
    if escaped == b"n":
        return 10
    if escaped == b"r":
        return 13
    if escaped == b"t":
        return 9
    if escaped == b"v":
        return 11
    return escaped
