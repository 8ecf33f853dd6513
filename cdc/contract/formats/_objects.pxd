"""What other C modules use from this one: cells, a buffer that grows, and what writes rows."""


cdef struct Cell:
    const unsigned char* start  # NULL: the value is SQL NULL
    Py_ssize_t length


cdef class Buffer:
    cdef unsigned char* data
    cdef Py_ssize_t size
    cdef Py_ssize_t capacity

    cdef int reserve(self, Py_ssize_t more) except -1
    cdef int add(self, const unsigned char* start, Py_ssize_t length) except -1
    cdef void clear(self) noexcept
    cdef bytes taken(self)


cdef class RowWriter:
    cdef readonly Py_ssize_t width

    cdef bint write(self, Buffer out, const Cell* cells) except -1


cdef class ObjectWriter(RowWriter):
    cdef tuple _labels
    cdef bytes _end
    cdef tuple _converters
    cdef bytes _kinds

    cdef bint _convert(self, Buffer out, Py_ssize_t place, Cell cell) except -1


cdef Py_ssize_t utf8_length(const unsigned char* start, const unsigned char* end) noexcept nogil
cdef bint is_utf8(const unsigned char* start, Py_ssize_t length) noexcept nogil
cdef bint is_null_document(Cell cell) noexcept nogil
cdef bint write_text(Buffer out, Cell cell) except -1
cdef bint _write_numbers(Buffer out, Cell cell) except -1
cdef bint _write_texts(Buffer out, Cell cell) except -1
